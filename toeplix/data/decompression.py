"""Bytes of a file, compressed or not, in blocks: all of them, or an error.

A compressed file is one stream or several, one after the other. The readers of the standard library end
in silence at what they do not understand after the first stream (lzma), at zeros (gzip), or where a
frame is truncated (zstandard). Here every byte belongs to a stream whose checksum was right, or to
padding that the format defines: zeros in multiples of four for xz, skippable frames for zst. Zeros
after gzip data are rejected: RFC 1952 knows none, and a hole in a file looks the same.

What cannot be told: that whole streams are missing at the end.
"""

import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toeplix.files import open_input

BLOCK = 2**16  # bytes that are read at once
CHUNK = 2**20  # bytes that are unpacked at once, where the library lets itself be stopped
MAX_XZ_MEMORY = 2**31  # bytes for a dictionary; xz -9 takes 2**26

Blocks = Iterator[bytes]


def blocks(path: Path) -> Blocks:
    """The content of a file, unpacked if its name says that it is packed."""
    return OPENERS.get(path.suffix.lower(), _plain)(path)


def errors() -> tuple[type[Exception], ...]:
    """What `blocks` raises for a file that cannot be read."""
    found: tuple[type[Exception], ...] = (OSError, EOFError, lzma.LZMAError, zlib.error)
    try:
        from zstandard import ZstdError
    except ImportError:
        return found
    return (*found, ZstdError)


def _plain(path: Path) -> Blocks:
    with open_input(path) as opened:
        while block := opened.read(CHUNK):
            yield block


def _gz(path: Path) -> Blocks:
    return _streams(path, lambda: zlib.decompressobj(wbits=31), _inflated)


def _xz(path: Path) -> Blocks:
    def start() -> lzma.LZMADecompressor:  # of xz alone: the older .lzma has no checksum
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)

    return _streams(path, start, _unpacked, padding=4)


def _zst(path: Path) -> Blocks:
    from zstandard import ZstdDecompressor

    def expanded(frame: Any, block: bytes) -> Blocks:
        yield frame.decompress(block)

    return _streams(path, lambda: ZstdDecompressor().decompressobj(), expanded)


def _streams(
    path: Path,
    start: Callable[[], Any],
    decompress: Callable[[Any, bytes], Blocks],
    padding: int = 0,
) -> Blocks:
    """Streams one after the other; `padding`: after each, zeros in multiples of so many."""
    stream, done, zeros = None, 0, 0
    with open_input(path) as opened:
        while block := opened.read(BLOCK):
            while block:
                if stream is None and padding and done:
                    rest = block.lstrip(b"\0")
                    zeros += len(block) - len(rest)
                    if not (block := rest):
                        break
                if stream is None:
                    _check_padding(zeros, padding)
                    stream, zeros = start(), 0
                yield from decompress(stream, block)
                block = b""
                if stream.eof:
                    block, stream, done = stream.unused_data, None, done + 1
    if stream is not None or not done:
        raise EOFError("the compressed data ends too early")
    _check_padding(zeros, padding)


def _check_padding(zeros: int, padding: int) -> None:
    if zeros and zeros % padding:
        raise EOFError(f"{zeros} zeros after a stream are no multiple of {padding}")


def _inflated(member: Any, block: bytes) -> Blocks:
    while True:
        found = member.decompress(block, CHUNK)
        yield found
        block = member.unconsumed_tail
        # without input there may still be output that was waiting for room
        if member.eof or not (block or len(found) == CHUNK):
            return


def _unpacked(stream: lzma.LZMADecompressor, block: bytes) -> Blocks:
    yield stream.decompress(block, CHUNK)
    if stream.check not in (lzma.CHECK_UNKNOWN, lzma.CHECK_NONE) and not lzma.is_check_supported(
        stream.check
    ):
        raise lzma.LZMAError(f"its checksum, of kind {stream.check}, is not known here")
    while not stream.eof and not stream.needs_input:
        yield stream.decompress(b"", CHUNK)


OPENERS: dict[str, Callable[[Path], Blocks]] = {".gz": _gz, ".xz": _xz, ".zst": _zst}
