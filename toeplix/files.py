"""Files that are complete or absent, and what they contain in one number."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path


def replace_file(target: Path, write: Callable[[Path], object]) -> None:
    """Write aside, bring to disk, rename over the old file: complete or not at all."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write(aside)
        umask = os.umask(0)
        os.umask(umask)
        aside.chmod(0o666 & ~umask)
        with open(aside, "rb+") as handle:
            os.fsync(handle.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while block := opened.read(2**20):
            digest.update(block)
    return digest.hexdigest()
