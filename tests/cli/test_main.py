"""The command line as a user meets it: help that teaches, one line and status 2 for bad input."""

import subprocess
import sys

import pytest


def toeplix(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toeplix", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_and_version():
    shown = toeplix("bench", "ops", "--help")
    assert shown.returncode == 0
    assert "--tune" in shown.stdout
    assert toeplix("--version").stdout.startswith("toeplix 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "ops", "--quick", "--full"], "choose one of --quick and --full"),
        (["bench", "ops", "--seconds", "soon"], "--seconds"),
        (["bench", "ops", "--threads", "0"], "--threads"),
        (["bench", "nothing"], "No such command 'nothing'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, words):
    done = toeplix(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
