"""What goes wrong: bad requests, large and slow ones, clients that leave, a server that fails."""

import json
import threading
import time
from dataclasses import replace

import pytest
import torch

from tests.serving.raw import answer, ask, connect, exchange, post
from toeplix.serving.limits import Limits
from toeplix.serving.server import running
from toeplix.serving.service import open_service

PATIENT = 120.0  # seconds


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"temperature": -1}, 400, "temperature: Input should be greater than or equal to 0"),
        ({"temperature": "hot"}, 400, "temperature: Input should be a valid number"),
        ({"temperature": float("nan")}, 400, "temperature: Input should be a finite number"),
        ({"top_p": 0}, 400, "top_p: Input should be greater than 0"),
        ({"n": 0}, 400, "n: Input should be greater than or equal to 1"),
        ({"n": 9}, 400, "1 prompts times n=9 is more than 8 choices"),
        ({"max_tokens": True}, 400, "max_tokens: Input should be a valid integer"),
        ({"max_tokens": 0}, 400, "max_tokens: 0 is for echo only"),
        ({"max_tokens": 1.5}, 400, "max_tokens: Input should be a valid integer"),
        ({"seed": 2**64}, 400, "seed: Input should be less than"),
        ({"stop": ""}, 400, "stop: at most 16 strings are taken, of 1 to 256 characters"),
        ({"stop": [1]}, 400, "stop: a string or a list of strings"),
        ({"prompt": [[1], "x"]}, 400, "prompt: a string, a list of strings"),
        ({"prompt": []}, 400, "prompt: a string, a list of strings"),
        ({"prompt": [10**9]}, 400, "prompt: tokens must be in 0 .. 279"),
        ({"prompt": "\ud800"}, 400, "prompt: the text has half of a surrogate pair"),
        ({"presence_penalty": 1.0}, 400, "presence_penalty"),
        ({"logit_bias": {"5": 1.0}}, 400, "logit_bias"),
        ({"temprature": 1}, 400, "temprature: this server knows no such parameter"),
        ({"model": "x"}, 404, "there is no model 'x' here"),
        ({"model": None}, 400, "model: Input should be a valid string"),
    ],
)
def test_bad_parameters(server, fields, status, words):
    found, body = ask(server, **({"prompt": "x", "max_tokens": 1} | fields))
    assert found == status
    assert set(body) == {"error"}
    assert words in body["error"]["message"]
    assert body["error"]["type"].endswith("_error")


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "messages: List should have at least 1 item"),
        ([{"role": "king", "content": "x"}], "messages.0.role"),
        ([{"role": "user"}], "messages.0.content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages.0.content"),
    ],
)
def test_bad_conversations(server, messages, words):
    status, body = ask(server, "/v1/chat/completions", messages=messages)
    assert status == 400
    assert words in body["error"]["message"]


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (post("/v1/completions", b'{"model": "tiny", '), 400, b"the body is no JSON"),
        (post("/v1/completions", b"[" * 3000), 400, b"error"),
        (post("/v1/completions", b"\xff\xfe"), 400, b"error"),
        (post("/v1/completions", b""), 400, b"error"),
        (post("/v1/completions", b"[]"), 400, b"valid dictionary"),
        (post("/v1/completions", b" " * 4001), 413, b"at most 4000"),
        (
            post(
                "/v1/completions",
                b"fa0\r\n" + b" " * 4000 + b"\r\nfa0\r\n" + b" " * 4000 + b"\r\n",
                "Transfer-Encoding: chunked",
            ),
            413,
            b"at most 4000",
        ),
        (post("/v1/completions", b"", "Content-Length: 10"), 400, b"Invalid HTTP request"),
        (post("/v1/completions", b"{}", host="evil.example"), 403, b"localhost only"),
        (post("/nowhere", b"{}"), 404, b"not_found_error"),
        (b"GET /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, b"invalid_request"),
        (b"nonsense\r\n\r\n", 400, b"Invalid HTTP request"),
    ],
)
def test_bad_bytes(server, data, status, words):
    found, _, body = exchange(server, data)
    assert found == status
    assert words in body


def test_a_slow_body_is_not_waited_for(checkpoint):
    whole = post("/v1/completions", b'{"model": "tiny"}')
    service = open_service(checkpoint, "tiny", Limits(body_timeout=0.5))
    with running(service) as impatient, connect(impatient) as there:
        there.sendall(whole[:-5])
        status, _, body = answer(there)
    assert status == 408
    assert b"did not arrive within 0.5 seconds" in body


def wait_until(condition):
    """The limit is far above what a busy machine needs: only a defect takes it."""
    end = time.monotonic() + PATIENT
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def wait_until_idle(service):
    wait_until(lambda: service.engine.counts.running == service.engine.counts.waiting == 0)


class Valve:
    """Lets a model take so many steps, and no more before it is opened: no test depends on a pace."""

    def __init__(self, model, steps=0):
        self._step, self._permits, self.opened = model.step, threading.Semaphore(steps), False

    def __call__(self, *given):
        end = time.monotonic() + PATIENT
        while not self.opened and not self._permits.acquire(timeout=0.01):
            assert time.monotonic() < end, "nobody opened the valve"
        return self._step(*given)


@pytest.fixture
def valve(service, monkeypatch):
    valve = Valve(service.model, steps=10)
    monkeypatch.setattr(service.model, "step", valve)
    yield valve
    valve.opened = True
    wait_until_idle(service)


