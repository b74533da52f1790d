"""A command of the program in a forked child, observed as a shell would observe it.

Starting Python and importing PyTorch takes seconds, a fork a few milliseconds. The parent imports
everything and never computes (its pool of threads would not survive the fork); a child gets its own
session, directory, standard streams and limits, calls `toeplix.cli.main`, and ends as the interpreter
does: threads joined, exit functions run, streams flushed.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import os
import resource
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from shlex import split

MODULES = split(
    """
    torch._dynamo toeplix.cli.main toeplix.training.loop toeplix.data.building toeplix.serving.server
    toeplix.serving.service toeplix.explorer.app toeplix.reports.run_page toeplix.convert.research_code
    toeplix.experiments.engine.text_probe toeplix.experiments.engine.report
    toeplix.experiments.engine.style toeplix.evaluation.harness toeplix.reports.spectrum_rows
    toeplix.reports.spectrum_page toeplix.reports.filters toeplix.profiling.plan
    toeplix.training.summary transformers.models.auto lm_eval.tasks lm_eval.evaluator datasets
    evaluate matplotlib.figure matplotlib.backends.backend_svg matplotlib.backends.backend_agg
    pyarrow.parquet zstandard scipy.signal scipy.linalg rich.progress rich.table markdown_it uvicorn
    uvicorn.loops.auto uvicorn.protocols.http.auto httpx
    """
)
MEMORY = 6 * 2**30  # bytes of address space beyond what the parent has
FILE_SIZE = 2**28
CPU_SECONDS = 120
PDEATHSIG = 1  # of <sys/prctl.h>
TEXT = 2**20  # bytes of each stream that are looked at


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command line and its surroundings."""

    argv: list[bytes]  # without the program's name
    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    stdin: bytes | None = b""  # None: closed
    closed_stdout: bool = False
    patience: float = 30.0  # seconds until it is told to end
    ending: int = signal.SIGKILL  # how it is told; after anything but SIGKILL it has `grace`
    grace: float = 15.0
    executable: bool = False  # a real start of the program instead of a fork


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    status: int | None  # None: it had to be killed
    told: bool  # it was told to end
    seconds: float
    out: bytes
    err: bytes


def prepare() -> None:
    """In the parent, once: everything that a command would import."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("MPLBACKEND", "agg")
    import torch

    torch.set_num_threads(1)
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # children do not touch what the parent made


def run(call: Call, aside: Path) -> Ended:
    """Run a command; its streams are kept in files under `aside`."""
    for name in ("out", "err", "in"):
        (aside / name).write_bytes(call.stdin or b"" if name == "in" else b"")
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(call, aside)
    told, status = False, _wait(pid, began + call.patience)
    if status is None and call.ending != signal.SIGKILL:
        told = True
        for _ in "ab":  # training ends its step after the first, and at once after the second
            if status is None:
                os.kill(pid, call.ending)
                status = _wait(pid, time.monotonic() + call.grace / 2)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # and whatever it started
    if status is None:
        os.waitpid(pid, 0)
    seconds = time.monotonic() - began
    streams = {name: _head(aside / name) for name in ("out", "err")}
    return Ended(status=status, told=told, seconds=seconds, **streams)


def _head(file: Path) -> bytes:
    with open(file, "rb") as opened:
        return opened.read(TEXT)


def _wait(pid: int, until: float) -> int | None:
    """The status as a shell has it: 128 and the signal's number for a process that died of one."""
    pause = 0.001
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if time.monotonic() > until:
            return None
        time.sleep(pause)
        pause = min(0.02, pause * 1.2)


def _child(call: Call, aside: Path) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)  # it does not outlive the campaign
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(call.cwd)
        os.environ.update(call.env)
        os.environ["PWD"] = str(call.cwd)
        limits = {resource.RLIMIT_FSIZE: FILE_SIZE, resource.RLIMIT_CPU: CPU_SECONDS}
        limits[resource.RLIMIT_AS] = _address_space() + MEMORY
        limits[resource.RLIMIT_CORE] = 0
        for kind, most in limits.items():
            resource.setrlimit(kind, (most, most))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does: an OSError instead
        _streams(call, aside)
        atexit._clear()  # those of the imported libraries cost more than a cheap command
        if call.executable:
            os.execv(sys.executable, [sys.executable, "-m", "toeplix", *call.argv])
        status = _main(call)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _main(call: Call) -> int:
    from toeplix.cli.main import main

    sys.argv = ["toeplix", *map(os.fsdecode, call.argv)]
    status = 0
    try:
        if sys.argv[1:2] in (["@explore"], ["@serve"]):
            from tests.fuzz import asking

            status = asking.main(sys.argv[1][1:], sys.argv[2])
        else:
            main()
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        status = 130
    except BaseException:
        traceback.print_exc()
        status = 1
    # what the interpreter does at its end
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except (OSError, ValueError):
        traceback.print_exc()
        status = 120
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    return status


def _streams(call: Call, aside: Path) -> None:
    flags = {0: ("in", os.O_RDONLY), 1: ("out", os.O_WRONLY), 2: ("err", os.O_WRONLY)}
    closed = {0} if call.stdin is None else set()
    closed |= {1} if call.closed_stdout else set()
    for number, (name, how) in flags.items():
        handle = os.open(aside / name, how | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    for number in closed:
        os.close(number)

    def text(number: int, mode: str, errors: str) -> io.TextIOWrapper | None:
        if number in closed:
            return None
        raw = open(number, mode, buffering=0, closefd=False)  # noqa: SIM115 - until the end
        buffered = io.BufferedReader(raw) if mode == "rb" else io.BufferedWriter(raw)
        return io.TextIOWrapper(
            buffered, "utf-8", errors, write_through=False, line_buffering=number == 2
        )

    sys.stdin = sys.__stdin__ = text(0, "rb", "strict")  # type: ignore[assignment, misc]
    sys.stdout = sys.__stdout__ = text(1, "wb", "strict")  # type: ignore[assignment, misc]
    sys.stderr = sys.__stderr__ = text(2, "wb", "backslashreplace")  # type: ignore[assignment, misc]


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGESIZE")
