"""Text that is named by its content, and n-gram models against slow definitions."""

import collections
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from toeplix.experiments import SCALES
from toeplix.experiments.engine import corpora
from toeplix.experiments.engine.scale import CORPUS

TEXTS = [
    f"The {n}th text, with {n * n} in it, and some more words after {n + 3}." for n in range(60)
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some texts" / "novels.v2.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def test_a_label_names_the_content_and_not_the_place(file, tmp_path):
    label = corpora.registered(str(file), tmp_path / "work")
    assert corpora.LABEL.fullmatch(label)["name"] == "novels"
    moved = tmp_path / "elsewhere.jsonl"
    moved.write_bytes(file.read_bytes())
    assert corpora.registered(f"novels={moved}", tmp_path / "work") == label
    assert corpora.source(label, tmp_path / "work") == str(moved), "the last place"
    moved.write_bytes(file.read_bytes() + b'{"text": "more"}\n')
    assert corpora.registered(f"novels={moved}", tmp_path / "work") != label
    assert str(tmp_path) not in label
    for name in ("python", "hf:some/data", label):
        assert corpora.registered(name, tmp_path / "work") == name


def test_sources_of_text(monkeypatch):
    monkeypatch.delenv(corpora.VARIABLE, raising=False)
    assert SCALES["desk"].data == CORPUS
    assert corpora.given(None, "python") == "python"
    with pytest.raises(ValueError, match="--corpus"):
        corpora.given(None, CORPUS)
    monkeypatch.setenv(corpora.VARIABLE, "hf:mine")
    assert corpora.given(None, CORPUS) == "hf:mine"
    assert corpora.given(None, "python") == "python", "a scale with text of its own keeps it"
    assert corpora.given("hf:other", CORPUS) == "hf:other"


def test_text_that_is_not_known(tmp_path):
    with pytest.raises(FileNotFoundError, match="--corpus PATH"):
        corpora.source("novels@0123456789ab", tmp_path)
    with pytest.raises(FileNotFoundError, match="no file or directory"):
        corpora.registered("absent.jsonl", tmp_path)
    with pytest.raises(ValueError, match="NAME=PATH"):
        corpora.registered("?/=absent.jsonl", tmp_path)


def test_a_store_is_built_once_wherever_the_text_lies(file, tmp_path):
    work = tmp_path / "work"
    case = SimpleNamespace(data=corpora.registered(str(file), work), vocab=300, val_fraction=0.2)
    store = corpora.store(case, work)
    file.unlink()
    assert corpora.store(case, work).directory == store.directory
    odd, even = (store.val.alternate(half) for half in (corpora.TUNE, corpora.REPORT))
    assert len(odd) + len(even) == len(store.val)
    for number in range(len(store.val)):
        half = odd if number % 2 else even
        assert half.document(number // 2).tolist() == store.val.document(number).tolist()
        assert half.bytes_of(slice(number // 2, number // 2 + 1)) == store.val.bytes_of(
            slice(number, number + 1)
        )


def test_ngram_models_by_hand(file, tmp_path):
    """Counts in dicts, one position at a time."""
    work = tmp_path / "work"
    case = SimpleNamespace(data=corpora.registered(str(file), work), vocab=300, val_fraction=0.2)
    store = corpora.store(case, work)
    places = corpora.sampled(store.train.offsets, 500).tolist()
    tokens, first = store.train.tokens.tolist(), set(store.train.offsets.tolist())
    read = [tokens[place] for place in places]
    single = collections.Counter(read)
    double = collections.Counter(
        (tokens[place - 1], tokens[place]) for place in places if place not in first
    )
    after = collections.defaultdict(set)
    for first, second in double:
        after[first].add(second)

    def unigram(b):
        return (single[b] + 1) / (len(read) + store.vocab)

    def bigram(a, b):
        kinds = len(after[a])
        seen = sum(double[a, c] for c in after[a])
        return (double[a, b] + kinds * unigram(b)) / (seen + kinds) if seen else unigram(b)

    assert sum(bigram(read[0], b) for b in range(store.vocab)) == pytest.approx(1)
    held = store.val.alternate(corpora.REPORT)
    pairs = [
        pair
        for number in range(len(held))
        for pair in zip(
            held.document(number).tolist()[:-1], held.document(number).tolist()[1:], strict=True
        )
    ]
    found = corpora.ngram_losses(store.directory, 500)
    assert found["unigram_loss"] == pytest.approx(
        -sum(math.log(unigram(b)) for _, b in pairs) / len(pairs), abs=1e-5
    )
    assert found["bigram_loss"] == pytest.approx(
        -sum(math.log(bigram(a, b)) for a, b in pairs) / len(pairs), abs=1e-5
    )
    assert found["bigram_loss"] < found["unigram_loss"]


def test_samples_are_of_all_documents_of_a_sorted_store():
    """Books of one subject, then of another: the first tokens know one of them only."""
    lengths = np.array([2000] * 200 + [700] * 200)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = corpora.sampled(offsets, 120_000)
    assert len(set(places.tolist())) == 120_000
    assert (np.diff(places) > 0).all()
    read = np.searchsorted(offsets, places, side="right") - 1
    assert len(set(read.tolist())) > 150
    assert np.mean(read < 200) == pytest.approx(2000 / 2700, abs=0.1)
    assert (corpora.sampled(offsets, 120_000) == places).all(), "the seed is fixed"
    assert (corpora.sampled(offsets, 10**9) == np.arange(offsets[-1])).all()


def test_one_document_has_no_halves(tmp_path):
    path = tmp_path / "two.jsonl"
    path.write_text(json.dumps({"text": TEXTS[0]}) + "\n" + json.dumps({"text": TEXTS[1]}) + "\n")
    case = SimpleNamespace(
        data=corpora.registered(str(path), tmp_path), vocab=300, val_fraction=0.01
    )
    with pytest.raises(ValueError, match="too few to divide"):
        corpora.store(case, tmp_path).val.alternate(corpora.TUNE)
