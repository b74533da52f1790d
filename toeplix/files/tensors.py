"""Safetensors files: the same tensors are the same bytes, and a flipped bit is found when they are read.

    8 bytes   length of the header, little-endian
    header    JSON, a record for every tensor and `__metadata__`, filled up with spaces to 8 bytes
    data      the tensors end to end, by type, the widest first, then by name

The format is Hugging Face's, and so is the reader. The writer is ours for three reasons: theirs takes the
metadata in a random order, knows no checksum, and has an error of its own for a full disk. The checksum
is in the metadata: the sha256 of the whole file with zeros in the checksum's place. A file without one,
of transformers or of an earlier version, is read as it is.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from toeplix.files import DamagedFile, open_input, reading

CHECKSUM = "sha256"
PLACE = "0" * 64  # where the checksum comes to stand
KINDS = {  # in the order in which their tensors lie
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
BLOCK = 2**20


def save_file(
    weights: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors with a checksum over all of it."""
    if sys.byteorder != "little":
        raise OSError(f"{file} cannot be written: this machine is not little-endian")
    order = list(KINDS)
    names = sorted(weights, key=lambda name: (order.index(weights[name].dtype), name))
    header: dict[str, object] = {
        "__metadata__": dict(sorted({**(metadata or {}), CHECKSUM: PLACE}.items()))
    }
    end = 0
    for name in names:
        value = weights[name]
        first, end = end, end + value.numel() * value.dtype.itemsize
        header[name] = {
            "dtype": KINDS[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [first, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    start = len(text).to_bytes(8, "little") + text
    place = start.index(f'"{CHECKSUM}":"{PLACE}"'.encode()) + len(CHECKSUM) + 4
    digest = hashlib.sha256(start)
    with open(file, "wb") as opened:
        opened.write(start)
        for name in names:
            value = weights[name].detach().cpu().contiguous()
            block = value.reshape(-1).view(torch.uint8).numpy().data
            digest.update(block)
            opened.write(block)
        opened.seek(place)
        opened.write(digest.hexdigest().encode())


def read_file(file: Path, *, check: bool = True) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata; `check` compares the checksum, where there is one, in one pass."""
    remedy = "copy it again from where it came"
    with reading(file, remedy):
        try:
            with safe_open(file, framework="pt") as opened:
                metadata = opened.metadata() or {}
                if check:
                    verify(file, metadata)
                names = opened.keys()
                return {name: opened.get_tensor(name) for name in names}, metadata
        except SafetensorError as problem:
            raise DamagedFile(f"{file} is damaged: {problem}; {remedy}") from problem


def verify(file: Path, metadata: Mapping[str, str]) -> None:
    """Compare a file with the checksum in its metadata; without one there is nothing to compare."""
    if CHECKSUM not in metadata:
        return
    known = metadata[CHECKSUM]
    digest = hashlib.sha256()
    for block in _blocks(file, known):
        digest.update(block)
    if digest.hexdigest() != known:
        raise DamagedFile(
            f"{file} is damaged: its {CHECKSUM} is {digest.hexdigest()[:16]}..., not {known[:16]}...; "
            "copy it again from where it came"
        )


def _blocks(file: Path, known: str) -> Iterator[bytes | memoryview]:
    """The bytes that the checksum is of: the file, with zeros in its place."""
    with open_input(file) as opened:
        length = opened.read(8)
        yield length
        header = opened.read(int.from_bytes(length, "little"))
        mark = f'"{CHECKSUM}":"'
        yield header.replace(f'{mark}{known}"'.encode(), f'{mark}{PLACE}"'.encode(), 1)
        block = memoryview(bytearray(BLOCK))
        while size := opened.readinto(block):
            yield block[:size]
