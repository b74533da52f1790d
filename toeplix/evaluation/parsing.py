"""Reading published benchmark files; errors name the file, the line and the field."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from toeplix.files import open_input, parse_json

Rows = list[dict[str, Any]]


class Found(NamedTuple):
    """Rows by split, where they came from, and what is particular about them."""

    splits: dict[str, Rows]
    file: Path
    note: str = ""


def find(root: Path, *patterns: str) -> Path:
    """The file that fits the first pattern that any file fits: the least deep, then by name."""
    for pattern in patterns:
        fitting = sorted(root.rglob(pattern), key=lambda file: (len(file.parts), file))
        if fitting:
            return fitting[0]
    raise FileNotFoundError(f"no {' or '.join(patterns)} under {root}")


@contextlib.contextmanager
def at(place: object) -> Iterator[None]:
    """Tell where in a file something is not in its published format: a line, or a question."""
    try:
        yield
    except KeyError as problem:
        raise ValueError(f"{place}: field {problem} is missing") from problem
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(f"{place}: {problem}") from problem


def json_lines(
    file: Path, convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None, **kinds: type
) -> Rows:
    """An object a line, in which these fields are of these kinds; `convert` may complain further."""
    rows = []
    with open_input(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            with at(f"{file}, line {number}"):
                row = parse_json(line)
                for name, kind in kinds.items():
                    if not isinstance(value := row.get(name), kind):
                        raise ValueError(f"field {name} is {value!r:.60}, no {kind.__name__}")
                rows.append(row if convert is None else convert(row))
    return rows


def one_of(name: str, value: Any, known: Collection[Any]) -> Any:
    """A field that says which choice is right."""
    if value not in known:
        raise ValueError(
            f"field {name} is {value!r:.60}, none of {', '.join(map(str, known)):.200}"
        )
    return value


def texts(name: str, values: Any) -> list[str]:
    """A field that lists texts."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"field {name} is {values!r:.60}, no list of texts")
    return values
