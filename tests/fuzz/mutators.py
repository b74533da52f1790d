"""JSON and bytes, changed in the ways in which files are damaged, mistaken for others, or made to hurt.

Every mutator takes a generator of random numbers and the data, and returns other data. All of it is a
function of the generator's seed.
"""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

DEEP = 100_000
Bytes = Callable[[Random, bytes], bytes]


class Raw(str):
    """JSON text that `json.dumps` would not write, as a value."""


def _deep(rng: Random) -> Raw:
    depth = rng.choice([50, 995, 1100, DEEP])
    left, right = rng.choice([("[", "]"), ('{"a":', "}")])
    return Raw(left * depth + ("1" if left != "[" else "") + right * depth)


STRANGE: tuple[Callable[[Random], Any], ...] = (
    lambda rng: None,
    lambda rng: rng.choice([True, False]),
    lambda rng: rng.choice([0, -1, 1, 2, 3, 5, 7]),
    lambda rng: rng.choice([10**9, 2**31, 2**32, 2**53, 2**63 - 1]),
    lambda rng: rng.choice([2**63, 2**64, -(2**63) - 1, 10**30]),
    lambda rng: Raw("9" * rng.choice([400, 5000])),
    lambda rng: rng.choice([0.5, -0.0, 1e-300, 1e300, 3.0]),
    lambda rng: Raw(rng.choice(["NaN", "Infinity", "-Infinity", "1e999", "1e-999"])),
    lambda rng: rng.choice(["", "x", " ", "0", "null", "../../etc/passwd", "/", "a\0b", "%s{}"]),
    lambda rng: Raw(rng.choice(['"\\ud800"', '"a\\udfffb"', '"\\u0000"', '"\\ud83d\\ude00"'])),
    lambda rng: "x" * rng.choice([1000, 200_000]),
    lambda rng: rng.choice([[], [None], [[]], [1, 2, 3], ["a"] * 40]),
    lambda rng: rng.choice([{}, {"": 0}, {"model": 5}, {"a": {"b": []}}]),
    _deep,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all values inside, the whole among them; of long lists the first few and the last."""
    found = [at]
    if isinstance(value, dict):
        keys = list(value)
        for key in keys if len(keys) <= 60 else [*keys[:20], *keys[-20:]]:
            found += places(value[key], (*at, key))
    elif isinstance(value, list):
        numbers = range(len(value))
        for number in numbers if len(value) <= 8 else [0, 1, 2, len(value) - 1]:
            found += places(value[number], (*at, number))
    return found


def change(rng: Random, value: Any) -> Any:
    """One change somewhere inside a JSON value, shallow places more often."""
    chosen = rng.choice(places(value))
    while len(chosen) > 1 and rng.random() < 0.3:
        chosen = chosen[:-1]
    if not chosen or rng.random() < 0.02:
        return _strange(rng, value)
    inside, last = value, chosen[-1]
    for key in chosen[:-1]:
        inside = inside[key]
    action = rng.random()
    if action < 0.6:
        inside[last] = _strange(rng, inside[last])
    elif action < 0.8:
        del inside[last]
    elif isinstance(inside, dict):
        if action < 0.9:
            inside[rng.choice(["unknown", "", "__class__", "a" * 300])] = _strange(rng, None)
        else:
            inside[f"{last} "] = inside.pop(last)
    else:
        inside.insert(last, inside[last])
    return value


def _strange(rng: Random, old: Any) -> Any:
    if isinstance(old, bool | int | float) and rng.random() < 0.3:
        near = [old + 1, old - 1, -old, old * 1000, float(old), str(old), 10**9, 10**9, 2**62]
        return rng.choice(near)
    if isinstance(old, str) and old and rng.random() < 0.3:
        return rng.choice([old[:-1], old + " ", old.upper(), old * 2, [old]])
    return rng.choice(STRANGE)(rng)


def dumped(value: Any, indent: int | None = None) -> str:
    """JSON with `Raw` values as they are."""
    held: list[str] = []

    def mark(inner: Any) -> Any:
        if isinstance(inner, Raw):
            held.append(str(inner))
            return f"\ue000{len(held) - 1}\ue001"
        if isinstance(inner, dict):
            return {key: mark(each) for key, each in inner.items()}
        return [mark(each) for each in inner] if isinstance(inner, list) else inner

    text = json.dumps(mark(value), indent=indent)
    for number, raw in enumerate(held):
        text = text.replace(f'"\\ue000{number}\\ue001"', raw)
    return text


def json_text(rng: Random, data: bytes) -> bytes:
    """A JSON document with changes in its values; now and then a duplicate key."""
    value = json.loads(data)
    for _ in range(rng.choice([1, 1, 1, 2])):
        if not isinstance(value, dict | list) or not value:
            break
        value = change(rng, value)
    text = dumped(value)
    if isinstance(value, dict) and value and rng.random() < 0.05:
        key = rng.choice(list(value))
        text = f"{text[:-1]}, {json.dumps(key)}: {dumped(_strange(rng, value[key]))}}}"
    return text.encode("utf-8", "surrogatepass")


def json_lines(rng: Random, data: bytes) -> bytes:
    """JSON lines: one of them changed, cut, doubled, moved or followed by another."""
    lines = data.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    action = rng.random()
    if action < 0.7:
        lines[number] = json_text(rng, lines[number]) + b"\n"
    elif action < 0.8:
        lines[number] = lines[number][: rng.randrange(len(lines[number]))]
    elif action < 0.9:
        lines.insert(number, rng.choice([b"\n", b"[]\n", b"\xff\xfe\n", b"{\n", lines[number]]))
    else:
        lines.pop(number)
    return b"".join(lines)


def flip(rng: Random, data: bytes) -> bytes:
    """A bit, or a few."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 4])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(rng: Random, data: bytes) -> bytes:
    return data[
        : rng.choice([0, 1, len(data) // 2, max(0, len(data) - 1), rng.randrange(len(data) + 1)])
    ]


def trailing(rng: Random, data: bytes) -> bytes:
    return data + rng.choice([b"\0", b"\0" * 4096, b"garbage", b"\n", data[:64], rng.randbytes(33)])


def duplicate(rng: Random, data: bytes) -> bytes:
    """A piece twice, or the whole."""
    a, b = sorted(rng.randrange(len(data) + 1) for _ in "ab")
    return data + data if rng.random() < 0.3 else data[:b] + data[a:b] + data[b:]


def overwrite(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    piece = rng.choice([b"\0" * 16, b"\xff" * 16, rng.randbytes(16), b"{}", b"\xed\xa0\x80"])
    return data[:at] + piece + data[at + len(piece) :]


def lose(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice([1, 7, 512]) :]


def other(rng: Random, data: bytes) -> bytes:
    """Something else altogether."""
    return rng.choice(
        [
            b"",
            b"{}",
            b"[]",
            b"null",
            b"\xff\xfe{\0}\0",
            b"\x80\x04K\x01.",
            b"PK\x03\x04" + data[:99],
        ]
    )


ANY: tuple[Bytes, ...] = (flip, flip, flip, truncate, trailing, duplicate, overwrite, lose, other)


def any_bytes(rng: Random, data: bytes) -> bytes:
    return rng.choice(ANY)(rng, data)


def in_its_place(rng: Random, file: Path) -> str:
    """Something that is no regular file where a file was; what it is."""
    kind = rng.choice(["missing", "directory", "loop", "dangling", "unreadable"] * 4 + ["fifo"])
    file.unlink()
    if kind == "directory":
        file.mkdir()
    elif kind == "fifo":
        import os

        os.mkfifo(file)
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "dangling":
        file.symlink_to("nowhere")
    elif kind == "unreadable":  # to all but root
        file.write_bytes(b"")
        file.chmod(0)
    return kind
