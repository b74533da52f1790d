"""Kinds of cases by name. A kind is a function of time, seed and place, and returns counts by outcome.

    run(seconds, seed, out) -> Counter

`files` and `commands` are campaigns of forked commands. `http` and `operator` have modules of their own,
each with such a function; `http` also gets the address of a server of a tiny model, a real process.
"""

import collections
import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

Counts = collections.Counter[str]
Kind = Callable[[float, str, Path], Counts]
FORKED = (
    "files",
    "commands",
)  # destructive: only where nothing but a scratch directory is writable
# after the forked ones: they compute in this process, and its threads would not survive a fork
OTHERS = {"http": "http_cases", "operator": "operator_campaign"}
SHARES = {"files": 0.5, "commands": 0.3, "http": 0.1, "operator": 0.1}  # of the time


def other(name: str, root: Path) -> Kind | None:
    """The function of a kind with a module of its own; None where that is not installed."""
    try:
        module = importlib.import_module(f"tests.fuzz.{OTHERS[name]}")
    except ModuleNotFoundError:
        return None
    if name != "http":
        return module.run

    def run(seconds: float, seed: str, out: Path) -> Counts:
        with served(root / "chat") as address:
            return module.run(seconds, seed, out, address)

    return run


@contextlib.contextmanager
def served(model: Path) -> Iterator[str]:
    """A server as a process of its own, and its address; it has to end well."""
    command = [sys.executable, "-m", "toeplix", "serve", str(model), "--port", "0"]
    command += ["--name", "tiny", "--threads", "1", "--drain", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1].removesuffix("/v1")
            process.send_signal(signal.SIGTERM)
            if process.wait(60) != 0:
                raise RuntimeError(f"the server ended with {process.returncode}")
        finally:
            process.kill()
