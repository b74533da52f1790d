"""Files that are complete or absent, and reading files that may not be what they should be.

Every reader goes through `reading` (or `read_json`, which does): a file that is damaged, of another
kind or out of bounds becomes one error that names the file, the field and what to do about it.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

MAX_JSON_BYTES = 2**28  # a tokenizer of a million tokens is a tenth of this

Value = TypeVar("Value")


class DamagedFile(ValueError):
    """A file is not what it should be. The message names the file, the field and the remedy."""


@contextmanager
def reading(file: object, remedy: str = "") -> Iterator[None]:
    """Turn what goes wrong while `file` is interpreted into a `DamagedFile`; a missing file stays one.

    >>> with reading("run.json", "train again"):
    ...     {}["steps"]
    Traceback (most recent call last):
    toeplix.files.DamagedFile: run.json is damaged: field 'steps' is missing; train again
    """
    try:
        yield
    except DamagedFile:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        EOFError,
    ) as problem:
        ending = f"; {remedy}" if remedy else ""
        raise DamagedFile(f"{printable(file)} is damaged: {_why(problem)}{ending}") from problem


def read_json(
    file: Path, remedy: str = "", kind: type[Any] = dict, limit: int = MAX_JSON_BYTES
) -> Any:
    """The value in a JSON file, which must be of this kind: a record unless told otherwise."""
    with reading(file, remedy):
        size = file.stat().st_size
        if size > limit:
            raise ValueError(f"it has {size:,} bytes, of which at most {limit:,} are read")
        return parse_json(file.read_bytes(), kind)


def parse_json(text: str | bytes, kind: type[Any] = dict) -> Any:
    """`json.loads` that raises nothing but ValueError and TypeError, however deep the nesting."""
    try:
        found = json.loads(text)
    except RecursionError as problem:
        raise ValueError("not JSON that can be read: nested too deeply") from problem
    except ValueError as problem:
        raise ValueError(f"not JSON ({problem})") from problem
    if not isinstance(found, kind):
        raise TypeError(f"a JSON {_named(kind)} was expected, not {printable(found)[:40]}")
    return found


def field(record: dict[str, Any], name: str, kind: type[Value], least: int | None = None) -> Value:
    """A field of a record that was read, of the kind that it must have; never a bool for an int.

    >>> field({"steps": 3}, "steps", int, least=1)
    3
    """
    value = record[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(
            f"field {name!r} must be of kind {_named(kind)}, not {printable(value)[:40]}"
        )
    if least is not None and value < least:  # type: ignore[operator]
        raise ValueError(f"field {name!r} is {value}, which is less than {least}")
    return value


def printable(value: object) -> str:
    """A text that any terminal takes: names of files need not be UTF-8, nor values be shallow."""
    try:
        text = str(value) if isinstance(value, str | Path) else repr(value)
    except RecursionError:
        return f"a deeply nested {_named(type(value))}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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


def _why(problem: Exception) -> str:
    if isinstance(problem, KeyError):
        return f"field {problem.args[0]!r} is missing" if problem.args else "a field is missing"
    if isinstance(problem, RecursionError):
        return "nested too deeply"
    return " ".join(printable(str(problem)).split()) or type(problem).__name__


def _named(kind: type[Any]) -> str:
    return {"dict": "object", "list": "array", "str": "string"}.get(kind.__name__, kind.__name__)
