"""`toeplix serve` as a process: curl, a key, SIGTERM in the middle of answers; and what it refuses."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.serving.raw import answer, connect, exchange, post
from toeplix.cli.main import main
from toeplix.config import Model
from toeplix.profiling.bench import serving

pytestmark = pytest.mark.slow

KEY = "Authorization: Bearer sesame"


@pytest.fixture
def process(checkpoint):
    command = [
        sys.executable,
        "-m",
        "toeplix",
        "serve",
        str(checkpoint),
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    process = subprocess.Popen(
        [*command, "--name", "tiny", "--max-tokens", "3000", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TOEPLIX_API_KEY": "sesame", "OMP_NUM_THREADS": "1"},
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("serving tiny at http://127.0.0.1:"), process.stderr.read()
        yield process, line.split()[-1].removesuffix("/v1")
    finally:
        process.kill()
        process.communicate()


def curl(url, body):
    """By curl where there is one, else the same bytes over a socket."""
    text = json.dumps(body)
    if shutil.which("curl") is None:
        return exchange(url, post("/v1/completions", text.encode(), KEY))[2]
    command = ["curl", "--silent", "--fail-with-body", f"{url}/v1/completions", "-H", KEY]
    command += ["-H", "Content-Type: application/json", "-d", text]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def both_run(url, seconds=60.0):
    """Whether two rows are being decoded, before long."""
    until = time.monotonic() + seconds
    asked = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\n{KEY}\r\nConnection: close\r\n\r\n"
    while time.monotonic() < until:
        if b"toeplix_sequences_running 2.0" in exchange(url, asked.encode())[2]:
            return True
    return False


def refuses(url, seconds=30.0):
    """Whether new connections are refused, or reset by the closing socket, before long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            exchange(url, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        except (OSError, IndexError):
            return True
    return False


def test_answers_are_finished_after_sigterm(process):
    running, url = process
    asked = {"model": "tiny", "prompt": "to be", "max_tokens": 3, "temperature": 0}
    assert json.loads(curl(url, asked))["usage"]["completion_tokens"] == 3
    long = asked | {"max_tokens": 1500, "stream": True, "seed": 1, "temperature": 1.0}
    with connect(url) as first, connect(url) as second:
        first.sendall(post("/v1/completions", json.dumps(long).encode(), KEY))
        whole = json.dumps(long | {"stream": False}).encode()
        second.sendall(post("/v1/completions", whole, KEY))
        assert both_run(url)
        running.send_signal(signal.SIGTERM)
        assert refuses(url)
        status, _, streamed = answer(first)
        assert status == 200
        assert streamed.endswith(b"data: [DONE]\n\n")
        status, _, body = answer(second)
        assert status == 200
        pieces = [
            json.loads(line[6:])["choices"][0]["text"]
            for line in streamed.decode().splitlines()
            if line.startswith("data: {")
        ]
        assert "".join(pieces) == json.loads(body)["choices"][0]["text"]
    assert running.wait(60) == 0
    assert running.stderr.read() == ""


def refused(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", "serve", *map(str, arguments)])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_what_the_command_refuses(checkpoint, tmp_path, monkeypatch, capsys, server):
    monkeypatch.delenv("TOEPLIX_API_KEY", raising=False)
    said = refused(monkeypatch, capsys, checkpoint, "--host", "0.0.0.0")
    assert "can be reached from other machines: set a key first" in said
    assert "no checkpoint" in refused(monkeypatch, capsys, tmp_path, "--port", 0)
    empty = tmp_path / "key"
    empty.write_text("\n")
    assert "holds no key" in refused(monkeypatch, capsys, checkpoint, "--key-file", empty)
    assert "there is no such file" in refused(
        monkeypatch, capsys, checkpoint, "--key-file", tmp_path / "x"
    )
    port = server.url.rpartition(":")[2]
    monkeypatch.setattr("sys.argv", ["toeplix", "serve", str(checkpoint), "--port", port])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    assert f"127.0.0.1:{port} cannot be had" in capsys.readouterr().err


def test_a_short_siege(capsys):
    """No answer lost, none mixed up; the figures are those of a moment and are not judged."""
    from rich.console import Console

    model = Model(dim=16, depth=2, context=32, vocab=270)
    load = {"clients": [1, 4], "streams": 8, "seconds": 2.0, "new": 12, "rounds": 1}
    found = serving.run(Console(), model=model, **load)
    assert found["endurance"]["answers"] > 0
    assert found["endurance"]["lost"] == found["endurance"]["wrong"] == 0
    assert [row["clients"] for row in found["throughput"]] == [1, 4]
    assert "8 streams for 2 s" in capsys.readouterr().out
