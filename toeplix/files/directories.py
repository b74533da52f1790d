"""Directories that are there only if something is in them."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

ATTEMPTS = 100  # to make a directory while other processes remove theirs


def make_directory(folder: Path) -> None:
    """Make a directory and those above it, unless they exist.

    Another process that failed may remove an empty directory between two of the steps, so that
    `mkdir` finds it missing and present at once; then all steps are tried again.
    """
    for attempt in range(ATTEMPTS):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return
        except (FileNotFoundError, FileExistsError, NotADirectoryError):
            for each in (folder, *folder.parents):
                _check_kind(each)
            if attempt == ATTEMPTS - 1:
                raise


def _check_kind(path: Path) -> None:
    """Reject what exists and is no directory."""
    from toeplix.files import printable

    try:
        mode = path.stat().st_mode
    except OSError:
        if path.is_symlink():
            raise NotADirectoryError(
                f"{printable(path)} is a symbolic link to nothing: choose a directory"
            ) from None
        return
    if not stat.S_ISDIR(mode):
        kind = "a file" if stat.S_ISREG(mode) else "no directory"
        raise NotADirectoryError(f"{printable(path)} is {kind}: choose a directory")


@contextlib.contextmanager
def ensure_directory(folder: Path, *leftovers: str) -> Iterator[Path]:
    """Make a directory and those above it. If the block fails, those that were made here and hold
    nothing are removed again.

    Files of the names `leftovers`, such as locks, count as nothing.
    """
    absent = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        make_directory(folder)
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
