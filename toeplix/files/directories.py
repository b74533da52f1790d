"""Directories that are there only if something is in them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def ensure_directory(folder: Path, *leftovers: str) -> Iterator[Path]:
    """Make a directory and those above it. If the block fails, those that were made here and hold
    nothing are removed again.

    Files of the names `leftovers`, such as locks, count as nothing.
    """
    absent = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException:
        with contextlib.suppress(OSError):  # something is in it
            for each in absent:
                _remove(each, set(leftovers))
        raise


def _remove(folder: Path, leftovers: set[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        inside = list(folder.iterdir())
        if {entry.name for entry in inside} <= leftovers:
            for entry in inside:
                entry.unlink()
        folder.rmdir()
