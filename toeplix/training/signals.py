"""Signals: stopping a run on SIGINT (Ctrl-C) or SIGTERM, and ending workers with their parent."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import wait
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


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Postpone Ctrl-C to the end of the block, for work that must not be interrupted halfway."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread handles signals
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


def follow_parent() -> None:
    """In a worker process: ignore Ctrl-C, which the parent handles, and exit when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
