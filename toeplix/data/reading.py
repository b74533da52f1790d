"""Records of a file, one at a time: text, JSON lines and parquet, compressed or not.

`records(path, field, skip)` gives pairs of a number (the line or row, from 1) and a value, and raises
`Damaged` where the file cannot be understood.
"""

import gzip
import itertools
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LONGEST = 2**28  # bytes of one document in a text file: what a mistake looks like

Records = Iterator[tuple[int, Any]]


class Damaged(Exception):
    """What is wrong, and what to do about it; the caller knows where, or else `place` says it."""

    def __init__(self, trouble: str, remedy: str, place: str = "") -> None:
        super().__init__(trouble)
        self.trouble, self.remedy, self.place = trouble, remedy, place


def records(path: Path, field: str, skip: int) -> Records:
    kind = suffix_of(path)
    assert kind is not None, path
    return KINDS[kind](path, field, skip)


def suffix_of(path: Path) -> str | None:
    """Which of KINDS a file is, by its name."""
    name = path.name.lower()
    if path.suffix.lower() in OPENERS and path.suffix:
        name = name[: -len(path.suffix)]
    suffix = Path(name).suffix
    packed = name != path.name.lower()
    return suffix if suffix in KINDS and not (packed and suffix == ".parquet") else None


def _text(path: Path, field: str, skip: int) -> Records:
    return itertools.islice(_parted(path), skip, None)


def _parted(path: Path) -> Records:
    """Documents between form feeds or runs of two blank lines or more; no newline at their ends."""
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
        if size > LONGEST:
            raise Damaged(
                f"a document of more than {LONGEST >> 20} MB begins here",
                "part documents by a form feed or two blank lines, or use .jsonl",
                f"line {first}",
            )
    if text := "".join(held).strip("\r\n"):
        yield first, text


def _json_lines(path: Path, field: str, skip: int) -> Records:
    taken = 0
    for number, line in _lines(path):
        if not line.strip():
            continue
        taken += 1
        if taken <= skip:
            continue
        place = f"line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as problem:
            raise Damaged(
                f"not JSON ({problem.msg} at column {problem.colno})",
                "mend or delete this line",
                place,
            ) from problem
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
    import pyarrow
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(path) as opened:
            if field not in opened.schema_arrow.names:
                columns = ", ".join(map(repr, opened.schema_arrow.names))
                raise Damaged(f"no column {field!r}, only {columns}", "choose with --field")
            for group in range(opened.num_row_groups):
                rows = opened.metadata.row_group(group).num_rows
                if number + rows <= skip:
                    number += rows
                    continue
                for batch in opened.iter_batches(64, row_groups=[group], columns=[field]):
                    for value in batch.column(0):
                        number += 1
                        if number > skip:
                            yield number, value.as_py()
    except (pyarrow.ArrowException, OSError) as problem:
        raise _broken(problem, f"after row {number}") from problem


KINDS: dict[str, Callable[[Path, str, int], Records]] = {
    ".txt": _text,
    ".md": _text,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends, decoded; a mark of byte order at the start is left out."""
    broken: tuple[type[Exception], ...] = (
        OSError,
        EOFError,
        lzma.LZMAError,
        zlib.error,
        *_zstandard_error(),
    )
    number = 0
    try:
        for number, line in enumerate(OPENERS.get(path.suffix.lower(), _plain)(path), 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as problem:
                raise Damaged(
                    f"not UTF-8 (byte {line[problem.start]:#04x} at {problem.start})",
                    "convert the file, for example with iconv -t utf-8",
                    f"line {number}",
                ) from problem
            yield number, text
    except broken as problem:
        raise _broken(problem, f"after line {number}") from problem


def _broken(problem: Exception, place: str) -> Damaged:
    reason = " ".join(str(problem).split()) or type(problem).__name__
    return Damaged(f"cannot be read ({reason})", "fetch or make the file again", place)


def _zstandard_error() -> tuple[type[Exception], ...]:
    try:
        from zstandard import ZstdError
    except ImportError:
        return ()
    return (ZstdError,)


def _plain(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as opened:
        yield from opened


def _gz(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") as opened:
        yield from opened


def _xz(path: Path) -> Iterator[bytes]:
    with lzma.open(path, "rb") as opened:
        yield from opened


def _zst(path: Path) -> Iterator[bytes]:
    """By hand: the library's own reader ends a cut-off file without a word."""
    from zstandard import ZstdDecompressor

    frame = ZstdDecompressor().decompressobj()
    begun, rest = False, b""
    with open(path, "rb") as opened:
        while block := opened.read(2**18):
            while block:
                begun = True
                *lines, rest = (rest + frame.decompress(block)).split(b"\n")
                for line in lines:
                    yield line + b"\n"
                block = b""
                if frame.eof:
                    block = frame.unused_data
                    frame, begun = ZstdDecompressor().decompressobj(), False
    if begun:
        raise EOFError("the compressed data ends too early")
    if rest:
        yield rest


OPENERS: dict[str, Callable[[Path], Iterator[bytes]]] = {".gz": _gz, ".xz": _xz, ".zst": _zst}
