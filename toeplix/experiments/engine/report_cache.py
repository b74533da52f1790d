"""Figures and tables that were made before: kept in the user's cache, by the digest of their inputs.

The digest covers the rows of the experiment, the published rows, the source of this package and the
versions of the libraries that compute and plot. If any of them changes, the figure or table is made
again. The cache is not in the working tree, so documents and figures contain the same bytes with or
without it. A damaged or unwritable cache is not an error: everything can be made again.

    $XDG_CACHE_HOME/toeplix/report/window-laptop.svg.json     {"digest": ..., "value": ...}
"""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import toeplix
from toeplix.files import parse_json, replace_file

LIBRARIES = ("matplotlib", "numpy", "scipy", "torch")

Value = TypeVar("Value")


class ReportCache:
    """Remembers one value under each name; it is made again if its inputs have changed."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder  # None: nothing is remembered

    @classmethod
    def of_user(cls) -> "ReportCache":
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return cls(Path(cache) / "toeplix" / "report")

    def get(self, name: str, inputs: Iterable[Path], make: Callable[[], Value]) -> Value:
        """Return `make()`, a JSON value, or what it returned for the same files and the same code."""
        if self.folder is None:
            return make()
        file = self.folder / f"{name}.json"
        digest = _digest(inputs)
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            known = parse_json(file.read_bytes())
            if known["digest"] == digest:
                return known["value"]
        value = make()
        text = json.dumps({"digest": digest, "value": value})
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(file, lambda aside: aside.write_text(text, encoding="utf-8"))
        return value


def _digest(inputs: Iterable[Path]) -> str:
    found = hashlib.sha256(_code_digest().encode())
    for file in inputs:
        content = file.read_bytes() if file.exists() else b""
        found.update(hashlib.sha256(content).digest())
    return found.hexdigest()


@functools.cache
def _code_digest() -> str:
    found = hashlib.sha256()
    root = Path(toeplix.__file__).parent
    for file in sorted(root.rglob("*.py")):
        found.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    found.update(" ".join(f"{name} {version(name)}" for name in LIBRARIES).encode())
    return found.hexdigest()
