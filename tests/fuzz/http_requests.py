"""Raw HTTP requests as they should not be: lines, headers, lengths, chunks, pipelines, bodies.

`made(surface, seed, number)` is a function of its arguments: a case can be made again from its number.
"""

import json
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fuzz.http_bodies import mutated, noise

Piece = bytes | float  # what is sent, or seconds of silence


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is sent over one connection."""

    title: str
    pieces: list[Piece]
    whole: bool = False  # a complete request of good form: there has to be an answer
    leaves: bool = False  # the client closes without reading


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What a server answers to: GET with queries, POST with bodies that it takes."""

    gets: list[tuple[str, dict[str, str]]]
    posts: list[tuple[str, dict[str, Any]]]


CHAT = {"messages": [{"role": "user", "content": "what is it?"}], "model": "tiny", "max_tokens": 3}
SERVER = Surface(
    gets=[
        ("/health", {}),
        ("/metrics", {}),
        ("/v1/models", {}),
        ("/v1/models/tiny", {}),
        ("/openapi.json", {}),
    ],
    posts=[
        ("/v1/completions", {"model": "tiny", "prompt": "to be", "max_tokens": 3, "seed": 1}),
        ("/v1/completions", {"model": "tiny", "prompt": [1, 2], "max_tokens": 2, "logprobs": 2}),
        (
            "/v1/completions",
            {"model": "tiny", "prompt": ["a", "b"], "stop": ["x"], "max_tokens": 2},
        ),
        ("/v1/completions", {"model": "tiny", "prompt": "x", "stream": True, "max_tokens": 4}),
        ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", {**CHAT, "stream": True, "stop": "x"}),
    ],
)


def explorer_surface(run: str, model: str, layer: str) -> Surface:
    """The explorer's, over a run and a model that it has."""
    return Surface(
        gets=[
            ("/", {}),
            ("/page/main.js", {}),
            ("/api/list", {}),
            ("/api/metrics", {"name": run, "cursor": ""}),
            ("/api/settings", {"name": run}),
            ("/api/filters", {"name": model}),
            ("/api/filter", {"name": model, "layer": layer, "head": "0", "kernel": "0"}),
            ("/api/overview", {"name": model}),
            ("/api/weights", {"name": model}),
            ("/api/histograms", {"name": model, "part": layer}),
            ("/figures/index-laptop.svg", {}),
        ],
        posts=[
            ("/api/generate", {"model": model, "prompt": "one", "new": 3, "seed": 1}),
            ("/api/contributions", {"model": model, "text": "one two", "linearization": "at_text"}),
            ("/api/lookup", {"model": model, "text": "one two", "block": 1, "head": 0}),
        ],
    )


