"""Exit statuses of commands, and the one line on standard error that describes a failure.

    0    success
    1    `toeplix doctor`: a check failed
    2    expected errors: bad arguments, damaged files, missing packages, full disks, too little memory
    70   unexpected errors, defects of this program; the line names a log file with the traceback
    130  interrupted (Ctrl-C)
    141  the reader of standard output has closed it (`toeplix ... | head -1`); nothing is printed

TOEPLIX_DEBUG=1 prints the traceback of 2 and 70. Nothing here may fail itself, whatever is closed, full
or read-only. A stream that is closed (`>&-`) is opened as /dev/null: otherwise the next file that is
opened would get its number, and output would be written into that file.
"""

import contextlib
import datetime
import io
import os
import platform
import select
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

CHECK_FAILED, BAD_INPUT, UNFORESEEN, INTERRUPTED, NO_READER = 1, 2, 70, 130, 141
MAX_LINE = 1000  # characters of a message
KEPT_LOGS = 50
LOG_PREFIX = "error-"

EXTRAS = {  # the extra that brings a package; "train" brings all others
    "fastapi": "serve",
    "jinja2": "serve",
    "lm_eval": "eval",
    "matplotlib": "figures",
    "prometheus_client": "serve",
    "scipy": "experiments",
    "transformers": "hf",
    "uvicorn": "serve",
}
# the base class of all errors about arguments, whose module depends on the version of typer
Complaint: type[Exception] = typer.BadParameter.__mro__[2]
# parts of the messages of PyTorch's RuntimeError for sizes that exceed the memory
TOO_LARGE = ("DefaultCPUAllocator", "out of memory", "Storage size calculation overflowed")


def run(command: Callable[[], object]) -> None:
    """Run a command, and exit with its status unless that is 0."""
    open_streams()
    before = _identity()
    try:
        found = command()
        status = found if isinstance(found, int) else 0  # of typer.Exit, which becomes a result
    except KeyboardInterrupt:
        status = INTERRUPTED
    except SystemExit as leaving:
        status = _left(leaving, before)
    except BaseException as problem:
        status = ended_by(problem)
    if status := _flushed(status):
        sys.exit(status)


def open_streams() -> None:
    """Make standard streams usable: open, and able to print names that are not UTF-8."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            _to_nowhere(number)
        if number and getattr(sys, name) is None:  # a command that needs its input says so itself
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def ended_by(problem: BaseException) -> int:
    """Print an exception as one line, and return its exit status."""
    if isinstance(problem, typer.Abort):
        if not isinstance(problem.__cause__, EOFError):
            return INTERRUPTED
        problem = problem.__cause__  # typer takes any end of a file for the user's
    if isinstance(problem, BrokenPipeError) and _reader_is_gone():
        return NO_READER
    status, words = explained(problem)
    if os.environ.get("TOEPLIX_DEBUG"):
        _say(_traceback(problem).rstrip())
    elif status == UNFORESEEN:
        log = write_log(problem)
        where = f"the traceback is in {log}" if log else "no log could be written"
        _say(f"toeplix: {one_line(words)}; {where} (TOEPLIX_DEBUG=1 shows it here)")
    elif words:  # empty when help was shown instead
        _say(f"toeplix: {one_line(words)}")
    return status


def explained(problem: BaseException) -> tuple[int, str]:
    """Return the exit status and the message of an exception."""
    if isinstance(problem, Complaint):
        words: str = problem.format_message()  # type: ignore[attr-defined]
        return BAD_INPUT, f"{words.rstrip('.')}; {hint}" if (hint := _see(problem)) else words
    if isinstance(problem, ModuleNotFoundError):
        missing = (problem.name or "").partition(".")[0]
        if missing != "toeplix":
            hint = f"pip install 'toeplix[{EXTRAS.get(missing, 'train')}]'"
            return BAD_INPUT, f"{problem}: {hint}"
    if isinstance(problem, ValueError | OSError):
        return BAD_INPUT, _words(problem)
    if isinstance(problem, MemoryError) or (
        isinstance(problem, RuntimeError) and any(word in str(problem) for word in TOO_LARGE)
    ):
        return BAD_INPUT, f"not enough memory: choose smaller sizes ({_words(problem)})"
    return UNFORESEEN, f"unforeseen {type(problem).__name__}: {_words(problem)}"


def _see(problem: Exception) -> str:
    """Return where to read on if a command was given no arguments, or lacks a positional one."""
    context = getattr(problem, "ctx", None)
    command = getattr(context, "command", None)
    if context is None or command is None or getattr(command, "commands", None):
        return ""  # a group without a subcommand has shown its help
    sources = (context.get_parameter_source(each.name) for each in command.params)
    given = any(getattr(source, "name", "") == "COMMANDLINE" for source in sources)
    missing = type(problem).__name__ == "MissingParameter"  # which typer does not export
    return f"see {context.command_path} --help" if missing or not given else ""


def one_line(text: str) -> str:
    """Return a text as one line without control characters."""
    line = " ".join(text.split())
    line = line if len(line) <= MAX_LINE else line[: MAX_LINE - 4] + " ..."
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in line
    )


def write_log(problem: BaseException) -> Path | None:
    """Write the traceback to a file in the user's state directory, or else to a temporary file."""
    with contextlib.suppress(Exception):
        now = datetime.datetime.now().astimezone()
        from toeplix import __version__

        lines = [
            f"toeplix {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"{now.isoformat(timespec='seconds')}: {sys.argv!r}",
            _traceback(problem),
        ]
        body = "\n".join(lines).encode("utf-8", "backslashreplace")
        for folder in _log_folders():
            with contextlib.suppress(OSError):
                return _written(folder, f"{LOG_PREFIX}{now:%Y%m%d-%H%M%S}-", body)
    return None


