"""Discovery of runs and checkpoints under one path.

A run is a directory with run.json (`toeplix train` writes it), a checkpoint one with model.safetensors.
Names are looked up among the directories found and never joined to a path, so nothing outside the given
directory can be requested.
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
class Found:
    """Directories by name: of runs, and of models with or without a run."""

    runs: dict[str, Path] = field(default_factory=dict)
    models: dict[str, Path] = field(default_factory=dict)
    escaped: frozenset[str] = frozenset()  # names of directories whose names are not UTF-8


def find(root: Path) -> Found:
    """Return all runs and models at or below a path, searched at each call."""
    root = _resolved(root)
    if _has(root, WEIGHTS):
        owner = root.parent if root.name == MODEL and _has(root.parent, RECORD) else None
        name = printable(owner.name if owner else root.name)
        return Found(runs={name: owner} if owner else {}, models={name: root})
    runs: dict[str, Path] = {}
    models: dict[str, Path] = {}
    unfinished: dict[str, Path] = {}  # these have filters, but no tokenizer for generation
    escaped = set()
    for folder in _folders(root, MAX_SEARCH_DEPTH):
        given = folder.relative_to(root).as_posix() if folder != root else root.name
        name = printable(given)
        while (
            name in runs or name in models
        ):  # the name of another directory equals this escaped name
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
    return Found(runs=runs, models=models | unfinished, escaped=frozenset(escaped))


def _resolved(root: Path) -> Path:
    shown = printable(root)
    try:
        found = root.resolve()
        exists = found.exists()
    except (RuntimeError, OSError) as problem:  # RuntimeError: a loop of symbolic links
        raise ValueError(f"{shown} cannot be followed: {printable(str(problem))}") from problem
    if not exists and root.is_symlink():
        raise ValueError(f"{shown} is a link that leads nowhere, or in a loop")
    if not exists:
        raise FileNotFoundError(f"there is no {printable(found)}")
    if not found.is_dir():
        raise ValueError(f"{shown} is a file: give a checkpoint, a run or a directory of runs")
    return found


def _has(folder: Path, name: str) -> bool:
    """Return whether a readable directory contains a file."""
    try:
        return (folder / name).is_file()
    except OSError:
        return False


def _folders(root: Path, depth: int) -> Iterator[Path]:
    """Yield the directory and those below it in order of name; symbolic links are not followed."""
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
    except OSError:  # no permission, or deleted meanwhile
        return
    for name in below:
        yield from _folders(root / name, depth - 1)


def _newest(checkpoints: Path) -> Path | None:
    """Return the checkpoint with the most steps of an unfinished run; None if there is none."""
    found = {
        int(number[-18:]): folder
        for folder in checkpoints.glob("step-*")
        if (number := folder.name.removeprefix("step-")).isdecimal() and _has(folder, WEIGHTS)
    }
    return found[max(found)] if found else None
