"""Results on disk: JSON lines, one per case, with measured numbers, date, device and versions.

    {"case": {...}, "found": {...}, "seconds": 31.4, "date": "2026-11-16", "versions": {...}}
    {"case": {...}, "error": "ValueError: ...", ...}

A case is identified by its record. If a case has several rows, the last one is used.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from toeplix.files import DamagedFile, field, parse_json, printable, reading

REMEDY = "delete the line, and `toeplix experiment run` measures the case again"
START = b'{"case": '  # of every row

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
Fields = dict[str, JSON]  # of a case
Found = Mapping[str, object]  # numbers that `measure` returns, of JSON types
Table = Sequence[Mapping[str, object]]  # lines of a table, by column
Take = Callable[[], Fields | None]  # the next case to measure; None: there is none at the moment
# fields of the case and numbers found, side by side. Families of experiments name theirs: see
# `text_rows.TextRow`, `task_training.TaskRow`, `trained_filters.FilterRow`
Row = dict[str, Any]


class StoredRow(TypedDict, total=False):
    """A row as it is written. It has either `found` or `error`."""

    case: Fields
    found: Found
    error: str
    seconds: float
    date: str
    device: str
    threads: int
    versions: dict[str, str]


class Provenance(TypedDict):
    """Where and when a row was measured."""

    date: str
    device: str
    threads: int
    versions: dict[str, str]


def record(case: object) -> Fields:
    """Return a case as a dict of JSON types."""
    return json.loads(json.dumps(dataclasses.asdict(case)))  # type: ignore[call-overload]


def key(fields: Fields) -> str:
    return json.dumps(fields, sort_keys=True)


def read(file: Path) -> dict[str, StoredRow]:
    """Return rows as written, by case. A last line without a line end is incomplete and is dropped."""
    if not file.exists():
        return {}
    if not file.is_file():
        raise ValueError(f"{printable(file)} is no file of results")
    found = {}
    *lines, _ = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line)
            for name, kind in (("case", dict), ("found", dict), ("error", str)):
                if name == "case" or name in row:
                    field(row, name, kind)
            found[key(row["case"])] = row
        except (ValueError, LookupError, TypeError, RecursionError) as problem:
            reason = f"field {problem} is missing" if isinstance(problem, KeyError) else problem
            raise DamagedFile(
                f"{printable(file)}, line {number} is not a row of results: {reason}; {REMEDY}"
            ) from problem
    return found


@contextlib.contextmanager
def interpreting(file: Path) -> Iterator[None]:
    """What goes wrong with rows that were read is told of their file: fields are missing or useless."""
    with reading(file, f"a row is not of this experiment or version: {REMEDY}"):
        yield


def append(file: Path, row: StoredRow) -> None:
    """Append a row and sync it to disk; an incomplete last line is removed first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "ab+") as opened:
        opened.seek(0)
        before = opened.read()
        whole = before.rfind(b"\n") + 1
        if not before.startswith(START, whole) and not START.startswith(before[whole:]):
            raise ValueError(f"{printable(file)} does not end in a row of results: {REMEDY}")
        opened.truncate(whole)
        opened.write(json.dumps(row).encode() + b"\n")
        opened.flush()
        os.fsync(opened.fileno())


def flat(file: Path) -> list[Row]:
    """Return the finished cases of a file, fields and measured numbers in one dict each."""
    return [{**row["case"], **row["found"]} for row in read(file).values() if "found" in row]


def provenance() -> Provenance:
    """Return date, device, number of threads and versions, to be stored with a row."""
    import torch

    from toeplix import __version__

    versions = {
        "toeplix": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    with contextlib.suppress(ImportError):
        from importlib.metadata import version

        versions["transformers"] = version("transformers")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {
        "date": date,
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": versions,
    }
