"""One process at a time writes into a directory."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from toeplix.files import ensure_directory, printable
from toeplix.files.directories import ATTEMPTS, make_directory

LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Two processes must not write into one directory, which is made. The lock ends with the process.

    Afterwards the lock's file is gone, and if the block failed also the directories that were made for
    it, where nothing is in them.
    """
    with ensure_directory(folder), _lock_file(folder, wait):
        for aside in folder.iterdir():  # left by a process that was killed
            if re.fullmatch(r"\.[^.]+\.json\.[0-9]+", aside.name):
                aside.unlink()
        yield


@contextlib.contextmanager
def _lock_file(folder: Path, wait: bool) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # not on this system
        make_directory(folder)
        yield
        return
    file = folder / LOCK
    attempts = ATTEMPTS
    while True:
        try:
            make_directory(folder)
            # not emptied: a file of this name may be somebody else's
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except (FileNotFoundError, FileExistsError):
            attempts -= 1  # perhaps the directory was just removed by another process, which failed
            if not attempts or folder.is_file():
                raise
            continue
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except OSError as problem:
                raise OSError(
                    f"{printable(folder)} is being written by another process"
                ) from problem
            if not _is_at(handle, file):  # whoever had the lock removed its file: nobody looks here
                continue
            try:
                yield
            finally:
                if _is_at(handle, file) and os.fstat(handle).st_size == 0:
                    with contextlib.suppress(OSError):
                        file.unlink()
                fcntl.flock(handle, fcntl.LOCK_UN)  # a process forked meanwhile has the handle too
            return
        finally:
            os.close(handle)


def _is_at(handle: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except OSError:
        return False
