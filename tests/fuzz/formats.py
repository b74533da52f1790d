"""Formats with a structure of their own: safetensors files and compressed archives.

Random bytes rarely get past a header. These mutators take a file apart, change it inside, and put it
together again; `sealed` then makes the checksums agree, so that what lies behind them is reached too.
"""

import gzip
import hashlib
import json
import lzma
import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.mutators import change, dumped, flip, json_text, truncate

CHECKSUM = "sha256"
DTYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "F8_E4M3", "X", 5]
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: str | bytes, body: bytes) -> bytes:
    raw = header.encode("utf-8", "surrogatepass") if isinstance(header, str) else header
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + body


def safetensors(rng: Random, data: bytes) -> bytes:
    """A safetensors file, changed in one of the ways below."""
    return rng.choice(INSIDE)(rng, data)


def _weights(rng: Random, data: bytes) -> bytes:
    """Bits of the tensors: nothing but a checksum sees them."""
    _, body = parts(data)
    return data[: len(data) - len(body)] + flip(rng, body)


def _values(rng: Random, data: bytes) -> bytes:
    """NaN, infinity or very large numbers in float32 weights."""
    _, body = parts(data)
    numbers = np.frombuffer(body[: len(body) // 4 * 4], "<f4").copy()
    for _ in range(rng.choice([1, 3, len(numbers)])):
        value = rng.choice([np.nan, np.inf, -np.inf, 3e38, 1e-45, 0])
        numbers[rng.randrange(len(numbers))] = value
    return data[: len(data) - len(body)] + numbers.tobytes() + body[len(numbers) * 4 :]


def _model(rng: Random, data: bytes) -> bytes:
    """The record of the model inside the metadata."""
    header, body = parts(data)
    metadata = header.get("__metadata__") or {}
    if "model" in metadata:
        metadata["model"] = json_text(rng, metadata["model"].encode()).decode("utf-8", "replace")
    else:
        metadata["model"] = rng.choice(["", "{}", "[", "5", "null", '{"depth": 1000000000}'])
    header["__metadata__"] = metadata
    return joined(dumped(header), body)


def _metadata(rng: Random, data: bytes) -> bytes:
    header, body = parts(data)
    inside = change(rng, dict(header.get("__metadata__") or {"format": "pt"}))
    header["__metadata__"] = inside
    return joined(dumped(header), body)


def _tensor(rng: Random, data: bytes) -> bytes:
    """Type, shape or place of one tensor, alone or so that they still agree."""
    header, body = parts(data)
    name = rng.choice([name for name in header if name != "__metadata__"])
    entry = header[name]
    action = rng.randrange(6)
    if action == 0:
        entry["dtype"] = rng.choice(DTYPES)
    elif action == 1:
        entry["shape"] = rng.choice(
            [[], [0], [-1], [2**40, 2**40], [1] * 70, "x", entry["shape"][::-1]]
        )
    elif action == 2:
        start, end = entry["data_offsets"]
        near = [[end, start], [start, end + 4], [0, 2**63], [start, end, end], [-4, end], None]
        entry["data_offsets"] = rng.choice(near)
    elif action == 3:  # another type of the same width, or half the width of twice the length
        same = [each for each, width in WIDTHS.items() if width == WIDTHS.get(entry["dtype"], 4)]
        entry["dtype"] = rng.choice(same)
    elif action == 4:
        return _retyped(rng, header, body, name)
    else:
        entry["shape"] = [*entry["shape"], 1] if rng.random() < 0.5 else [1, *entry["shape"]]
    return joined(dumped(header), body)


def _retyped(rng: Random, header: dict[str, Any], body: bytes, name: str) -> bytes:
    """One tensor in another precision, the file consistent in itself."""
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}
    chosen, pieces, at = rng.choice(list(kinds)), [], 0
    for each in sorted(
        (n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"]
    ):
        start, end = header[each]["data_offsets"]
        piece = body[start:end]
        if each == name and header[each]["dtype"] == "F32":
            with np.errstate(all="ignore"):
                piece = np.frombuffer(piece, "<f4").astype(kinds[chosen]).tobytes()
            header[each]["dtype"] = chosen
        header[each]["data_offsets"] = [at, at + len(piece)]
        at += len(piece)
        pieces.append(piece)
    return joined(dumped(header), b"".join(pieces))


def _names(rng: Random, data: bytes) -> bytes:
    header, body = parts(data)
    names = [name for name in header if name != "__metadata__"]
    old, new = rng.choice(names), rng.choice([*names, "", "a.b", "blocks.1000000000.x", "x" * 999])
    entry = header.pop(old)
    if rng.random() < 0.7:
        header[new] = entry
    return joined(dumped(header), body)


def _header(rng: Random, data: bytes) -> bytes:
    """Its length, or its JSON as bytes."""
    header, body = parts(data)
    if rng.random() < 0.5:
        length = rng.choice([0, 1, 2**31, 2**63, 2**64 - 1, len(data), len(data) - 8])
        return struct.pack("<Q", length) + data[8:]
    return joined(rng.choice([flip, truncate, json_text])(rng, json.dumps(header).encode()), body)


INSIDE = (_weights, _weights, _values, _model, _model, _metadata, _tensor, _tensor, _names, _header)


def decoded(kind: str, data: bytes) -> bytes | None:
    """What an archive holds by a strict reading of its format; None where it is damaged.

    Every stream has to be whole, with its own checksum, and nothing may follow the last one but zeros
    where the format allows padding.
    """
    found, rest = b"", data
    try:
        while rest:
            if kind == "gz":
                stream: Any = zlib.decompressobj(wbits=31)
            elif kind == "xz":
                stream = lzma.LZMADecompressor(lzma.FORMAT_AUTO)
            else:
                import zstandard

                stream = zstandard.ZstdDecompressor().decompressobj()
            found += stream.decompress(rest)
            if not stream.eof:
                return None
            rest = stream.unused_data
            if kind == "gz" and not rest.strip(b"\0"):
                rest = b""
            if kind == "xz" and not rest.strip(b"\0") and len(rest) % 4 == 0:
                rest = b""
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError):
        return None
    except Exception as problem:
        if type(problem).__name__ == "ZstdError":
            return None
        raise
    return found


def repacked(rng: Random, data: bytes, kind: str) -> bytes:
    """An archive whose content was changed and compressed again, or several archives end to end."""
    content = decoded(kind, data) or b""
    changed = rng.choice([flip, truncate])(rng, content)
    if kind == "gz":
        return gzip.compress(changed, mtime=0)
    if kind == "xz":
        forms = [{}, {"check": lzma.CHECK_NONE}, {"format": lzma.FORMAT_ALONE}]
        return lzma.compress(changed, **rng.choice(forms))
    import zstandard

    return zstandard.ZstdCompressor().compress(changed)


def unsigned(data: bytes) -> bytes:
    """A safetensors file without the checksum in its metadata, which is then read as it is."""
    try:
        header, body = parts(data)
        del header["__metadata__"][CHECKSUM]
    except (ValueError, KeyError, TypeError, RecursionError, struct.error):
        return data
    return joined(json.dumps(header), body)


def signed(data: bytes) -> bool:
    return f'"{CHECKSUM}":'.encode() in data[: 2**20]


def sealed(folder: Path, before: bytes, after: bytes) -> None:
    """Make checksums of a changed file agree wherever they stand in JSON files below a directory."""
    old, new = hashlib.sha256(before).hexdigest(), hashlib.sha256(after).hexdigest()
    for file in folder.rglob("*.json"):
        if not file.is_file() or file.is_symlink() or file.stat().st_mode & 0o444 == 0:
            continue
        text = file.read_bytes()
        if old.encode() not in text:
            continue
        try:
            value = json.loads(text)
        except ValueError:
            continue
        file.write_text(json.dumps(_resealed(value, old, new, len(before), len(after)), indent=2))


def _resealed(value: Any, old: str, new: str, size: int, now: int) -> Any:
    if isinstance(value, dict):
        if old in value.values():
            value = {k: now if v == size and isinstance(v, int) else v for k, v in value.items()}
        return {key: _resealed(each, old, new, size, now) for key, each in value.items()}
    if isinstance(value, list):
        return [_resealed(each, old, new, size, now) for each in value]
    return new if value == old else value
