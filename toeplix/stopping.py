"""Requests to stop a run: Ctrl-C, and the signal that schedulers send."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Stopped(KeyboardInterrupt):
    """Somebody asked to stop; what was done is saved."""


@contextlib.contextmanager
def requests() -> Iterator[list[int]]:
    """Signals are collected here instead of ending the process; the second one ends it."""
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
