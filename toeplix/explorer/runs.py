"""Settings and metrics of runs, read while they are being written.

metrics.jsonl grows by whole lines; a run that goes on from a checkpoint cuts it and writes other ones. So
a reader keeps a cursor, "bytes read, checksum of the last of them": if what stands before the cursor has
changed, it starts again.
"""

import json
import math
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from toeplix.logs import METRICS
from toeplix.train import MODEL, RECORD

LATE = 60.0  # seconds without a line after which an unfinished run is called quiet
TAIL = 256  # bytes before the cursor that are compared
CHUNK = 4 * 2**20  # bytes read at once: a long run comes in several answers


class Read(NamedTuple):
    """What is new in a file of rows."""

    rows: list[dict[str, Any]]
    cursor: str
    again: bool  # forget earlier rows: the file is another one


def follow(folder: Path, cursor: str = "") -> Read:
    """Rows after the cursor; a line that is still being written is left for the next time."""
    offset, check = _parsed(cursor)
    try:
        with open(folder / METRICS, "rb") as file:
            again = offset > 0 and _checksum(file, offset) != check
            offset = 0 if again else offset
            file.seek(offset)
            block = file.read(CHUNK)
            end = block.rfind(b"\n") + 1
            offset += end
            checked = _checksum(file, offset)
    except FileNotFoundError:
        return Read([], "", offset > 0)
    rows = [row for line in block[:end].splitlines() if (row := _row(line)) is not None]
    return Read(rows, f"{offset}-{checked:08x}", again)


def _parsed(cursor: str) -> tuple[int, int]:
    offset, _, check = cursor.partition("-")
    try:
        return max(0, int(offset or 0)), int(check or "0", 16)
    except ValueError:
        return 0, 0


def _checksum(file: Any, offset: int) -> int:
    """Of what stands before the offset; -1 where the file is shorter."""
    start = max(0, offset - TAIL)
    file.seek(start)
    before = file.read(offset - start)
    return zlib.crc32(before) if len(before) == offset - start else -1


def _row(line: bytes) -> dict[str, Any] | None:
    """Numbers of one line, those that JSON cannot write left out; None for what is no row."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        return None
    return {name: value for name, value in row.items() if _number(value)}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def describe(name: str, folder: Path) -> dict[str, Any]:
    """A run in one line: what it trains, how far it is, when it last said something."""
    record = settings(folder)
    model = record.get("model", {})
    metrics = folder / METRICS
    last = _last(metrics)
    steps = record.get("steps", 0)
    changed = metrics.stat().st_mtime if metrics.exists() else 0.0
    finished = (folder / MODEL).is_dir() and last.get("step", 0) >= steps
    going = not finished and time.time() - changed < LATE
    return {
        "name": name,
        "arch": model.get("arch", "?"),
        "dim": model.get("dim"),
        "depth": model.get("depth"),
        "steps": steps,
        "step": last.get("step", 0),
        "changed": changed,
        "state": "finished" if finished else "training" if going else "quiet",
    }


def _last(metrics: Path) -> dict[str, Any]:
    """The last whole row."""
    try:
        with open(metrics, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 2**14))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return {}
    return next((row for line in reversed(lines) if (row := _row(line))), {})


def settings(folder: Path) -> dict[str, Any]:
    """run.json; empty where it cannot be read."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
