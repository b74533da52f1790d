"""Damaged sources: whatever bit is flipped and wherever a file ends, no document is lost in silence."""

import gzip
import json
import lzma
import random
import struct

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from tests.data.conftest import make_texts
from toeplix.data import resolve

TEXTS = make_texts(40, seed=2)
HALVES = [
    "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    for texts in (TEXTS[:20], TEXTS[20:])
]
SKIPPABLE = struct.pack("<II", 0x184D2A50, 5) + b"seek!"
PACK = {
    ".gz": lambda raw: gzip.compress(raw, mtime=0),
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
STREAMS = {ending: [pack(raw) for raw in HALVES] for ending, pack in PACK.items()}


def documents(file):
    return [text for part in resolve([str(file)]) for text in part.documents()]


def told_or_whole(file, content):
    """Whether damage was told; anything but that and the whole text is a failure."""
    file.write_bytes(content)
    try:
        found = documents(file)
    except ValueError as problem:
        return str(problem).startswith(f"{file}, ")  # the message names the file
    assert found == TEXTS, f"{len(found)} documents in silence"
    return False


def places(length, edges):
    """Every byte near the edges of streams, where the structure is, and some elsewhere."""
    near = {edge + step for edge in edges for step in range(-34, 34)}
    some = random.Random(0).sample(range(length), 40)
    return sorted(place for place in near | set(some) if 0 <= place < length)


@pytest.mark.slow
@pytest.mark.parametrize("ending", PACK)
def test_a_flipped_bit_loses_nothing_in_silence(tmp_path, ending):
    first, second = STREAMS[ending]
    whole, told = first + second, 0
    chosen = places(len(whole), (0, len(first), len(whole)))
    for place in chosen:
        for bit in range(8):
            content = bytearray(whole)
            content[place] ^= 1 << bit
            told += told_or_whole(tmp_path / f"a.jsonl{ending}", content)
    assert told > 0.9 * 8 * len(chosen)


@pytest.mark.parametrize("ending", PACK)
def test_a_file_that_ends_too_early_is_told(tmp_path, ending):
    first, second = STREAMS[ending]
    whole = first + second
    for end in places(len(whole), (0, len(first), len(whole))):
        if end != len(first):  # where one stream is whole, nothing tells that there was another
            assert told_or_whole(tmp_path / f"a.jsonl{ending}", whole[:end]), end


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize(
    "more", [b"x", b"\0", b"\0" * 3, b"\0" * 5, b"garbage" * 100, b"\0\0\0\0x"]
)
def test_what_follows_or_parts_streams_is_not_skipped(tmp_path, ending, more):
    first, second = STREAMS[ending]
    file = tmp_path / f"a.jsonl{ending}"
    assert told_or_whole(file, first + second + more)
    assert told_or_whole(file, first + more + second)
    assert told_or_whole(file, more + first + second)


def test_padding_that_a_format_has_is_read(tmp_path):
    first, second = STREAMS[".xz"]
    file = tmp_path / "a.jsonl.xz"
    for size in (4, 8, 2**18, 2**20):
        assert not told_or_whole(file, first + bytes(size) + second + bytes(size))
    assert told_or_whole(file, bytes(4) + first + second)
    file = tmp_path / "a.jsonl.gz"
    first, second = STREAMS[".gz"]
    # gzip has no padding: zeros are what a hole in a file looks like
    assert told_or_whole(file, first + second + bytes(512))
    file = tmp_path / "a.jsonl.zst"
    first, second = STREAMS[".zst"]
    assert not told_or_whole(file, SKIPPABLE + first + SKIPPABLE + second + SKIPPABLE)
    for end in range(1, len(SKIPPABLE)):
        assert told_or_whole(file, first + second + SKIPPABLE[:end])


def test_an_xz_file_of_the_older_format_is_rejected(tmp_path):
    """It has no checksum, so nothing would tell damage."""
    content = lzma.compress(b"".join(HALVES), format=lzma.FORMAT_ALONE)
    assert told_or_whole(tmp_path / "a.jsonl.xz", content)


def test_streams_of_any_size_are_read(tmp_path):
    """Documents longer than what is unpacked at once, and many empty streams."""
    texts = ["a" * 3_000_000, "b", "ü" * 700_000]
    raw = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    for ending, pack in PACK.items():
        file = tmp_path / f"a.jsonl{ending}"
        file.write_bytes(pack(b"") * 3 + pack(raw[:1_000_003]) + pack(raw[1_000_003:]) + pack(b""))
        assert documents(file) == texts


def test_a_line_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("toeplix.data.reading.MAX_DOCUMENT_BYTES", 2**20)
    for ending, pack in {"": bytes, **PACK}.items():
        file = tmp_path / f"a.jsonl{ending}"
        file.write_bytes(pack(b'{"text": "fine"}\n{"text": "' + b"a" * 2**21))
        with pytest.raises(ValueError, match=r"line 2: a line of more than 1 MB"):
            documents(file)


def write_parquet(file, **options):
    numbers = list(range(len(TEXTS)))
    table = pyarrow.table({"id": numbers, "text": TEXTS, "url": [f"u{each}" for each in numbers]})
    with open(file, "wb") as opened:  # pyarrow takes no name that is not UTF-8
        pyarrow.parquet.write_table(table, opened, row_group_size=15, **options)


def test_a_flipped_bit_in_parquet_loses_nothing_in_silence(tmp_path):
    """With checksums of pages, which are off unless asked for, every byte of the text is covered."""
    file = tmp_path / "a.parquet"
    write_parquet(file, write_page_checksum=True)
    whole = file.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    chosen = random.Random(0)
    for place in chosen.sample(range(footer), 150) + chosen.sample(range(footer, len(whole)), 350):
        content = bytearray(whole)
        content[place] ^= 1 << chosen.randrange(8)
        told_or_whole(file, content)


def test_a_parquet_file_that_ends_too_early_is_told(tmp_path):
    file = tmp_path / "a.parquet"
    write_parquet(file)
    whole = file.read_bytes()
    for end in places(len(whole), (0, len(whole))):
        assert told_or_whole(file, whole[:end])
    for more in (b"\0", b"x" * 100):
        assert told_or_whole(file, whole + more)
        assert told_or_whole(file, more + whole)


def test_parquet_of_text_that_is_not_utf8_has_its_row(tmp_path):
    file = tmp_path / "a.parquet"
    raw = pyarrow.array([b"fine", b"\xff"]).cast(pyarrow.string(), safe=False)
    pyarrow.parquet.write_table(pyarrow.table({"text": raw}), file)
    with pytest.raises(ValueError, match=r"a\.parquet, row 2: not UTF-8"):
        documents(file)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": "a", "more": ' + DEEP + "}", "line 2: not JSON .nested too deeply"),
        ('{"text": "a", "n": ' + "9" * 5000 + "}", "line 2: not JSON .*4300 digits"),
        ("\x0b", "line 2: not JSON"),  # white space to Python, not to JSON
        ("\x1c\x1d", "line 2: not JSON"),
        ("\x00\x00", "line 2: not JSON"),
        ('{"text": "a"} {"text": "b"}', "line 2: not JSON .Extra data"),
    ],
)
def test_lines_that_are_not_json(tmp_path, line, words):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(ValueError, match=words):
        documents(file)


def test_names_that_are_not_utf8(tmp_path):
    folder = tmp_path / "\udcff"
    folder.mkdir()
    (folder / "a\udcfe.jsonl").write_bytes(b"".join(HALVES))
    write_parquet(folder / "b\udcfd.parquet")
    assert documents(folder / "a\udcfe.jsonl") == documents(folder / "b\udcfd.parquet") == TEXTS
    (folder / "a\udcfe.jsonl").write_text("{")
    with pytest.raises(ValueError, match=r"a\\udcfe\.jsonl, line 1: not JSON") as told:
        documents(folder / "a\udcfe.jsonl")
    str(told.value).encode()  # any terminal takes it
