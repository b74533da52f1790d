"""The files of a store while they grow: what is on disk, and the word how far it is good.

`progress.json` follows the data, never leads them. After a crash the files are cut back to what it says.
"""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from toeplix.data.encoding import SPLITS, Encoded
from toeplix.data.store import PROGRESS, TOKENIZER
from toeplix.data.tokenizer import Tokenizer
from toeplix.files import replace_file

LOCK = ".lock"


class Growing:
    """The growing files of a store, and how far they are good."""

    def __init__(self, folder: Path, progress: dict[str, Any]) -> None:
        self.folder, self.progress = folder, progress
        self._width = Tokenizer.load(folder / TOKENIZER).dtype.itemsize
        self._open: dict[str, IO[bytes]] = {}

    def __enter__(self) -> "Growing":
        for split in SPLITS:
            have = self.progress["splits"][split]
            lengths = {
                "bin": have["tokens"] * self._width,
                "idx": (have["documents"] + 1) * 8,
                "size": (have["documents"] + 1) * 8,
            }
            for ending, length in lengths.items():
                file = self.folder / f"{split}.{ending}"
                file.touch()
                if self.progress["read"] == 0:
                    file.write_bytes(b"" if ending == "bin" else bytes(8))
                if file.stat().st_size < length:
                    raise ValueError(
                        f"{file} is shorter than it was: delete {self.folder} and build again"
                    )
                os.truncate(file, length)
                self._open[file.name] = open(file, "ab")
        self.commit()
        return self

    def __exit__(self, *problem: object) -> None:
        try:
            self.commit()
        except OSError:
            if problem[0] is None:
                raise
        finally:
            for file in self._open.values():
                with contextlib.suppress(OSError):
                    file.close()

    def append(self, place: dict[str, int], encoded: dict[str, Encoded]) -> None:
        """Add documents; `place` says where in the source they end."""
        progress = self.progress | place
        progress["splits"] = {}
        for split, found in encoded.items():
            have = self.progress["splits"][split]
            ends = np.cumsum(found.lengths, dtype="<i8") + have["tokens"]
            sizes = np.cumsum(found.sizes, dtype="<i8") + have["bytes"]
            self._open[f"{split}.bin"].write(found.tokens)
            self._open[f"{split}.idx"].write(ends.tobytes())
            self._open[f"{split}.size"].write(sizes.tobytes())
            progress["splits"][split] = {
                "documents": have["documents"] + len(found.lengths),
                "tokens": have["tokens"] + sum(found.lengths),
                "bytes": have["bytes"] + sum(found.sizes),
            }
        self.progress = progress

    def commit(self) -> None:
        """First the data, then the word that they are there."""
        for file in self._open.values():
            file.flush()
            os.fsync(file.fileno())
        text = json.dumps(self.progress)
        replace_file(self.folder / PROGRESS, lambda aside: aside.write_text(text, encoding="utf-8"))


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """A full disk in words."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        read = 0
        if (folder / PROGRESS).exists():
            read = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))["read"]
        raise OSError(
            f"no room left for {folder} ({problem.strerror}): {read} documents are safe; make room and "
            "run the same command again to go on"
        ) from problem


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Two processes must not write into one directory. The lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    with open(folder / LOCK, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as problem:
            raise OSError(f"{folder} is being written by another process") from problem
        for aside in folder.glob(".*.json.*"):  # left by a process that was killed
            aside.unlink()
        yield
