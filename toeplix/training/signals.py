"""Signals: stopping a run on SIGINT (Ctrl-C) or SIGTERM.

The first signal asks the run to stop after the current step and to save a checkpoint. A second one ends
it at once, without saving.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

# shells, torchrun and other wrappers may pass a signal on that the process has got already
REPEATED_WITHIN = 0.5  # seconds
STDERR = 2
NOTICES = {
    signal.SIGINT: "stopping after this step and saving; Ctrl-C again to quit without saving",
    signal.SIGTERM: "stopping after this step and saving; a second SIGTERM to quit without saving",
}


class Stopped(KeyboardInterrupt):
    """The run was asked to stop and has saved a checkpoint."""


class Abandoned(KeyboardInterrupt):
    """The run was asked a second time to stop, and has not saved a checkpoint."""


@contextlib.contextmanager
def requests(*, tell: bool = True) -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of ending the process; a second signal ends it.

    The first signal is acknowledged on standard error, unless `tell` is False.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    heard_at = 0.0

    def hear(number: int, frame: Any) -> None:
        nonlocal heard_at
        if not asked:
            heard_at = time.monotonic()
            asked.append(number)
            if tell:
                _acknowledge(number)
        elif time.monotonic() - heard_at > REPEATED_WITHIN:
            raise Abandoned

    before = {each: signal.signal(each, hear) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _acknowledge(number: int) -> None:
    """Write to the file descriptor: the signal may have interrupted a write to `sys.stderr`."""
    with contextlib.suppress(OSError):
        start = "\n" if os.isatty(STDERR) else ""  # a progress bar may stand on this line
        os.write(STDERR, f"{start}toeplix: {NOTICES[signal.Signals(number)]}\n".encode())
