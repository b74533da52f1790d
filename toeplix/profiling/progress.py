"""Progress of long measurements: a bar on a terminal, lines on standard error elsewhere."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def tracked(
    items: Sequence[T], what: str, console: Console, name: Callable[[T], Any] = str
) -> Iterator[T]:
    """Yield the items, and show how many of them are done; `name` is how a line spells an item."""
    if console.is_terminal:
        yield from track(items, what, console=console, transient=True)
        return
    for number, item in enumerate(items, 1):
        announce(f"{what}: {number} of {len(items)}: {name(item)}")
        yield item


def announce(what: str) -> None:
    """Say on standard error what is measured now; standard output has the results only."""
    print(what, file=sys.stderr, flush=True)
