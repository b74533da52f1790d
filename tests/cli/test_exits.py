"""How commands end: statuses, closed and full streams, names that are not UTF-8, the log of defects."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from toeplix import Model, build, save
from toeplix.cli import exits
from toeplix.cli.main import main
from toeplix.data import Tokenizer

pytestmark = pytest.mark.slow

COMMAND = f"{sys.executable} -m toeplix"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A line of bash whose pipes fail if one of their commands does."""
    given = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(given, capture_output=True, check=False, env=os.environ | environment)


@pytest.fixture
def state(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("TOEPLIX_DEBUG", raising=False)
    return tmp_path / "toeplix"


def ended(command) -> int:
    try:
        exits.run(command)
    except SystemExit as leaving:
        return leaving.code
    return 0


def failing(problem: BaseException):
    def command() -> None:
        raise problem

    return command


@pytest.mark.parametrize(
    "line",
    [
        f"{COMMAND} --help | true",
        f"{COMMAND} experiment run | true",  # prints by itself
        f"{COMMAND} spectrum --errata | true",  # by rich
    ],
)
def test_without_a_reader_it_ends_quietly(line):
    done = shell(line)
    assert (done.returncode, done.stderr) == (exits.NO_READER, b"")


def test_the_command_line_of_the_harness_ends_quietly_too():
    done = shell(f"{sys.executable} -m toeplix.evaluation --help | true")
    assert done.returncode in (0, exits.NO_READER)  # argparse overlooks it
    assert done.stderr == b""
    assert shell(f"{sys.executable} -m toeplix.evaluation --help <&- >&-").returncode == 0
    failed = shell(f"{sys.executable} -m toeplix.evaluation run --model nosuch --tasks arc_easy")
    assert failed.returncode in (2, 70)
    assert b"Traceback" not in failed.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed, tmp_path):
    done = shell(f"{COMMAND} --help {closed}", XDG_STATE_HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, b"")
    assert not list(tmp_path.iterdir())


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path):
    """What a library prints would be written into it."""
    program = (
        "import os; from toeplix.cli import exits; "
        f"exits.run(lambda: open({str(tmp_path / 'mine')!r}, 'w').close() or os.write(1, b'noise'))"
    )
    done = shell(f'{sys.executable} -c "{program.replace(chr(34), chr(39))}" >&-')
    assert done.returncode == 5  # bytes written, as a status
    assert (tmp_path / "mine").read_bytes() == b""


@pytest.mark.parametrize("arguments", ["--version", "--help"])
def test_a_full_disk_behind_standard_output(arguments):
    done = shell(f"{COMMAND} {arguments} > /dev/full")
    assert done.returncode == 2
    assert b"No space left" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_generated_text(unbuffered, tmp_path):
    tokenizer = Tokenizer.train(["to be or not to be"] * 20, 280)
    tokenizer.save(tmp_path)
    save(build(Model(vocab=tokenizer.vocab, context=16, dim=8, depth=1)), tmp_path)
    done = shell(f"{COMMAND} generate {tmp_path} to > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (
        *(2, b"toeplix: standard output: No space left on device\n"),
    )


def test_a_full_disk_behind_standard_error():
    assert shell(f"{COMMAND} plan nosuch 2> /dev/full").returncode == 2


UNDECODED = os.fsdecode(b"no\xffne")
EVERY_COMMAND = """import json, os, sys
from toeplix.cli.main import main
for line in json.loads(sys.argv[1]):
    sys.argv[1:] = [os.fsdecode(part.encode("utf-8", "surrogateescape")) for part in line]
    sys.stderr.flush()
    try:
        main()
        status = 0
    except SystemExit as leaving:
        status = leaving.code
    print("status", status, file=sys.stderr)
"""


