"""Values and bytes at the edges: each is answered, or rejected by name with a status below 500."""

import json

import pytest

from tests.serving.raw import ask, exchange, post

CHAT = "/v1/chat/completions"
FLOATS = [float("nan"), float("inf"), float("-inf"), 5e-324, 1e-300, -0.0, 1e308, -1e308]
INTEGERS = [2**31, 2**63, 2**64, -(2**63), 10**400, -(10**400)]
HALF = "\ud800"  # half of a surrogate pair


@pytest.mark.parametrize("value", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize(
    "name",
    [
        *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "n", "max_tokens"),
        *("seed", "logprobs", "best_of", "presence_penalty", "frequency_penalty"),
    ],
)
def test_numbers_at_the_edge(server, name, value):
    asked = {"prompt": "to be", "max_tokens": 2, "temperature": 1.0, name: value}
    status, body = ask(server, **asked)
    assert status in (200, 400), body
    if status == 400:
        assert body["error"]["message"].startswith((name, "1 prompts times n="))
        assert len(body["error"]["message"]) < 600


def test_a_small_repetition_penalty_is_a_bad_request(server):
    status, body = ask(server, prompt="x", temperature=1.0, repetition_penalty=1e-300)
    assert status == 400
    assert "repetition_penalty: Input should be greater than or equal to 0.01" in str(body)
    for penalty in (0.01, 100.0):
        status, _ = ask(server, prompt="x", temperature=1.0, repetition_penalty=penalty, seed=1)
        assert status == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": HALF}),
        ("/v1/completions", {"prompt": ["x", HALF]}),
        ("/v1/completions", {"prompt": "x", "stop": HALF}),
        ("/v1/completions", {"prompt": "x", "user": HALF}),
        ("/v1/completions", {"prompt": "x", "model": HALF}),
        ("/v1/completions", {"prompt": "x", "suffix": HALF}),
        ("/v1/completions", {"prompt": "x", "logit_bias": {HALF: 0.0}}),
        ("/v1/completions", {"prompt": "x", HALF: 1}),
        (CHAT, {"messages": [{"role": "user", "content": HALF}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": HALF}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": "x", "name": HALF}]}),
        (CHAT, {"messages": [{"role": HALF, "content": "x"}]}),
        (CHAT, {"messages": [{"role": "user", "content": "x", HALF: 1}]}),
    ],
)
def test_half_of_a_surrogate_pair_is_no_text(server, path, fields):
    status, body = ask(server, path, **fields)
    assert status == 400
    assert "half of a surrogate pair" in body["error"]["message"]


@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "\x7f\x1b[2J", "\ufdd0", "\U0010ffff", "\u202e", ""]
)
def test_odd_characters_are_text(server, text):
    assert ask(server, prompt=text, max_tokens=2)[0] == 200
    assert ask(server, CHAT, messages=[{"role": "user", "content": text}], max_tokens=2)[0] == 200
    status, body = ask(server, prompt="x", model=text)
    assert (status, body["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("/v1/completions", "presence_penalty", 1.0),
        ("/v1/completions", "frequency_penalty", -0.5),
        ("/v1/completions", "logit_bias", {"5": 1.0}),
        ("/v1/completions", "best_of", 2),
        ("/v1/completions", "suffix", "end"),
        (CHAT, "presence_penalty", 1),
        (CHAT, "tools", [{"type": "function"}]),
        (CHAT, "response_format", {"type": "json_object"}),
        (CHAT, "tool_choice", "auto"),
        (CHAT, "functions", []),
        (CHAT, "reasoning_effort", "low"),
        (CHAT, "modalities", ["audio"]),
    ],
)
def test_what_is_not_supported_is_named(server, path, name, value):
    given = {"prompt": "x"} if path != CHAT else {"messages": [{"role": "user", "content": "x"}]}
    status, body = ask(server, path, **given, **{name: value})
    assert status == 400
    assert f"{name} is not supported" in body["error"]["message"]
    assert body["error"]["param"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("presence_penalty", 0),
        ("frequency_penalty", 0.0),
        ("logit_bias", {}),
        ("best_of", 1),
        ("suffix", ""),
        ("suffix", None),
    ],
)
def test_neutral_values_are_taken(server, name, value):
    assert ask(server, prompt="x", max_tokens=1, **{name: value})[0] == 200


