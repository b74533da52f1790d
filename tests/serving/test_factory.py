"""The application as a factory: configuration from the environment, under uvicorn, with draining."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from tests.serving.raw import answer, connect, exchange, post
from toeplix import devices
from toeplix.mixers.quantized import quantization_of
from toeplix.serving.factory import create, settings
from toeplix.serving.limits import Limits

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def test_every_limit_has_a_variable():
    found = settings({"TOEPLIX_MODEL": "runs/mine"})
    assert (str(found.model), found.name, found.key, found.threads) == (
        "runs/mine",
        None,
        None,
        None,
    )
    assert found.limits == Limits()
    given = {"TOEPLIX_MAX_BATCH": "3", "TOEPLIX_DRAIN": "1.5", "TOEPLIX_THREADS": "2"}
    found = settings({"TOEPLIX_MODEL": "m", "TOEPLIX_API_KEY": " sesame\n", **given})
    assert found.limits == Limits(max_batch=3, drain=1.5)
    assert (found.key, found.threads) == ("sesame", 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "TOEPLIX_MODEL is not set: give the directory"),
        ({"TOEPLIX_MODEL": ""}, "TOEPLIX_MODEL is not set"),
        ({"TOEPLIX_MODEL": "m", "TOEPLIX_MAX_BATCH": "many"}, "TOEPLIX_MAX_BATCH=many must be an"),
        ({"TOEPLIX_MODEL": "m", "TOEPLIX_TIMEOUT": "x"}, "TOEPLIX_TIMEOUT=x must be a number"),
        ({"TOEPLIX_MODEL": "m", "TOEPLIX_TIMEOUT": "nan"}, "timeout=nan must be in"),
        ({"TOEPLIX_MODEL": "m", "TOEPLIX_THREADS": "0"}, "TOEPLIX_THREADS=0 must be in 1 .. 1024"),
        ({"TOEPLIX_MODEL": "m", "TOEPLIX_API_KEY": "a b"}, "TOEPLIX_API_KEY holds no key"),
        ({"TOEPLIX_MODEL": "m", "TOEPLIX_NAME": "\n"}, "TOEPLIX_NAME .*printable"),
        (
            {"TOEPLIX_MODEL": "m", "TOEPLIX_DEVICE": "banana"},
            "^TOEPLIX_DEVICE: device 'banana' is unknown: auto, cpu",
        ),
        ({"TOEPLIX_MODEL": "m", "TOEPLIX_DEVICE": "meta"}, "TOEPLIX_DEVICE: .*computes no values"),
        (
            {"TOEPLIX_MODEL": "m", "TOEPLIX_DTYPE": "int8"},
            "^TOEPLIX_DTYPE: dtype 'int8' is unknown: auto, float32",
        ),
        (
            {"TOEPLIX_MODEL": "m", "TOEPLIX_QUANTIZE": "int3"},
            "^TOEPLIX_QUANTIZE: quantization 'int3' is not known: one of int8",
        ),
    ],
)
def test_a_mistake_is_named(given, words):
    with pytest.raises(ValueError, match=words):
        settings(given)


def test_a_device_is_looked_for_where_the_model_runs(checkpoint):
    """Not where the configuration is read, which with Ray may be another machine."""
    found = settings({"TOEPLIX_MODEL": str(checkpoint), "TOEPLIX_DEVICE": "cuda:99"})
    with pytest.raises(ValueError, match=r"^TOEPLIX_DEVICE: device 'cuda:99' is not there"):
        create(found)


@pytest.mark.parametrize("scheme", [None, "int8"])
def test_device_dtype_and_quantization_are_those_of_the_environment(checkpoint, scheme, capsys):
    given = {"TOEPLIX_MODEL": str(checkpoint), "TOEPLIX_DEVICE": "cpu", "TOEPLIX_DTYPE": "bfloat16"}
    quantize = {} if scheme is None else {"TOEPLIX_QUANTIZE": scheme}
    service = create(settings(given | quantize)).state.service
    service.close()
    assert {weight.dtype for weight in service.model.parameters()} == {torch.bfloat16}
    assert quantization_of(service.model) == scheme
    assert capsys.readouterr().err == ""


def test_an_automatic_device_is_told(checkpoint, monkeypatch, capsys):
    monkeypatch.setattr(devices, "_count", lambda kind: 0)
    create(settings({"TOEPLIX_MODEL": str(checkpoint)})).state.service.close()
    expected = "toeplix: using cpu: no CUDA or MPS device was found; see TOEPLIX_DEVICE\n"
    assert capsys.readouterr().err == expected


def start(**variables):
    command = [sys.executable, "-m", "uvicorn", "--factory", "toeplix.serving.factory:application"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    return subprocess.Popen(
        [*command, "--port", "0"], stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.slow
def test_uvicorn_starts_it_and_drains_it(checkpoint):
    """One request at a time shows that the limits are those of the environment."""
    server = start(TOEPLIX_MODEL=str(checkpoint), TOEPLIX_NAME="tiny", TOEPLIX_MAX_TOKENS="3000")
    try:
        line = next(line for line in server.stderr if "running on" in line)
        url = line.split("running on ")[1].split()[0]
        assert exchange(url, GET)[0] == 200
        refused = exchange(url, GET.replace(b"localhost", b"example.org"))
        assert refused[0] == 403
        asked = {"model": "tiny", "prompt": "to be", "max_tokens": 3001}
        assert exchange(url, post("/v1/completions", json.dumps(asked).encode()))[0] == 400
        asked |= {"max_tokens": 1500, "temperature": 1.0, "seed": 1, "stream": True}
        with connect(url) as client, connect(url) as other:
            client.sendall(post("/v1/completions", json.dumps(asked).encode()))
            while (
                b"toeplix_sequences_running 1.0"
                not in exchange(url, GET.replace(b"health", b"metrics"))[2]
            ):
                time.sleep(0.05)
            # a request that is on its way when the signal comes, and ends after it
            body = json.dumps({**asked, "stream": False, "max_tokens": 1})
            head = post("/v1/completions", body.encode())
            other.sendall(head[:-1])
            server.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            other.sendall(head[-1:])
            assert answer(other)[0] == 503
            status, _, streamed = answer(client)
        assert status == 200
        assert streamed.endswith(b"data: [DONE]\n\n")
        assert server.wait(60) in (0, -signal.SIGTERM)  # uvicorn ends by the signal that it got
        assert "Traceback" not in server.stderr.read()
    finally:
        server.kill()
        server.communicate()


@pytest.mark.slow
def test_a_mistake_ends_the_process_with_one_line(tmp_path):
    server = start(TOEPLIX_MODEL=str(tmp_path / "nothing"))
    _, said = server.communicate(timeout=120)
    assert server.returncode == 2
    assert [line for line in said.splitlines() if line.startswith("toeplix: ")]
    assert "Traceback" not in said