def test_names_that_are_not_utf8(tmp_path):
    """Every command names what it was given, and the terminal takes it."""
    name = UNDECODED
    lines = [
        ["plan", name],
        ["spectrum", name],
        ["probe", name],
        ["page", name],
        ["page", name, "--text"],
        ["eval", name, "--tasks", name],
        ["experiment", "plot", name],
        ["experiment", "run", name],
        ["experiment", "run", "training", "--scale", name],
        ["import", name, f"{name}/there"],
        ["generate", name, name],
        ["bench", "ops", "--out", f"{name}/", "--seconds", name],
        ["train", "--out", name, name],
        [name],
    ]
    given = [sys.executable, "-c", EVERY_COMMAND, json.dumps(lines)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(given, capture_output=True, check=False, cwd=tmp_path, env=environment)
    said = done.stderr.decode("ascii").splitlines()
    assert said[1::2] == ["status 2"] * len(lines), said
    assert all(line.startswith("toeplix: ") for line in said[::2])
    assert not list(tmp_path.iterdir())


NONSENSE = [
    ("plan laptop --hardware h100 --efficiency", ["nan", "inf", "-1", "0"]),
    ("plan laptop --hardware h100 --devices", ["nan", "-1", str(10**30)]),
    ("plan laptop --hardware h100 --batch", ["inf", "0", str(10**30)]),
    ("bench ops --seconds", ["nan", "inf", "-1", "1e400"]),
    ("bench ops --threads", ["nan", "0", str(10**30)]),
    ("bench data --megabytes", ["nan", "inf", "-inf", "1e999"]),
    ("bench data --vocab", [str(2**62), "nan"]),
    ("bench prefill", [str(10**30), str(2**63), "nan"]),
    ("experiment run window --jobs", ["0", "nan", str(10**30)]),
    ("probe some --lr", ["nan", "inf"]),
    ("probe some --seed", [str(2**64), "-1", "nan"]),
    ("eval null --limit", ["0", "nan", str(10**30)]),
    ("eval null --tasks arc_easy --batch", ["0", "nan", str(10**30)]),
    ("generate some --temperature", ["nan", "inf"]),
    ("demo --steps", ["1", "nan", str(10**30)]),
]


@pytest.mark.parametrize(("line", "values"), NONSENSE)
def test_numbers_that_mean_nothing(line, values, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for value in values:
        monkeypatch.setattr(sys, "argv", ["toeplix", *line.split(), value])
        assert ended(main) == 2, value
        said = capsys.readouterr().err
        assert said.startswith("toeplix: ")
        assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_locale_of_a_daemon(tmp_path):
    done = shell(
        f"cd {tmp_path} && {COMMAND} experiment plot $'no\\xffne'", LC_ALL="C", PYTHONUTF8="0"
    )
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


def test_foreseen_is_one_line(state, capsys):
    assert ended(failing(ValueError("a\nb \x1b[31m \udcff"))) == 2
    assert capsys.readouterr().err == "toeplix: a b \\x1b[31m \\udcff\n"
    assert ended(failing(OSError(28, "No space left on device"))) == 2
    assert capsys.readouterr().err == "toeplix: No space left on device\n"
    assert ended(failing(FileNotFoundError(2, "No such file or directory", "nope.txt"))) == 2
    assert capsys.readouterr().err == "toeplix: nope.txt: No such file or directory\n"
    assert ended(failing(typer.BadParameter("bad"))) == 2
    assert not state.exists()


@pytest.mark.parametrize(
    "problem",
    [KeyError("x"), RecursionError("deep"), OverflowError("large"), RuntimeError(), TypeError("t")],
)
def test_unforeseen_is_one_line_and_a_log(problem, state, capsys):
    assert ended(failing(problem)) == 70
    said = capsys.readouterr().err
    (log,) = state.iterdir()
    assert said.startswith(f"toeplix: unforeseen {type(problem).__name__}: ")
    assert str(log) in said
    assert said.count("\n") == 1
    assert "in command" in log.read_text()  # a line of the traceback
    assert log.stat().st_mode & 0o077 == 0


def test_the_screen_instead_of_a_log(state, capsys, monkeypatch):
    monkeypatch.setenv("TOEPLIX_DEBUG", "1")
    assert ended(failing(KeyError("x"))) == 70
    assert ended(failing(ValueError("y"))) == 2
    assert capsys.readouterr().err.count("Traceback") == 2
    assert not state.exists()


def test_logs_do_not_pile_up(state, monkeypatch):
    monkeypatch.setattr(exits, "KEPT_LOGS", 3)
    (state / "other.log").parent.mkdir()
    (state / "other.log").touch()
    for _ in range(5):
        exits.write_log(KeyError("x"))
    assert len(list(state.glob("toeplix-error-*.log"))) == 3
    assert (state / "other.log").exists()


def test_a_state_directory_that_cannot_be_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(exits.tempfile, "tempdir", str(tmp_path))
    assert ended(failing(KeyError("x"))) == 70
    assert str(tmp_path / "toeplix-error-") in capsys.readouterr().err


def test_no_log_in_the_working_directory(tmp_path, monkeypatch, capsys):
    """Which is where temporary files go when there is no other place."""
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setattr(exits.tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert ended(failing(KeyError("x"))) == 70
    assert "no log could be written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_log_that_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(exits.tempfile, "tempdir", str(tmp_path))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.open", full)
    assert exits.write_log(KeyError("x")) is None
    monkeypatch.undo()
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    "problem",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    ],
)
def test_too_little_memory_is_said(problem, capsys):
    assert ended(failing(problem)) == 2
    assert "not enough memory: choose smaller sizes" in capsys.readouterr().err


def test_a_missing_package_comes_with_its_extra(capsys):
    assert ended(failing(ModuleNotFoundError("No module named 'scipy'", name="scipy"))) == 2
    assert "pip install 'toeplix[experiments]'" in capsys.readouterr().err
    assert ended(failing(ModuleNotFoundError("none", name="toeplix.nothing"))) == 70


def test_interrupts_and_files_that_end(state):
    assert ended(failing(KeyboardInterrupt())) == 130
    assert ended(failing(typer.Abort())) == 130
    abort = typer.Abort()
    abort.__cause__ = EOFError("of a pickle")
    assert ended(failing(abort)) == 70


def test_statuses_pass_through(monkeypatch):
    assert ended(failing(SystemExit(3))) == 3
    assert ended(failing(SystemExit())) == 0
    monkeypatch.setattr(sys, "argv", ["toeplix", "--version"])
    main()  # returns where all is well


SLOW_IMPORT = """import sys, time
import toeplix.__main__

slow = sys.argv.pop(1)

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == slow:
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
toeplix.__main__.main()
"""


@pytest.mark.parametrize(
    ("slow", "status"), [("toeplix.cli.main", -signal.SIGINT), ("torch", exits.INTERRUPTED)]
)
def test_an_interrupt_while_modules_are_imported(slow, status):
    """Ended by the signal, or by the exit status that a shell makes of it: without a word."""
    arguments = [sys.executable, "-c", SLOW_IMPORT, slow, "plan", "laptop"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == status
        assert process.stderr.read() == b""
