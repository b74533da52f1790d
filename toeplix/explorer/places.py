"""What is explored: directories of runs and of checkpoints, found under one path and known by name.

A run has a run.json (`toeplix train` writes it), a checkpoint a model.safetensors. Names are looked up in
what was found, and never joined to a path: nothing outside the given directory can be asked for.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from toeplix.checkpoint import WEIGHTS
from toeplix.train import CHECKPOINTS, MODEL, RECORD

DEPTH = 3  # directories below the given one in which runs are looked for
MOST = 500  # runs
SKIPPED = {CHECKPOINTS, "tensorboard", MODEL}  # of a run, never runs themselves


@dataclass(frozen=True, kw_only=True)
class Places:
    """Directories by name: of runs, and of models with or without a run."""

    runs: dict[str, Path] = field(default_factory=dict)
    models: dict[str, Path] = field(default_factory=dict)


def find(root: Path) -> Places:
    """All runs and models at or below a path. Looked for anew at each call: runs come and go."""
    root = root.resolve()
    if not root.exists():
        raise FileNotFoundError(f"there is no {root}")
    if not root.is_dir():
        raise ValueError(f"{root} is a file: give a checkpoint, a run or a directory of runs")
    if (root / WEIGHTS).is_file():
        owner = root.parent if root.name == MODEL and (root.parent / RECORD).is_file() else None
        name = owner.name if owner else root.name
        return Places(runs={name: owner} if owner else {}, models={name: root})
    runs: dict[str, Path] = {}
    models: dict[str, Path] = {}
    unfinished: dict[str, Path] = {}  # have filters, but no tokenizer to write with
    for folder in _folders(root, DEPTH):
        name = folder.relative_to(root).as_posix() if folder != root else root.name
        if (folder / RECORD).is_file() and len(runs) < MOST:
            runs[name] = folder
            if (folder / MODEL / WEIGHTS).is_file():
                models[name] = folder / MODEL
            elif newest := _newest(folder / CHECKPOINTS):
                unfinished[f"{name}, {newest.name}"] = newest
        elif (folder / WEIGHTS).is_file() and len(models) < MOST:
            models[name] = folder
    return Places(runs=runs, models=models | unfinished)


def _folders(root: Path, depth: int) -> Iterator[Path]:
    """The directory and those below it, by name; links are not followed."""
    yield root
    if depth == 0 or (root / RECORD).is_file():
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
    except PermissionError:
        return
    for name in below:
        yield from _folders(root / name, depth - 1)


def _newest(checkpoints: Path) -> Path | None:
    """Of a run that is not finished: the checkpoint after most steps."""
    found = {
        int(number): folder
        for folder in checkpoints.glob("step-*")
        if (number := folder.name.removeprefix("step-")).isdigit() and (folder / WEIGHTS).is_file()
    }
    return found[max(found)] if found else None
