"""JSON bodies of requests, changed in value, structure and bytes."""

import json
from random import Random
from typing import Any

FIELDS = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "n", "max_tokens", "seed"),
    *("stop", "stream", "stream_options", "user", "presence_penalty", "logit_bias", "echo"),
    *("logprobs", "suffix", "best_of", "tools", "response_format", "model", "prompt", "messages"),
    *("new", "text", "linearization", "unknown", "\ud800", "x" * 300),
)


class Raw(str):
    """JSON text that `json.dumps` would not write."""


def strange(rng: Random) -> Any:
    deep = rng.choice([10, 40, 990, 50_000])
    values: list[Any] = [
        *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400),
        *(0.5, -0.0, 3.0, 5e-324, 1e-300, 1e308, float("nan"), float("inf"), float("-inf")),
        *("", "x", "\0", "a\0b", "\ud800", "a\udfffb", "\U0010ffff", "\u202e", "../../etc/passwd"),
        *(
            [],
            [None],
            [[]],
            [1, 2],
            ["a", 5],
            [[1], ["a"]],
            [-1],
            [2**70],
            {},
            {"": 0},
            {"a": [{}]},
        ),
        *(Raw("[" * deep + "]" * deep), Raw('{"a":' * deep + "1" + "}" * deep), Raw("[" * deep)),
        *(Raw("9" * 5000), Raw("1e999"), Raw("01"), Raw("'x'"), Raw('"\\x"'), Raw('"\n"'), Raw("")),
        *("y" * 5000, "é漢" * 300, ["z"] * 500, list(range(600)), "\r\nX-Injected: 1\r\n"),
    ]
    return rng.choice(values)


def dumped(value: Any) -> str:
    """As `json.dumps`, with `Raw` as it is."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dumped(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumped, value)) + "]"
    return json.dumps(value)


def mutated(rng: Random, body: dict[str, Any]) -> bytes:
    """A body with fields changed, missing, added, nested or given twice; then, at times, its bytes."""
    body = json.loads(json.dumps(body))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        place: Any = body
        while isinstance(place, dict | list) and place and rng.random() < 0.3:
            inner = place[rng.choice(list(place) if isinstance(place, dict) else range(len(place)))]
            if not isinstance(inner, dict | list) or not inner:
                break
            place = inner
        if isinstance(place, list):
            place[rng.randrange(len(place))] = strange(rng)
        elif rng.random() < 0.15 and place:
            del place[rng.choice(list(place))]
        else:
            place[rng.choice([*place, *FIELDS])] = strange(rng)
    text = dumped(body)
    if rng.random() < 0.05:
        text = text[:-1] + "," + text[1:]  # every name twice
    data = text.encode(errors="surrogatepass")
    if rng.random() < 0.1:
        change = rng.choice(
            [
                lambda data: b"\xef\xbb\xbf" + data,
                lambda data: data.decode(errors="replace").encode("utf-16"),
                lambda data: data[: rng.randrange(len(data) + 1)],
                lambda data: data + b"\0",
                lambda data: noise(rng, data),
            ]
        )
        data = change(data)
    return data


def noise(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(changed) + 1)
        if rng.random() < 0.5 and place < len(changed):
            changed[place] = rng.randrange(256)
        elif rng.random() < 0.5:
            changed[place:place] = rng.randbytes(rng.choice([1, 4]))
        else:
            del changed[place : place + rng.choice([1, 3, 20])]
    return bytes(changed)
