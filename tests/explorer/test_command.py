"""`toeplix explore` as it is started and ended; what it says when it cannot."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from toeplix.cli.main import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent


def explore(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", "explore", *map(str, arguments)])
    main()


def test_started_looked_at_and_ended(trained):
    command = [
        sys.executable,
        "-m",
        "toeplix",
        "explore",
        str(trained),
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, preexec_fn=heed, cwd=ROOT) as started:
        try:
            line = started.stdout.readline()
            (url,) = re.findall(r"^(http://127\.0\.0\.1:\d+/) shows ", line)
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert "<title>toeplix explorer</title>" in answer.read().decode()
            started.send_signal(signal.SIGINT)
            _, error = started.communicate(timeout=60)
            assert (started.returncode, error) == (130, "")
        finally:
            started.kill()


def heed():
    """A shell may start its jobs with Ctrl-C ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_what_cannot_be_explored(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases = [
            ((), "there is no directory runs here"),
            (("nowhere",), "there is no"),
            (("file",), "is a file"),
            ((".", "--port", port), f"cannot listen on 127.0.0.1, port {port}"),
            ((".", "--host", "256.0.0.1"), "cannot listen on 256.0.0.1"),
            ((".", "--port", "99999"), "--port"),
        ]
        for arguments, words in cases:
            with pytest.raises(SystemExit) as leaving:
                explore(monkeypatch, *arguments)
            assert leaving.value.code == 2
            error = capsys.readouterr().err
            assert words in error
            assert error.count("\n") == 1
