"""Signals: stopping a run on SIGINT (Ctrl-C) or SIGTERM."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Stopped(KeyboardInterrupt):
    """The run was asked to stop and has saved a checkpoint."""


@contextlib.contextmanager
def requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of ending the process; a second signal ends it."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def hear(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {each: signal.signal(each, hear) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