@pytest.mark.parametrize("stream", [True, False])
def test_the_work_ends_when_the_client_leaves(server, service, stream, valve):
    before, lost = service.engine.counts.sampled, service.metrics.lost._value.get()
    body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 400, "stream": stream, "n": 2})
    with connect(server) as there:
        there.sendall(post("/v1/completions", body.encode()))
        wait_until(lambda: service.engine.counts.sampled >= before + 10)
    wait_until(lambda: service.metrics.lost._value.get() == lost + 1)
    valve.opened = True
    wait_until_idle(service)
    assert service.engine.counts.sampled < before + 400, "800 tokens were asked for"


def test_a_failure_is_told_without_its_words_and_others_go_on(server, service, monkeypatch):
    def broken(*given, **how):
        raise RuntimeError("secret /path/of/the/server")

    with monkeypatch.context() as patch:
        patch.setattr(service.model, "step", broken)
        found = [ask(server, prompt="x", max_tokens=5, temperature=0)]
        patch.setattr(service.model, "advance", broken)
        found.append(ask(server, prompt="x", max_tokens=5))
        body = json.dumps({"model": "tiny", "prompt": "x", "stream": True}).encode()
        _, _, streamed = exchange(server, post("/v1/completions", body))
    for status, body in found:
        assert status == 500
        assert body["error"]["message"] == "the server failed to answer; the fault is in its log"
    assert b"secret" not in streamed
    assert b'"server_error"' in streamed
    assert b"[DONE]" not in streamed
    with monkeypatch.context() as patch:
        patch.setattr("toeplix.serving.api._known", broken)
        status, body = ask(server, prompt="x")
        assert (status, body["error"]["type"]) == (500, "server_error")
        assert "secret" not in json.dumps(body)
    assert ask(server, prompt="x", max_tokens=5)[0] == 200


@pytest.fixture
def strict(checkpoint):
    """A server that takes little, with a key, and whose model waits."""
    limits = Limits(max_batch=1, max_waiting=2, max_tokens=50, timeout=PATIENT)
    service = open_service(checkpoint, "tiny", limits)
    service.model.step = Valve(service.model)
    with running(service, key="right") as server:
        yield server
        service.model.step.opened = True


RIGHT = "Authorization: Bearer right"
LARGE, LITTLE = (
    json.dumps({"model": "tiny", "prompt": "x", "max_tokens": tokens, "n": n}).encode()
    for tokens, n in ((50, 2), (2, 1))
)


def test_more_choices_than_the_queue_holds_are_rejected_for_good(strict):
    """A 429 would ask for another attempt, which could not succeed either."""
    body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 2, "n": 3}).encode()
    status, _, answer = exchange(strict, post("/v1/completions", body, RIGHT))
    assert status == 400
    assert "1 prompts times n=3 is more than 2 choices" in answer.decode()


def test_the_key(strict):
    for wrong in ("X: y", "Authorization: Bearer wrong", "Authorization: Basic right"):
        status, headers, body = exchange(strict, post("/v1/completions", LITTLE, wrong))
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert json.loads(body)["error"]["code"] == "invalid_api_key"
    status, _, body = exchange(strict, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (status, json.loads(body)) == (200, {"status": "ok"})
    assert exchange(strict, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")[0] == 401


def test_a_full_queue_and_the_end(strict):
    counts = strict.service.engine.counts
    with connect(strict) as first, connect(strict) as second:
        first.sendall(post("/v1/completions", LARGE, RIGHT))
        wait_until(lambda: counts.running)
        second.sendall(post("/v1/completions", LARGE, RIGHT))
        wait_until(lambda: counts.waiting)
        status, headers, _ = exchange(strict, post("/v1/completions", LITTLE, RIGHT))
        assert (status, headers["retry-after"]) == (429, "1")
        strict.service.model.step.opened = True
        assert [answer(there)[0] for there in (first, second)] == [200, 200]
    wait_until_idle(strict.service)
    assert exchange(strict, post("/v1/completions", LITTLE, RIGHT))[0] == 200
    strict.service.engine.drain()
    status, headers, _ = exchange(strict, post("/v1/completions", LITTLE, RIGHT))
    assert (status, headers["retry-after"]) == (503, "1")


def test_an_answer_that_takes_too_long(strict):
    """The model waits, so nothing but the time ends the answer; then the server goes on."""
    generous = strict.service.limits
    strict.service.limits = replace(generous, timeout=0.3)
    status, _, body = exchange(strict, post("/v1/completions", LARGE, RIGHT))
    assert status == 504
    assert b"took more than 0.3 seconds" in body
    strict.service.limits = generous
    strict.service.model.step.opened = True
    wait_until_idle(strict.service)
    assert exchange(strict, post("/v1/completions", LITTLE, RIGHT))[0] == 200


def test_metrics(server):
    ask(server, prompt="x", max_tokens=3)
    status, _, body = exchange(server, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status == 200
    for name in (
        b"toeplix_sequences_running 0.0",
        b"toeplix_new_tokens_total",
        b"toeplix_requests_total",
    ):
        assert name in body


def test_weights_that_are_no_numbers_are_no_answer(checkpoint):
    """A damaged model fails its own requests, not the server."""
    service = open_service(checkpoint, "tiny", Limits(max_tokens=20))
    with torch.no_grad():
        service.model.head.weight.fill_(float("nan"))
    with running(service) as server:
        assert ask(server, prompt="x", max_tokens=5, temperature=1)[0] == 500