GOOD = b'{"model": "tiny", "prompt": "x", "max_tokens": 1}'
BODIES = {
    "nested": (b'{"prompt": ' + b"[" * 1500 + b"]" * 1500 + b"}", 400, b"nested too deeply"),
    "nested a little": (b'{"prompt": ' + b"[" * 60 + b"]" * 60 + b"}", 400, b"nested too deeply"),
    "twice": (b'{"prompt": "x", ' + GOOD[1:], 400, b"'prompt' is given twice"),
    "BOM": (b"\xef\xbb\xbf" + GOOD, 400, b"byte order mark"),
    "UTF-16": (GOOD.decode().encode("utf-16"), 400, b"not UTF-8"),
    "UTF-32": (GOOD.decode().encode("utf-32-le"), 400, b"no JSON"),
    "latin-1": (b'{"model": "tiny", "prompt": "\xe9"}', 400, b"not UTF-8"),
    "encoded surrogate": (b'{"model": "tiny", "prompt": "\xed\xa0\x80"}', 400, b"not UTF-8"),
    "NaN": (GOOD[:-1] + b', "top_p": NaN}', 400, b"top_p: Input should be a finite number"),
    "digits": (GOOD[:-1] + b', "seed": ' + b"9" * 3900 + b"}", 400, b"seed"),
    "null": (b"null", 400, b"valid dictionary"),
    "number": (b"5", 400, b"valid dictionary"),
    "trailing": (GOOD + b"x", 400, b"no JSON"),
    "escape": (b'{"model": "tiny", "prompt": "\\x"}', 400, b"no JSON"),
    "raw newline": (b'{"model": "tiny", "prompt": "\n"}', 400, b"no JSON"),
}


@pytest.mark.parametrize("case", BODIES)
def test_bodies_that_are_no_request(server, case):
    body, status, words = BODIES[case]
    found, headers, told = exchange(server, post("/v1/completions", body))
    assert (found, headers["content-type"]) == (status, "application/json")
    assert words in told


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
def test_content_types(server, kind, status):
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(GOOD)}\r\n"
    data = f"{head}Content-Type: {kind}\r\n\r\n".encode() + GOOD
    found, _, body = exchange(server, data)
    assert found == status
    assert status == 200 or b"application/json" in body


def test_a_whole_number_may_be_written_with_a_point(server):
    asked = b'{"model": "tiny", "prompt": [[2.0, 3.00]], "max_tokens": 3.0, "n": 2e0, "seed": -0.0}'
    status, _, body = exchange(server, post("/v1/completions", asked))
    assert (status, json.loads(body)["usage"]["prompt_tokens"]) == (200, 2)


def test_a_completion_may_have_no_prompt(server):
    status, body = ask(server, max_tokens=2, echo=True)
    assert (status, body["usage"]["prompt_tokens"]) == (200, 1)


def test_messages_about_long_values_are_short(server):
    status, body = ask(server, model="x" * 3000, prompt="y")
    assert status == 404
    assert len(body["error"]["message"]) < 300
    status, body = ask(server, prompt="y", **{"z" * 3000: 1})
    assert status == 400
    assert len(json.dumps(body)) < 600


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_other_methods(server, method):
    data = f"{method} /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    status, headers, _ = exchange(server, data.encode())
    assert status == 405
    assert headers["allow"] == "POST"


@pytest.mark.parametrize(
    "path", ["/v1/completions/", "//evil.example/v1/completions", "/v1/models/"]
)
def test_no_redirects(server, path):
    status, headers, _ = exchange(server, post(path, GOOD))
    assert status in (404, 405)
    assert "location" not in headers
