"""The directory of a run: which entries a run writes, and whose directory it is.

A directory with a run.json belongs to that run. Any other directory becomes a run's only if nothing is in
it but hidden files and `data`, the token store of a run that was interrupted before its first step.

What a run writes must not be a symbolic link, because the file that it points to is somebody else's. The
directory itself, and those above it, may be links.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from toeplix.data.store import MANIFEST, PROGRESS
from toeplix.files import printable, read_json, reading
from toeplix.training.logs import METRICS, SAMPLES, TENSORBOARD
from toeplix.training.run import Run
from toeplix.training.summary import SUMMARY

RECORD, CHECKPOINTS, MODEL, DATA = "run.json", "checkpoints", "model", "data"
FILES = (RECORD, METRICS, SAMPLES, SUMMARY)
DIRECTORIES = (CHECKPOINTS, MODEL, TENSORBOARD)
REMEDY = "choose a new directory"


def check_directory(run: Run, folder: Path) -> None:
    """Raise an error unless the directory belongs to this run or to nobody."""
    present = recorded_run(folder)
    if present and (differences := run.differences(present)):
        raise ValueError(f"{folder} belongs to another run: {', '.join(differences)}; {REMEDY}")


def recorded_run(folder: Path) -> Run | None:
    """Return the run that owns a directory; None if it is new, or free to become a run's.

    A directory that no run may write into is an error.
    """
    if not folder.is_dir():
        return None
    for entry in _written(folder):
        _check_kind(entry)
    file = folder / RECORD
    others = [
        each for each in sorted(folder.iterdir()) if not (_hidden(each) or _begun_store(each))
    ]
    if file.exists():  # after the list: the first process may be writing, and begins with this
        with reading(file, REMEDY):
            return Run.from_dict(read_json(file, REMEDY))
    if others:
        raise ValueError(printable(f"{folder} holds other things ({others[0].name}): {REMEDY}"))
    return None


def check_data(data: str) -> None:
    """Reject the directory of a run where a token store, or text, is expected."""
    try:
        run = Run.from_dict(read_json(Path(data) / RECORD))
    except (OSError, ValueError, TypeError):
        return
    raise ValueError(
        f"{printable(data)} is a training run, not a token store: "
        f"give the store that it was trained on ({printable(run.data)})"
    )


def _written(folder: Path) -> Iterator[Path]:
    """Yield the entries that a run writes, as far as they exist."""
    for name in (*FILES, *DIRECTORIES):
        if os.path.lexists(folder / name):
            yield folder / name
    for name in (CHECKPOINTS, MODEL):
        if (folder / name).is_dir():
            yield from sorted((folder / name).iterdir())


def _check_kind(entry: Path) -> None:
    name = printable(entry)
    if entry.is_symlink():
        raise ValueError(
            f"{name} is a symbolic link, and training would write where it points to: "
            f"replace it by what it points to, or {REMEDY}"
        )
    if entry.name in DIRECTORIES and not entry.is_dir():
        raise ValueError(f"{name} is a file, not a directory of a run: move it, or {REMEDY}")
    if entry.name in FILES and not entry.is_file():
        raise ValueError(f"{name} is no regular file: move it, or {REMEDY}")


def _hidden(entry: Path) -> bool:
    return entry.name.startswith(".")


def _begun_store(entry: Path) -> bool:
    """Whether this is the token store of a run, or the start of one."""
    if entry.name != DATA or not entry.is_dir():
        return False
    hidden = all(_hidden(each) for each in entry.iterdir())
    return hidden or any((entry / name).exists() for name in (MANIFEST, PROGRESS))
