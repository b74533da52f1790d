"""Worker processes: started without an interruption in between, and ended with their parent."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import wait


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
