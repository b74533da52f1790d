"""What is explored: directories of runs and of checkpoints, found under one path and known by name.

A run has a run.json (`toeplix train` writes it), a checkpoint a model.safetensors. Names are looked up in
what was found, and never joined to a path: nothing outside the given directory can be asked for.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from toeplix.checkpoint import WEIGHTS
from toeplix.files import printable
from toeplix.training.loop import CHECKPOINTS, MODEL, RECORD

MAX_SEARCH_DEPTH = 3  # directories below the given one in which runs are looked for
MAX_RUNS = 500  # that are listed
SKIPPED = {CHECKPOINTS, "tensorboard", MODEL}  # of a run, never runs themselves


@dataclass(frozen=True, kw_only=True)
class Places:
    """Directories by name: of runs, and of models with or without a run."""

    runs: dict[str, Path] = field(default_factory=dict)
    models: dict[str, Path] = field(default_factory=dict)
    escaped: frozenset[str] = frozenset()  # names that stand for bytes that are no text


def find(root: Path) -> Places:
    """All runs and models at or below a path. Looked for anew at each call: runs come and go."""
    root = _resolved(root)
    if _has(root, WEIGHTS):
        owner = root.parent if root.name == MODEL and _has(root.parent, RECORD) else None
        name = printable(owner.name if owner else root.name)
        return Places(runs={name: owner} if owner else {}, models={name: root})
    runs: dict[str, Path] = {}
    models: dict[str, Path] = {}
    unfinished: dict[str, Path] = {}  # have filters, but no tokenizer to write with
    escaped = set()
    for folder in _folders(root, MAX_SEARCH_DEPTH):
        given = folder.relative_to(root).as_posix() if folder != root else root.name
        name = printable(given)
        while name in runs or name in models:  # another directory has the escaped name for its own
            name += "'"
        if name != given:
            escaped.add(name)
        if _has(folder, RECORD) and len(runs) < MAX_RUNS:
            runs[name] = folder
            if _has(folder / MODEL, WEIGHTS):
                models[name] = folder / MODEL
            elif newest := _newest(folder / CHECKPOINTS):
                unfinished[f"{name}, {newest.name}"] = newest
        elif _has(folder, WEIGHTS) and len(models) < MAX_RUNS:
            models[name] = folder
    return Places(runs=runs, models=models | unfinished, escaped=frozenset(escaped))


def _resolved(root: Path) -> Path:
    shown = printable(root)
    try:
        found = root.resolve()
        exists = found.exists()
    except (RuntimeError, OSError) as problem:  # the first is of links that go round
        raise ValueError(f"{shown} cannot be followed: {printable(str(problem))}") from problem
    if not exists and root.is_symlink():
        raise ValueError(f"{shown} is a link that leads nowhere, or in a loop")
    if not exists:
        raise FileNotFoundError(f"there is no {printable(found)}")
    if not found.is_dir():
        raise ValueError(f"{shown} is a file: give a checkpoint, a run or a directory of runs")
    return found


def _has(folder: Path, name: str) -> bool:
    """Whether a file is there that may be looked at."""
    try:
        return (folder / name).is_file()
    except OSError:
        return False


def _folders(root: Path, depth: int) -> Iterator[Path]:
    """The directory and those below it, by name; links are not followed."""
    yield root
    if depth == 0 or _has(root, RECORD):
        return
    try:
        with os.scandir(root) as entries:
            below = sorted(
                entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
                and entry.name not in SKIPPED
                and not entry.name.startswith(".")
            )
    except OSError:  # not allowed, or gone meanwhile
        return
    for name in below:
        yield from _folders(root / name, depth - 1)


def _newest(checkpoints: Path) -> Path | None:
    """Of a run that is not finished: the checkpoint after most steps."""
    found = {
        int(number[-18:]): folder
        for folder in checkpoints.glob("step-*")
        if (number := folder.name.removeprefix("step-")).isdecimal() and _has(folder, WEIGHTS)
    }
    return found[max(found)] if found else None
