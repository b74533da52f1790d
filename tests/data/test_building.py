"""A store is the same to the last bit, whatever the processes and whatever happened on the way."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.data import build_worker
from tests.data.conftest import whole, write_lines
from toeplix.data import Recipe, Store, build, building, resolve
from toeplix.data.encoding import is_validation


def test_a_store_holds_the_documents_in_order(store, texts):
    found = {False: store.train, True: store.val}
    for held, split in found.items():
        expected = [text for text in texts if is_validation(text.encode(), 0.1) == held]
        assert len(split) == len(expected)
        for index, text in enumerate(expected):
            tokens = split.document(index)
            assert (tokens[0], tokens[-1]) == (store.tokenizer.start, store.tokenizer.end)
            assert tokens[1:-1].tolist() == store.tokenizer.encode(text)
            assert store.tokenizer.decode(tokens) == text
            assert split.bytes_of(np.array([index])) == len(text.encode())
        assert split.bytes_of() == sum(len(text.encode()) for text in expected)
    counts = store.manifest["splits"]["train"]
    assert counts == {
        "documents": len(store.train),
        "tokens": len(store.train.tokens),
        "bytes": store.train.bytes_of(),
    }
    assert store.vocab == 400
    store.check()


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.usefixtures("pooled")
def test_the_number_of_processes_changes_nothing(recipe, store, tmp_path, processes):
    seen = []
    build(recipe, tmp_path / "new", processes=processes, report=seen.append)
    assert whole(tmp_path / "new") == whole(store.directory)
    assert [each.stage for each in seen][:1] == ["tokenizer"]
    assert seen[-1].stage == "sha256"
    assert seen[-2].documents == 400
    assert len(seen) > 20, "many batches"


def test_work_that_was_done_is_not_done_again(recipe, store, tmp_path, monkeypatch):
    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.documents > 200:
            raise Stopped

    monkeypatch.setattr(building, "BATCH_CHARACTERS", build_worker.SMALL)
    with pytest.raises(Stopped):
        build(recipe, tmp_path, processes=1, report=stop)
    (tmp_path / ".progress.json.123").write_text("left by a process that was killed")
    with open(tmp_path / "train.bin", "ab") as file:
        file.write(b"written but not vouched for")
    seen = []
    build(recipe, tmp_path, processes=1, report=seen.append)
    assert seen[0].stage == "tokens", "the tokenizer is there"
    assert seen[0].documents > 200
    assert whole(tmp_path) == whole(store.directory)
    again = []
    build(recipe, tmp_path, report=again.append)
    assert not again, "a finished store is only opened"


@pytest.mark.parametrize("name", ["train.bin", "val.idx", "train.size", "tokenizer/tokenizer.json"])
def test_damage_is_found(recipe, tmp_path, name):
    store = build(recipe, tmp_path / "a")
    file = tmp_path / "a" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"sha256 disagrees: {name};"):
        Store.open(tmp_path / "a").check()
    file.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=f"{name} is {len(content) - 1} bytes long, not"):
        Store.open(tmp_path / "a")
    file.unlink()
    with pytest.raises(ValueError, match=f"{name} is missing, not"):
        Store.open(tmp_path / "a")
    assert store.manifest["version"] == 2


def test_what_is_no_store_is_told(store, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is no token store.*toeplix data build"):
        Store.open(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="is damaged"):
        Store.open(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(store.manifest | {"version": 9}))
    with pytest.raises(ValueError, match="version 9, this toeplix reads 2"):
        Store.open(tmp_path)


def test_equal_texts_go_to_one_split_in_any_order(tmp_path, texts):
    repeated = texts + texts[::-1] + texts[:50]
    chosen = []
    for number, order in enumerate((repeated, sorted(repeated))):
        source = write_lines(tmp_path / f"{number}.jsonl", order)
        store = build(
            Recipe(sources=(source,), vocab=300, val_fraction=0.2), tmp_path / str(number)
        )
        splits = [
            {store.tokenizer.decode(split.document(index)) for index in range(len(split))}
            for split in (store.train, store.val)
        ]
        assert not splits[0] & splits[1]
        assert splits[0] | splits[1] == set(texts)
        chosen.append(splits[1])
    assert chosen[0] == chosen[1]


def test_the_held_out_share_is_what_was_asked_for():
    held = sum(is_validation(b"%d" % number, 0.01) for number in range(20000))
    assert 140 < held < 260, "four standard deviations around 200"
    assert not is_validation(b"x", 0.0)


def test_the_tokenizer_learns_from_a_bounded_sample_of_all_parts(tmp_path, texts, monkeypatch):
    monkeypatch.setattr(building, "TOKENIZER_SAMPLE_BYTES", 20_000)
    names = [write_lines(tmp_path / f"{n}.jsonl", texts[100 * n : 100 * n + 100]) for n in range(4)]
    recipe = Recipe(sources=tuple(names), val_fraction=0.5)
    sample = list(building._sample(recipe, resolve(names)))
    assert not any(is_validation(text.encode(), 0.5) for text in sample)
    assert {texts.index(text) // 100 for text in sample} == {0, 1, 2, 3}
    assert 5_000 < sum(len(text.encode()) for text in sample) < 25_000
    limited = list(building._sample(replace(recipe, limit=10), resolve(names)))
    assert set(limited) <= set(texts[:10])


def test_empty_documents_are_counted_and_left_out(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", ["one text", "", " \n", "another text"])
    store = build(Recipe(sources=(source,), vocab=260, val_fraction=0.0), tmp_path / "out")
    assert (len(store.train), len(store.val)) == (2, 0)
    assert (store.manifest["read"], store.manifest["empty"]) == (4, 2)
    assert store.val.bytes_of() == 0


def test_the_limit_counts_documents_over_all_parts(tmp_path, texts):
    sources = tuple(
        write_lines(tmp_path / f"{n}.jsonl", texts[10 * n : 10 * n + 10]) for n in range(3)
    )
    recipe = Recipe(sources=sources, vocab=300, val_fraction=0.0, limit=15)
    store = build(recipe, tmp_path / "out")
    assert [store.tokenizer.decode(store.train.document(n)) for n in range(15)] == texts[:15]
    assert len(store.train) == store.manifest["read"] == 15
    all_of_it = build(replace(recipe, limit=None), tmp_path / "all")
    assert len(all_of_it.train) == 30


def test_a_tokenizer_that_is_given(store, lines, tmp_path):
    name = str(store.directory / "tokenizer")
    other = build(Recipe(sources=(lines,), tokenizer=name, val_fraction=0.1), tmp_path / "out")
    np.testing.assert_array_equal(other.train.tokens, store.train.tokens)
    assert other.manifest["recipe"]["tokenizer"] == name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab": 259}, "vocab=259 must be at least 260"),
        ({"val_fraction": 1.0}, r"val_fraction=1.0 must be in \[0, 1\)"),
        ({"limit": 0}, "limit=0 must be at least 1"),
    ],
)
def test_nonsense_is_refused_at_birth(change, words):
    with pytest.raises(ValueError, match=words):
        Recipe(**{"sources": ("python",)} | change)


def test_an_empty_corpus_is_refused(tmp_path, store):
    source = write_lines(tmp_path / "a.jsonl", ["", "  "])
    with pytest.raises(ValueError, match="no text to learn a tokenizer from"):
        build(Recipe(sources=(source,)), tmp_path / "out")
    given = str(store.directory / "tokenizer")
    with pytest.raises(ValueError, match="no document to train on among 2 read"):
        build(Recipe(sources=(source,), tokenizer=given), tmp_path / "out")
    with pytest.raises(ValueError, match="processes=0"):
        build(Recipe(sources=(source,)), tmp_path / "out", processes=0)


def test_other_things_are_not_overwritten(recipe, store, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(
        ValueError, match=r"holds other things .thesis.tex.: choose a new directory"
    ):
        build(recipe, tmp_path)
    with pytest.raises(ValueError, match="was begun with vocab=400, not 500: choose another"):
        build(replace(recipe, vocab=500), store.directory)


def test_a_source_that_changed_under_a_build_is_refused(tmp_path, texts):
    sources = tuple(write_lines(tmp_path / f"{n}.jsonl", texts[:20]) for n in range(2))
    (tmp_path / "1.jsonl").write_text("{broken")
    recipe = Recipe(sources=sources, vocab=300, limit=40)
    given = replace(
        recipe,
        tokenizer=str(build(replace(recipe, limit=20), tmp_path / "t").directory / "tokenizer"),
    )
    with pytest.raises(ValueError, match=r"1\.jsonl, line 1: not JSON"):
        build(given, tmp_path / "out")
    write_lines(tmp_path / "0.jsonl", texts[:21])
    with pytest.raises(ValueError, match=r"0\.jsonl has changed since"):
        build(given, tmp_path / "out")
    write_lines(tmp_path / "0.jsonl", texts[:20])
    write_lines(tmp_path / "1.jsonl", texts[20:40])  # mended: what was done stays done
    seen = []
    store = build(given, tmp_path / "out", report=seen.append)
    assert seen[0].documents == 40
    assert store.manifest["read"] == 40
    write_lines(tmp_path / "1.jsonl", texts[20:41])
    with pytest.raises(ValueError, match=r"1\.jsonl has changed since"):
        build(given, tmp_path / "out")


def test_one_build_at_a_time(recipe, tmp_path):
    def build_again(progress):
        with pytest.raises(OSError, match="is being written by another process"):
            build(recipe, tmp_path)

    build(recipe, tmp_path, report=build_again)


@pytest.mark.parametrize("sources", ["notes.md", b"notes.md", None, 5, ("a.md", 5)])
@pytest.mark.usefixtures("unchecked")
def test_sources_are_a_tuple_of_names(sources):
    with pytest.raises(TypeError, match=r"sources=.* must be a tuple of the names of sources"):
        Recipe(sources=sources)