def _log_folders() -> Iterator[Path]:
    """Return directories for logs, never the working directory, which `tempfile` falls back to."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if os.path.isabs(state):
        yield Path(state) / "toeplix"
    temporary = Path(tempfile.gettempdir())
    if temporary.resolve() != Path.cwd().resolve():
        yield temporary


def _written(folder: Path, prefix: str, body: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"toeplix-{prefix}", suffix=".log", dir=folder)
    try:
        with open(handle, "wb") as opened:
            opened.write(body)
    except OSError:
        os.unlink(name)
        raise
    mine = sorted(folder.glob(f"toeplix-{LOG_PREFIX}*.log"))
    for old in mine[:-KEPT_LOGS]:
        with contextlib.suppress(OSError):
            old.unlink()
    return Path(name)


def _traceback(problem: BaseException) -> str:
    return "".join(traceback.format_exception(problem))


def _words(problem: BaseException) -> str:
    try:
        if isinstance(problem, OSError) and problem.errno and problem.strerror:
            # of two files the second is the target; the first may be a temporary one
            name = problem.filename if problem.filename2 is None else problem.filename2
            return problem.strerror if name is None else f"{name}: {problem.strerror}"
        # PyTorch appends the stack of its own language
        text = str(problem).partition("\nException raised from")[0]
        return text or type(problem).__name__
    except Exception:  # of an exception that cannot even be printed
        return type(problem).__name__


def _left(leaving: SystemExit, before: tuple[int, int] | None) -> int:
    """Return the exit status of `sys.exit`, which typer and rich also call if the pipe is closed."""
    chain: BaseException | None = leaving
    while chain is not None:
        closed = isinstance(chain, BrokenPipeError)
        if closed and (_reader_is_gone() or _identity() != before):  # rich puts /dev/null there
            return NO_READER
        chain = chain.__cause__ or chain.__context__
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    _say(str(leaving.code))
    return 1


def _reader_is_gone() -> bool:
    """Return whether standard output or standard error is a pipe that its reader has closed."""
    for number in (1, 2):
        with contextlib.suppress(OSError, AttributeError):
            poll = select.poll()
            poll.register(number, 0)
            if any(event & select.POLLERR for _, event in poll.poll(0)):
                return True
    return False


def _identity() -> tuple[int, int] | None:
    try:
        found = os.fstat(1)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _say(line: str) -> None:
    with contextlib.suppress(Exception):
        print(line, file=sys.stderr, flush=True)


def _flushed(status: int) -> int:
    """Flush standard output while errors can still be reported, and return the exit status."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except BrokenPipeError:
            _to_nowhere(number)
            status = status or NO_READER
        except (OSError, ValueError) as problem:
            _to_nowhere(number)
            if number == 1 and status in (0, CHECK_FAILED):  # else a line has been printed
                _say(f"toeplix: standard output: {one_line(_words(problem))}")
            status = status or BAD_INPUT
        if number == 1 and status == NO_READER:
            _to_nowhere(number)  # what is left in buffers has no reader either
    return status


def _to_nowhere(number: int) -> None:
    with contextlib.suppress(OSError):
        opened = os.open(os.devnull, os.O_RDWR)
        if opened == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(opened, number)
            os.close(opened)
