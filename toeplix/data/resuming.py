"""The beginning of a build: a new one, or one that goes on; and what stays of one that fails."""

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toeplix.data.appending import read_progress, write_progress
from toeplix.data.encoding import SPLITS
from toeplix.data.manifest import ENDINGS, PROGRESS, TOKENIZER
from toeplix.files import printable


def begin(
    folder: Path, described: dict[str, Any], listed: list[list[Any]]
) -> tuple[dict[str, Any], bool]:
    """Where an earlier run stopped, or the start; and whether it is the start."""
    if (folder / PROGRESS).exists():
        progress = read_progress(folder)
        compare(folder, described, progress["recipe"])
        used = progress["part"]
        unchanged(folder, progress["parts"][:used], listed[:used])
        return progress | {"parts": listed}, False
    for each in sorted(folder.iterdir()):
        if not each.name.startswith("."):
            raise ValueError(
                printable(f"{folder} holds other things ({each.name}): choose a new directory")
            )
    progress = start(described, listed)
    write_progress(folder, progress)  # first: from now on what lies here is known to be ours
    return progress, True


def start(described: dict[str, Any], listed: list[list[Any]]) -> dict[str, Any]:
    nothing = {split: {"documents": 0, "tokens": 0, "bytes": 0} for split in SPLITS}
    place = {"part": 0, "inside": 0, "read": 0}
    return {"recipe": described, "parts": listed, "prepared": False, **place, "splits": nothing}


@contextlib.contextmanager
def forgetting(folder: Path) -> Iterator[None]:
    """Leave nothing of a build that fails before there is anything to go on with."""
    try:
        yield
    except BaseException as problem:
        with contextlib.suppress(OSError, ValueError):
            progress = read_progress(folder)
            train = progress["splits"]["train"]["documents"]
            if isinstance(problem, ValueError) and progress["part"] == len(progress["parts"]):
                kept = False  # all was read, and it will not do
            else:
                kept = train > 0 if isinstance(problem, Exception) else progress["prepared"]
            if not kept:
                _forget(folder)
        raise


def _forget(folder: Path) -> None:
    shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
    for name in (f"{split}.{ending}" for split in SPLITS for ending in ENDINGS):
        (folder / name).unlink(missing_ok=True)
    (folder / PROGRESS).unlink()  # last, so that the rest is never taken for somebody else's


def unchanged(folder: Path, used: list[Any], present: list[Any]) -> None:
    for old, new in itertools.zip_longest(used, present):
        if old != new:
            raise ValueError(
                printable(f"{(old or new)[0]} has changed since {folder} was begun: ")
                + "choose another directory, or delete this one"
            )


def compare(folder: Path, wanted: dict[str, Any], present: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if present.get(name) != value:
            raise ValueError(
                f"{printable(folder)} was begun with {name}={present.get(name)!r}, not {value!r}: "
                "choose another directory, or delete this one"
            )
