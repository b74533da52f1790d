"""The files of a store while it is built: appending, committing, and truncating after a crash.

`progress.json` is always written after the data that it describes. After a crash the files are truncated
to the lengths that it states.
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
from toeplix.data.manifest import (
    ENDINGS,
    PROGRESS,
    TOKENIZER,
    VAL_SHARE,
    check_parts,
    check_splits,
    count,
    lengths,
    only_known,
    sealed,
    unsealed,
)
from toeplix.data.tokenizer import Tokenizer
from toeplix.files import DamagedFile, field, printable, read_json, reading, replace_file

PLACES = ("part", "inside", "read")  # in the source
FIELDS = {"recipe", "parts", *PLACES, "splits", "prepared", VAL_SHARE}


def read_progress(folder: Path) -> dict[str, Any]:
    """How far an unfinished store is good. `prepared`: its tokenizer is there."""
    file, remedy = folder / PROGRESS, f"delete {printable(folder)} and build again"
    record = read_json(file, remedy)
    with reading(file, remedy):
        progress = {"prepared": True} | unsealed(record)
        only_known(progress, FIELDS)
        field(progress, "recipe", dict)
        field(progress, "prepared", bool)
        for name in PLACES:
            count(progress, name)
        check_splits(progress)
        if not 0 < progress.get(VAL_SHARE, 0.5) < 1:
            raise ValueError(f"field {VAL_SHARE!r} must be in (0, 1)")
        if progress["part"] > len(check_parts(progress)):
            raise ValueError(f"part {progress['part']} of {len(progress['parts'])} was read")
    return progress


def write_progress(folder: Path, progress: dict[str, Any]) -> None:
    text = json.dumps(sealed(progress))
    replace_file(folder / PROGRESS, lambda aside: aside.write_text(text, encoding="utf-8"))


class Growing:
    """The files of a store that is being built, and the progress up to which they are complete."""

    def __init__(self, folder: Path, progress: dict[str, Any]) -> None:
        self.folder, self.progress = folder, progress
        self._width = Tokenizer.load(folder / TOKENIZER).dtype.itemsize
        self._open: dict[str, IO[bytes]] = {}

    def __enter__(self) -> "Growing":
        if self.progress["read"] == 0:
            for split in SPLITS:
                for ending in ENDINGS:
                    content = b"" if ending == "bin" else bytes(8)
                    (self.folder / f"{split}.{ending}").write_bytes(content)
        good = {
            self.folder / f"{split}.{ending}": length
            for split in SPLITS
            for ending, length in lengths(self.progress["splits"][split], self._width).items()
        }
        self._check(good)
        for file, length in good.items():
            os.truncate(file, length)
            self._open[file.name] = open(file, "ab")
        self.commit()
        return self

    def _check(self, good: dict[Path, int]) -> None:
        """Before anything is truncated: what progress.json vouches for is there."""
        remedy = f"delete {printable(self.folder)} and build again"
        for file, length in good.items():
            if not file.is_file() or file.stat().st_size < length:
                raise DamagedFile(f"{printable(file)} is shorter than it was: {remedy}")
            counts = self.progress["splits"][file.stem]
            last = {".idx": counts["tokens"], ".size": counts["bytes"]}.get(file.suffix)
            if last is not None and _number_before(file, length) != last:
                raise DamagedFile(
                    f"{printable(file)} is damaged: it does not end where {PROGRESS} says; {remedy}"
                )

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
        """Append documents; `place` is the position in the source after them."""
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
        """Sync the data to disk, then write progress.json."""
        for file in self._open.values():
            file.flush()
            os.fsync(file.fileno())
        write_progress(self.folder, self.progress)


def _number_before(file: Path, length: int) -> int:
    with open(file, "rb") as opened:
        opened.seek(length - 8)
        return int.from_bytes(opened.read(8), "little", signed=True)


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn the error of a full disk into a message that says what is saved and what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        read = 0
        with contextlib.suppress(OSError, ValueError):
            read = read_progress(folder)["read"]
        raise OSError(
            f"no room left for {printable(folder)} ({problem.strerror}): {read} documents are safe; "
            "make room and run the same command again to go on"
        ) from problem
