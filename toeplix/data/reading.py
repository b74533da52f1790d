"""Reading the records of a file one at a time: text, JSON lines and parquet, compressed or not.

`records(path, field, skip)` yields pairs of a number (line or row, from 1) and a value, and raises
`Damaged` where the file is invalid.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toeplix.data import decompression
from toeplix.data.decompression import OPENERS
from toeplix.files import open_input, printable

MAX_DOCUMENT_BYTES = (
    2**28
)  # bytes of a line, or of one document in a text file: what a mistake looks like
JSON_SPACE = " \t\r\n"  # what JSON knows as white space: str.strip would pass over more

Records = Iterator[tuple[int, Any]]


class Damaged(Exception):
    """A file is invalid: what is wrong, what to do, and `place`, if the caller does not know it."""

    def __init__(self, trouble: str, remedy: str, place: str = "") -> None:
        super().__init__(trouble)
        self.trouble, self.remedy, self.place = trouble, remedy, place


def records(path: Path, field: str, skip: int) -> Records:
    kind = suffix_of(path)
    assert kind is not None, path
    return KINDS[kind](path, field, skip)


def suffix_of(path: Path) -> str | None:
    """Return the key of KINDS for a file, by its name; None if it is not supported."""
    name = path.name.lower()
    if path.suffix.lower() in OPENERS and path.suffix:
        name = name[: -len(path.suffix)]
    suffix = Path(name).suffix
    packed = name != path.name.lower()
    return suffix if suffix in KINDS and not (packed and suffix == ".parquet") else None


def _text(path: Path, field: str, skip: int) -> Records:
    return itertools.islice(_parted(path), skip, None)


def _parted(path: Path) -> Records:
    """Yield documents separated by form feeds or at least two blank lines, without outer newlines."""
    held: list[str] = []
    first, size, blank = 1, 0, 0
    for number, line in _lines(path):
        for piece in filter(None, re.split("(\f)", line)):
            blank = 0 if piece.strip("\r\n") else blank + 1
            if piece == "\f" or blank == 2:
                if text := "".join(held).strip("\r\n"):
                    yield first, text
                held, size, first = [], 0, number
            else:
                held.append(piece)
                size += len(piece)
        if size > MAX_DOCUMENT_BYTES:
            raise Damaged(
                f"a document of more than {MAX_DOCUMENT_BYTES >> 20} MB begins here",
                "part documents by a form feed or two blank lines, or use .jsonl",
                f"line {first}",
            )
    if text := "".join(held).strip("\r\n"):
        yield first, text


def _json_lines(path: Path, field: str, skip: int) -> Records:
    taken = 0
    for number, line in _lines(path):
        if not line.strip(JSON_SPACE):
            continue
        taken += 1
        if taken <= skip:
            continue
        place = f"line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as problem:
            why = "nested too deeply" if isinstance(problem, RecursionError) else str(problem)
            if isinstance(problem, json.JSONDecodeError):
                why = f"{problem.msg} at column {problem.colno}"
            raise Damaged(f"not JSON ({why})", "mend or delete this line", place) from problem
        if not isinstance(record, dict):
            raise Damaged(
                f"a JSON object was expected, not {line.strip()[:30]}",
                'write {"text": ...}',
                place,
            )
        if field not in record:
            fields = ", ".join(map(repr, record)) or "none"
            raise Damaged(f"no field {field!r}, only {fields}", "choose with --field", place)
        yield number, record[field]


def _parquet(path: Path, field: str, skip: int) -> Records:
    """Rows of a column. Counts are compared: in a damaged footer a group or its rows may be missing."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    number, read = 0, 0
    try:
        # opened here, because pyarrow takes no name that is not UTF-8
        with open_input(path) as file, ParquetFile(file, page_checksum_verification=True) as opened:
            if file.seek(0) == 0 and file.read(4) != b"PAR1":
                raise OSError("it does not begin with PAR1")
            if field not in opened.schema_arrow.names:
                columns = ", ".join(map(repr, opened.schema_arrow.names))
                raise Damaged(f"no column {field!r}, only {columns}", "choose with --field")
            for group in range(opened.num_row_groups):
                rows = opened.metadata.row_group(group).num_rows
                read += rows
                if read <= skip:
                    number = read
                    continue
                for batch in opened.iter_batches(64, row_groups=[group], columns=[field]):
                    for value in batch.column(0):
                        number += 1
                        if number > skip:
                            yield number, _decoded(value, number)
                if number != read:
                    raise OSError(f"row group {group + 1} has {rows} rows by its own count")
            if read != opened.metadata.num_rows:
                raise OSError(
                    f"{read} rows, but {opened.metadata.num_rows} by the file's own count"
                )
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, MemoryError) as problem:
        raise _broken(problem, f"after row {number}") from problem


def _decoded(value: Any, number: int) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError as problem:
        raise Damaged(
            f"not UTF-8 ({problem.reason} at byte {problem.start})",
            "write the file again from text that is UTF-8",
            f"row {number}",
        ) from problem


KINDS: dict[str, Callable[[Path, str, int], Records]] = {
    ".txt": _text,
    ".md": _text,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends, decoded; a mark of byte order at the start is left out."""
    number = 0
    try:
        for number, line in enumerate(_raw_lines(path), 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as problem:
                raise Damaged(
                    f"not UTF-8 (byte {line[problem.start]:#04x} at {problem.start})",
                    "convert the file, for example with iconv -t utf-8",
                    f"line {number}",
                ) from problem
            yield number, text
    except decompression.errors() as problem:
        raise _broken(problem, f"after line {number}") from problem


def _raw_lines(path: Path) -> Iterator[bytes]:
    held: list[bytes] = []  # pieces of a line that has not ended
    size, number = 0, 1
    for block in decompression.blocks(path):
        *lines, rest = block.split(b"\n")
        for line in lines:
            yield b"".join((*held, line, b"\n"))
            held, size, number = [], 0, number + 1
        if rest:
            held.append(rest)
            size += len(rest)
        if size > MAX_DOCUMENT_BYTES:
            raise Damaged(
                f"a line of more than {MAX_DOCUMENT_BYTES >> 20} MB begins here",
                "part documents by newlines",
                f"line {number}",
            )
    if held:
        yield b"".join(held)


def _broken(problem: Exception, place: str) -> Damaged:
    reason = " ".join(printable(str(problem)).split()) or type(problem).__name__
    return Damaged(f"cannot be read ({reason})", "fetch or make the file again", place)
