"""That a store is what was built: its files read once, and remembered until one of them changes.

What was verified is kept in `$TOEPLIX_CACHE/verified`, so that stores may be read-only. A record names
device, inode, size and times of every file: whatever writes to one changes them, and the store is read
again. Bits that a disk flips by itself afterwards change none of them: `toeplix data check` always reads.
"""

import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toeplix.data.corpus import cache_directory
from toeplix.data.manifest import MANIFEST, digest
from toeplix.files import read_json, replace_file

SETTLED_NANOSECONDS = 2 * 10**9  # nanoseconds after which a change shows in the times of a file
CHUNK_NUMBERS = 2**24  # numbers that are looked at together
MAX_RECORDS = 200  # of other stores that are looked at, to forget those that are gone


def fingerprint(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """What is different after any file was written."""
    files = {}
    for name in (MANIFEST, *manifest["files"]):
        found = (folder / name).stat()
        times = [found.st_mtime_ns, found.st_ctime_ns]
        files[name] = [found.st_dev, found.st_ino, found.st_size, *times]
    return {"store": str(folder.absolute()), "manifest": digest(manifest), "files": files}


def is_remembered(seen: dict[str, Any]) -> bool:
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # RuntimeError: nobody's home
        return bool(read_json(_file(seen)) == seen)
    return False


def remember(seen: dict[str, Any]) -> None:
    """Unless a file is so new that a later change might not show, or there is nowhere to write."""
    newest = max(max(each[3:]) for each in seen["files"].values())
    if time.time_ns() - newest < SETTLED_NANOSECONDS:
        return
    with contextlib.suppress(OSError, RuntimeError):
        file = _file(seen)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(seen)
        replace_file(file, lambda aside: aside.write_text(text, encoding="utf-8"))
        for other in sorted(file.parent.glob("*.json"))[:MAX_RECORDS]:
            with contextlib.suppress(OSError, ValueError, TypeError):
                if not (Path(read_json(other).get("store", "")) / MANIFEST).exists():
                    other.unlink()


def _file(seen: dict[str, Any]) -> Path:
    name = hashlib.sha256(seen["store"].encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return cache_directory() / "verified" / f"{name}.json"


def check_ends(ends: NDArray[np.int64], total: int, least: int) -> None:
    """Places where documents end rise from 0 to `total` by at least so many."""
    if not len(ends) or ends[0] != 0 or ends[-1] != total:
        raise ValueError(f"it does not lead from 0 to {total}")
    for begin in range(0, len(ends), CHUNK_NUMBERS):
        part = ends[begin : begin + CHUNK_NUMBERS + 1]
        if part.min() < 0 or part.max() > total:
            raise ValueError(f"a document lies outside of 0 to {total}")
        if len(part) > 1 and int((part[1:] - part[:-1]).min()) < least:
            raise ValueError(f"a document is shorter than {least}")


def check_tokens(tokens: NDArray[Any], vocab: int) -> None:
    for begin in range(0, len(tokens), CHUNK_NUMBERS):
        if (largest := int(tokens[begin : begin + CHUNK_NUMBERS].max())) >= vocab:
            raise ValueError(f"it holds token {largest} of a vocabulary of {vocab}")
