"""Requests to stop a run: Ctrl-C, and the signal that schedulers send; the end of a parent."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import wait
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


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: for what must not be left half-made."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
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
    """In a process that works for another: it leaves Ctrl-C to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
