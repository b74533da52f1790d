"""Settings and metrics of runs, read while the runs are training.

metrics.jsonl grows by whole lines, and a run that resumes from a checkpoint truncates it. A reader
therefore keeps a cursor, the number of bytes read and the checksum of the last of them: if the bytes
before the cursor have changed, it reads the file from the beginning.
"""

import math
import time
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from toeplix import compat
from toeplix.explorer.discovery import MAX_RUNS
from toeplix.files import open_input, parse_json, printable, read_json, reading
from toeplix.training.logs import METRICS
from toeplix.training.loop import MODEL, RECORD

QUIET_SECONDS = 60.0  # seconds without a line after which an unfinished run is called quiet
COMPARED_BYTES = 256  # bytes before the cursor that are compared
CHUNK_BYTES = 4 * 2**20  # bytes read at once: a long run comes in several answers
MAX_DEPTH = 8  # of a run.json, which has 2
MAX_EXACT_INTEGER = 2**53  # integers beyond are not exact in a browser
REMEDY = "restore it, or train the run again"


class Read(NamedTuple):
    """The new rows of a metrics file."""

    rows: list[dict[str, Any]]
    cursor: str
    again: bool  # the file was truncated: earlier rows are invalid
    damaged: int = 0  # lines that are not rows


def follow(folder: Path, cursor: str = "") -> Read:
    """Return the rows after the cursor; an incomplete last line is left for the next call."""
    offset, check = _parsed(cursor)
    try:
        with open_input(folder / METRICS) as file:
            size = file.seek(0, 2)
            again = offset > 0 and (offset > size or _checksum(file, offset) != check)
            offset = 0 if again else offset
            file.seek(offset)
            block = file.read(CHUNK_BYTES)
            end = block.rfind(b"\n") + 1
            if end == 0 and len(block) == CHUNK_BYTES:  # no row is that long: go on behind it
                end = CHUNK_BYTES
            offset += end
            checked = _checksum(file, offset)
    except FileNotFoundError:
        return Read([], "", offset > 0)
    lines = [line for line in block[:end].split(b"\n") if line.strip()]
    rows = [row for line in lines if (row := _row(line)) is not None]
    return Read(rows, f"{offset}-{checked:08x}", again, len(lines) - len(rows))


def _parsed(cursor: str) -> tuple[int, int]:
    offset, _, check = cursor.partition("-")
    try:
        return max(0, int(offset or 0)), int(check or "0", 16)
    except ValueError:
        return 0, 0


def _checksum(file: Any, offset: int) -> int:
    """Return the checksum of the bytes before the offset; -1 if the file is shorter."""
    start = max(0, offset - COMPARED_BYTES)
    file.seek(start)
    before = file.read(offset - start)
    return zlib.crc32(before) if len(before) == offset - start else -1


def _row(line: bytes) -> dict[str, Any] | None:
    """Return the finite numbers of one line; None if the line is not a row."""
    try:
        row = compat.metrics_row(parse_json(line))
    except (ValueError, TypeError):
        return None
    if type(row.get("step")) is not int or not _number(row["step"]):
        return None
    return {printable(name): value for name, value in row.items() if _number(value)}


def _number(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) < MAX_EXACT_INTEGER
    return isinstance(value, float) and math.isfinite(value)


def describe(name: str, folder: Path) -> dict[str, Any]:
    """Return the entry of a run in the list: model, progress, time of the last row, and problems."""
    problems = []
    steps, model = 0, dict[str, Any]()
    try:
        steps, model = _plan(folder)
    except (OSError, ValueError) as problem:
        problems.append(message(problem))
    last, changed = dict[str, Any](), 0.0
    metrics = folder / METRICS
    try:
        last = _last(metrics)
        changed = metrics.stat().st_mtime if metrics.exists() else 0.0
    except OSError as problem:
        problems.append(message(problem))
    finished = (folder / MODEL).is_dir() and last.get("step", 0) >= steps
    going = not finished and time.time() - changed < QUIET_SECONDS
    state = "finished" if finished else "training" if going else "quiet"
    return {
        "name": name,
        "arch": model.get("arch", "?"),
        "dim": model.get("dim"),
        "depth": model.get("depth"),
        "steps": steps,
        "step": last.get("step", 0),
        "changed": changed,
        "state": "damaged" if problems else state,
        "problem": "; ".join(problems) or None,
    }


def _plan(folder: Path) -> tuple[int, dict[str, Any]]:
    """Return the steps and the model settings of a run from its run.json."""
    found = read_json(folder / RECORD, REMEDY)
    with reading(folder / RECORD, REMEDY):
        clean(found)
        steps, model = found.get("steps", 0), found.get("model", {})
        if type(steps) is not int or not 0 <= steps < MAX_EXACT_INTEGER:
            raise ValueError(f"field 'steps' is {printable(steps)[:40]}, no number of steps")
        if not isinstance(model, dict):
            raise TypeError(f"field 'model' must be an object, not {printable(model)[:40]}")
        kinds = {"arch": str, "dim": int, "depth": int}
        for name, kind in kinds.items():
            if name in model and type(model[name]) is not kind:
                shown = printable(model[name])[:40]
                raise TypeError(
                    f"field 'model.{name}' must be of kind {kind.__name__}, not {shown}"
                )
        if model.get("arch", "") != printable(model.get("arch", "")):
            raise ValueError("field 'model.arch' is no text")
    return steps, clean(model)


def message(problem: Exception) -> str:
    """Return the message of an exception as one line of printable text."""
    if isinstance(problem, OSError) and problem.strerror:
        words = f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror
    else:
        plain = isinstance(problem, LookupError) and problem.args
        words = str(problem.args[0] if plain else problem)
    return " ".join(printable(words).split())[:400] or type(problem).__name__


def clean(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value that browsers can parse: other numbers and lone surrogates become text."""
    if depth < 0:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {printable(str(name)): clean(each, depth - 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [clean(each, depth - 1) for each in value]
    if isinstance(value, str):
        return printable(value)
    exact = isinstance(value, bool | None) or _number(value)
    return value if exact else printable(value)[:40]


def _last(metrics: Path) -> dict[str, Any]:
    """Return the last complete row; empty if there is none."""
    try:
        with open_input(metrics) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 2**14))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return {}
    return next((row for line in reversed(lines) if (row := _row(line))), {})


def record(folder: Path) -> dict[str, Any]:
    """Return run.json as a JSON value that browsers can parse.

    Raises:
        DamagedFile: run.json is not a valid record.
    """
    found = read_json(folder / RECORD, REMEDY)
    with reading(folder / RECORD, REMEDY):
        cleaned: dict[str, Any] = clean(found)
        return cleaned


@lru_cache(maxsize=2 * MAX_RUNS)
def _settings(folder: Path, stamp: tuple[int, int]) -> dict[str, Any]:
    """Return run.json as it was at a time of change, read once."""
    return settings(folder)


def kept_settings(folder: Path) -> dict[str, Any]:
    """Return run.json, which is read again only when it has changed; empty if it cannot be read."""
    try:
        about = (folder / RECORD).stat()
    except OSError:
        return {}
    return _settings(folder, (about.st_mtime_ns, about.st_size))


def settings(folder: Path) -> dict[str, Any]:
    """Return run.json; empty if it cannot be read."""
    try:
        return record(folder)
    except (OSError, ValueError):
        return {}
