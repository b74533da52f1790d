"""Directories that are there only if something is in them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def made(folder: Path, *leftovers: str) -> Iterator[None]:
    """Make a directory. If what follows fails, those that were made here and hold nothing are removed.

    Files of the names `leftovers` count as nothing: locks.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for each in missing:
            with contextlib.suppress(OSError):
                if {entry.name for entry in each.iterdir()} <= set(leftovers):
                    for entry in each.iterdir():
                        entry.unlink()
                each.rmdir()
        raise
