"""examples/ray_serve.py: two replicas behind Ray Serve, with health, draining and metrics."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.serving.raw import answer, connect, exchange, post

ROOT = Path(__file__).parents[2]
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="ray is an optional extra: pip install 'toeplix[ray]'",
    ),
]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def until(found, seconds=300.0):
    """Return what `found` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if value := found():
                return value
        except (OSError, IndexError, ValueError):
            pass
        time.sleep(0.5)
    raise AssertionError("it did not happen in time")


def test_two_replicas(checkpoint, tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    given = {"TOEPLIX_MODEL": str(checkpoint), "TOEPLIX_NAME": "tiny", "OMP_NUM_THREADS": "1"}
    with open(tmp_path / "log", "w") as log:
        running = subprocess.Popen(
            [sys.executable, "examples/ray_serve.py", "--replicas", "2", "--port", str(port)],
            cwd=ROOT,
            env=os.environ | given | {"PYTHONPATH": str(ROOT), "TOEPLIX_MAX_TOKENS": "3000"},
            stdout=log,
            stderr=log,
        )
        try:
            until(lambda: exchange(url, GET)[0] == 200)
            asked = {"model": "tiny", "prompt": "to be", "max_tokens": 3, "temperature": 0}
            texts = set()
            for _ in range(4):
                status, _, body = exchange(url, post("/v1/completions", json.dumps(asked).encode()))
                assert status == 200
                texts.add(json.loads(body)["choices"][0]["text"])
            assert len(texts) == 1  # of either replica
            status, _, body = exchange(url, GET.replace(b"health", b"metrics"))
            assert (status, b"toeplix_new_tokens_total" in body) == (200, True)
            long = asked | {"max_tokens": 1500, "temperature": 1.0, "seed": 1, "stream": True}
            with connect(url) as client:
                client.sendall(post("/v1/completions", json.dumps(long).encode()))
                time.sleep(1)
                running.send_signal(signal.SIGINT)  # deletes the application: replicas drain
                status, _, streamed = answer(client)
            assert status == 200
            assert streamed.endswith(b"data: [DONE]\n\n")
        finally:
            running.kill()
            running.wait()