def request(
    method: str, target: str, body: bytes | None, *headers: str, close: bool = True
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (body or b"")


def _good(rng: Random, surface: Surface, close: bool = True) -> bytes:
    if rng.random() < 0.4:
        path, query = rng.choice(surface.gets)
        return request("GET", _target(path, query), None, close=close)
    path, body = rng.choice(surface.posts)
    return request("POST", path, json.dumps(body).encode(), close=close)


def _target(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def bodies(rng: Random, surface: Surface) -> Case:
    path, body = rng.choice(surface.posts)
    data = mutated(rng, body)
    return Case(title=f"body of {path}", pieces=[request("POST", path, data)], whole=True)


def queries(rng: Random, surface: Surface) -> Case:
    path, query = rng.choice(surface.gets)
    query = dict(query)
    names = [*query, "name", "cursor", "x"]
    odd = [
        "",
        "\0",
        "..",
        "/etc",
        "9" * 30,
        "9" * 5000,
        "-1",
        "1e9",
        "é",
        "x" * 3000,
        "\r\nX-Injected: 1",
    ]
    query[rng.choice(names)] = rng.choice(odd)
    target = _target(path, query)
    if rng.random() < 0.3:
        target += rng.choice(["&name=%ff", "&name=%ed%a0%80", "%", "?", "#x", "&" * 500, "/../.."])
    return Case(title=f"query of {path}", pieces=[request("GET", target, None)], whole=True)


def methods(rng: Random, surface: Surface) -> Case:
    path = rng.choice([path for path, _ in (*surface.gets, *surface.posts)])
    known = ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "get", "BREW", "POST", "GET"]
    body = rng.choice([None, b"", b"{}"])
    return Case(title="method", pieces=[request(rng.choice(known), path, body)], whole=True)


def lines(rng: Random, surface: Surface) -> Case:
    good = _good(rng, surface)
    first, _, rest = good.partition(b"\r\n")
    method, target, _ = first.split(b" ")
    odd = [
        method + b" " + target,
        method + b"  " + target + b" HTTP/1.1",
        target + b" " + method + b" HTTP/1.1",
        method
        + b" "
        + target
        + b" HTTP/"
        + rng.choice([b"0.9", b"1.0", b"2.0", b"3", b"1.1.1", b"x"]),
        method + b" http://evil.example" + target + b" HTTP/1.1",
        method + b" //evil.example" + target + b" HTTP/1.1",
        method + b" * HTTP/1.1",
        method + b" " + target + b"\0 HTTP/1.1",
        method + b" " + b"/" + b"a" * rng.choice([5000, 70_000]) + b" HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"\x16\x03\x01\x02\x00\x01\x00",  # the beginning of TLS
        b"",
        noise(rng, first),
    ]
    end = rng.choice([b"\r\n", b"\n", b"\r", b"\r\n\r\n"])
    return Case(title="request line", pieces=[rng.choice(odd) + end + rest])


def headers(rng: Random, surface: Surface) -> Case:
    good = _good(rng, surface)
    odd = [
        *(
            b"No colon",
            b": empty",
            b"Sp ace: x",
            b"X: a\0b",
            b"X: \xff",
            b"X\xff: y",
            b" folded: x",
        ),
        *(
            b"X: y\r\n\tfolded",
            b"Host: evil.example",
            b"Host: a\r\nHost: b",
            b"Host:",
            b"Host: [::1",
        ),
        *(
            b"Origin: http://evil.example",
            b"Origin: null",
            b"Authorization: Bearer \xff",
            b"Range: bytes=0-",
        ),
        *(b"Expect: 100-continue", b"Upgrade: websocket\r\nConnection: Upgrade", b"Upgrade: h2c"),
        *(b"X: " + b"y" * 70_000, b"\r\n".join(b"X%d: y" % i for i in range(2000))),
        *(
            b"Content-Type: text/plain",
            b"Content-Type: application/json; charset=x",
            b"Content-Type:",
        ),
        *(b"Content-Encoding: gzip", b"Accept: */*;q=x", b"Cookie: " + b"a=b; " * 900),
    ]
    place = good.index(b"\r\n") + 2
    return Case(title="header", pieces=[good[:place] + rng.choice(odd) + b"\r\n" + good[place:]])


def lengths(rng: Random, surface: Surface) -> Case:
    path, body = rng.choice(surface.posts)
    data, size = json.dumps(body).encode(), len(json.dumps(body))
    odd = [
        size - 1,
        size + 1,
        0,
        -1,
        2**31,
        2**63,
        10**30,
        "x",
        "",
        "+5",
        "0x10",
        "1e3",
        "²",
        f"{size}, {size}",
    ]
    lines = [f"Content-Length: {rng.choice(odd)}"]
    if rng.random() < 0.3:
        lines.append(f"Content-Length: {size}")
    if rng.random() < 0.2:
        lines.append("Transfer-Encoding: chunked")
    rng.shuffle(lines)
    head = ["Content-Type: application/json", *lines]
    return Case(title="length", pieces=[request("POST", path, None, *head) + data])


def chunks(rng: Random, surface: Surface) -> Case:
    path, body = rng.choice(surface.posts)
    data = json.dumps(body).encode()
    half = len(data) // 2
    good = b"%x\r\n%s\r\n%x\r\n%s\r\n" % (half, data[:half], len(data) - half, data[half:])
    odd = [
        *(
            good + b"0\r\n\r\n",
            good,
            good + b"0\r\nX: y\r\n\r\n",
            good + b"0\r\nbad trailer\r\n\r\n",
        ),
        *(b"zz\r\n" + data, b"-1\r\n" + data, b"ffffffffffffffffffff\r\n" + data, b"\r\n\r\n"),
        *(b"%x;ext=%s\r\n%s\r\n0\r\n\r\n" % (len(data), b"e" * 9000, data), noise(rng, good)),
        (b"1000\r\n" + b" " * 4096 + b"\r\n") * rng.choice([2, 400]),
    ]
    coding = rng.choice(
        ["chunked", "chunked", "chunked", "gzip, chunked", "identity", "chunked, chunked", "x"]
    )
    head = ["Content-Type: application/json", f"Transfer-Encoding: {coding}"]
    return Case(title="chunks", pieces=[request("POST", path, None, *head) + rng.choice(odd)])


def pipelines(rng: Random, surface: Surface) -> Case:
    several = [_good(rng, surface, close=False) for _ in range(rng.choice([2, 3, 8]))]
    if rng.random() < 0.5:
        place = rng.randrange(len(several))
        several[place] = noise(rng, several[place])
    return Case(title="pipeline", pieces=[b"".join(several)], leaves=rng.random() < 0.3)


def partial(rng: Random, surface: Surface) -> Case:
    good = _good(rng, surface)
    cut = rng.randrange(len(good))
    return Case(title="part", pieces=[good[:cut]], leaves=rng.random() < 0.8)


def leaving(rng: Random, surface: Surface) -> Case:
    pause = rng.choice([0.0, 0.001, 0.01, 0.05])
    return Case(title="leaving", pieces=[_good(rng, surface), pause], leaves=True)


def slow(rng: Random, surface: Surface) -> Case:
    good = _good(rng, surface)
    cuts = sorted(rng.randrange(len(good)) for _ in range(rng.choice([1, 3, 6])))
    pieces: list[Piece] = []
    for first, last in zip([0, *cuts], [*cuts, len(good)], strict=True):
        pieces += [good[first:last], rng.choice([0.0, 0.01, 0.03])]
    return Case(title="slow", pieces=pieces, whole=True)


def rubbish(rng: Random, surface: Surface) -> Case:
    data = (
        rng.randbytes(rng.choice([1, 50, 3000]))
        if rng.random() < 0.3
        else noise(rng, _good(rng, surface))
    )
    return Case(title="noise", pieces=[data])


MAKERS: list[tuple[int, Callable[[Random, Surface], Case]]] = [
    *((10, bodies), (3, queries), (1, methods), (2, lines), (2, headers), (2, lengths)),
    *((2, chunks), (1, pipelines), (1, partial), (1, leaving), (1, slow), (2, rubbish)),
]


def made(surface: Surface, seed: str, number: int) -> Case:
    rng = Random(f"{seed}/{number}")
    weights, makers = zip(*MAKERS, strict=True)
    return rng.choices(makers, weights)[0](rng, surface)
