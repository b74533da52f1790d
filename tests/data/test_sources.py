"""Sources: every form gives the same documents from any place; trouble has a place and a remedy."""

import gzip
import json
import lzma
import re

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from tests.data.conftest import make_texts, write_lines
from toeplix.data import resolve

TEXTS = make_texts(30, seed=1)
COLUMNS = ["id", "dump", "url", "file_path", "language"]


def documents(*names, field="text", skip=0):
    return [text for part in resolve(names, field) for text in part.documents(skip)]


def fineweb(file, texts):
    """The columns of FineWeb-edu."""
    table = {
        "text": texts,
        **{name: [f"{name}-{index}" for index in range(len(texts))] for name in COLUMNS},
        "language_score": [0.9] * len(texts),
        "token_count": [len(text) // 4 for text in texts],
        "score": [3.2] * len(texts),
        "int_score": [3] * len(texts),
    }
    pyarrow.parquet.write_table(pyarrow.table(table), file, row_group_size=7)


@pytest.fixture
def folder(tmp_path):
    plain = "".join(json.dumps({"text": text, "other": 1}) + "\n" for text in TEXTS).encode()
    (tmp_path / "plain.jsonl").write_bytes(plain)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress(plain))
    middle = plain.index(b"\n", len(plain) // 2) - 5  # two frames, the cut inside a line
    pack = zstandard.ZstdCompressor().compress
    (tmp_path / "a.jsonl.zst").write_bytes(pack(plain[:middle]) + pack(plain[middle:]))
    fineweb(tmp_path / "a.parquet", TEXTS)
    return tmp_path


FORMS = ["plain.jsonl", "a.jsonl.gz", "a.jsonl.xz", "a.jsonl.zst", "a.parquet"]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_documents_from_any_place(folder, name):
    for skip in (0, 1, 7, 13, 29, 30, 31):
        assert documents(str(folder / name), skip=skip) == TEXTS[skip:]


def test_directories_and_patterns_are_sorted_and_leave_other_files_out(folder):
    (folder / "README").write_text("not text to learn from")
    names = [part.name for part in resolve([str(folder)])]
    assert names == [str(folder / name) for name in sorted(FORMS)]
    assert [part.name for part in resolve([str(folder / "*.jsonl*")])] == [
        name for name in names if "jsonl" in name
    ]


def test_hub_data_sets_are_streamed_in_shards(tmp_path):
    for shard in range(3):
        fineweb(tmp_path / f"train-{shard:05}.parquet", TEXTS[10 * shard : 10 * shard + 10])
    parts = resolve([f"hf:{tmp_path}"])
    assert [part.name.rpartition("#")[2] for part in parts] == ["0", "1", "2"]
    assert [text for part in parts for text in part.documents()] == TEXTS
    assert list(parts[1].documents(4)) == TEXTS[14:20]
    assert documents(f"hf:{tmp_path}::train", field="url") == [
        f"url-{index}" for _ in range(3) for index in range(10)
    ]
    with pytest.raises(ValueError, match="#0, at its start: no field 'body', only 'text'"):
        documents(f"hf:{tmp_path}", field="body")
    with pytest.raises(ValueError, match=r"hf:.*::nosplit cannot be opened: .*nosplit"):
        resolve([f"hf:{tmp_path}::nosplit"])
    with pytest.raises(ValueError, match="is not hf:NAME"):
        resolve(["hf:a:b:c:d"])
    with pytest.raises(ValueError, match="cannot be opened"):
        resolve([f"hf:{tmp_path}/nowhere"])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("one\n\ntwo\r\n", ["one\n\ntwo"]),
        ("one\n\n\ntwo\n\n\n\n\nthree", ["one", "two", "three"]),
        ("one\ntwo\fthree\n\f\nfour\n", ["one\ntwo", "three", "four"]),
        ("\ufeffone\r\n\r\n\r\n two ", ["one", " two "]),
        ("\n\n\n", []),
        ("", []),
    ],
)
def test_text_files_are_parted_by_form_feeds_and_blank_lines(tmp_path, content, expected):
    file = tmp_path / "a.TXT"
    file.write_bytes(content.encode())
    assert documents(str(file)) == expected
    assert documents(str(file), skip=1) == expected[1:]


BAD = {
    "a.jsonl": [
        ('{"text": "fine"}\n\n{"text": \n', "a.jsonl, line 3: not JSON .*mend or delete"),
        ('{"body": "x", "id": 1}\n', "line 1: no field 'text', only 'body', 'id': .*--field"),
        ('["text"]\n', "line 1: a JSON object was expected"),
        ('{"text": "a"}\n{"text": 7}\n', "line 2: field 'text' is int, not text"),
        ('{"text": null}\n', "line 1: field 'text' is NoneType"),
        (r'{"text": "half \ud83d"}', "line 1: half of a surrogate pair at character 5"),
        (b'{"text": "a"}\n{"text": "\xe9"}\n', "line 2: not UTF-8 .byte 0xe9 at 10.*iconv"),
    ],
    "a.txt": [(b"fine\n\xff\n", "a.txt, line 2: not UTF-8")],
    "a.jsonl.gz": [("not gzip", "after line 0: cannot be read .*again")],
    "a.jsonl.xz": [("not xz", "after line 0: cannot be read")],
    "a.jsonl.zst": [("not zstandard", "after line 0: cannot be read")],
    "a.parquet": [("not parquet", "after row 0: cannot be read")],
    "a.csv": [("a,b", "not read, only .jsonl, .md, .parquet, .txt")],
    "a.parquet.gz": [("", "not read")],
}


@pytest.mark.parametrize(
    ("name", "content", "words"), [(name, *case) for name, cases in BAD.items() for case in cases]
)
def test_what_cannot_be_read_is_told_with_its_place(tmp_path, name, content, words):
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=words):
        documents(str(file))


@pytest.mark.parametrize("name", FORMS[1:])
def test_a_cut_off_file_is_an_error_and_not_a_short_corpus(folder, name):
    file = folder / name
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cannot be read .*make the file again"):
        documents(str(file))


def test_missing_sources(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.txt is no file or directory"):
        resolve([str(tmp_path / "gone.txt")])
    with pytest.raises(FileNotFoundError, match=r"\*\.txt holds or matches no .jsonl"):
        resolve([str(tmp_path / "*.txt")])
    with pytest.raises(FileNotFoundError, match="holds or matches no"):
        resolve([str(tmp_path)])
    with pytest.raises(ValueError, match="no source"):
        resolve([])


def test_the_column_must_be_there(folder):
    with pytest.raises(ValueError, match=re.escape("no column 'body', only 'text', 'id'")):
        documents(str(folder / "a.parquet"), field="body")


def test_a_text_file_without_partings_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("toeplix.data.reading.MAX_DOCUMENT_BYTES", 2**20)
    file = tmp_path / "long.txt"
    file.write_text("short\n\n\n" + "line\n" * 2**18)
    with pytest.raises(ValueError, match=r"line 3: a document of more than 1 MB.*form feed"):
        documents(str(file))


def test_only_the_document_at_hand_is_read(tmp_path):
    """The first document comes before a fault that lies behind it."""
    file = write_lines(tmp_path / "a.jsonl", TEXTS)
    with open(file, "a") as opened:
        opened.write("{broken")
    stream = resolve([file])[0].documents()
    assert [next(stream) for _ in TEXTS] == TEXTS
    with pytest.raises(ValueError, match="line 31"):
        next(stream)
