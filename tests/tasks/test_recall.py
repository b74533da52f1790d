"""Recall by hand, and by somebody with a dictionary who only reads what stands before."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tasks.test_copying import labelled
from toeplix.tasks import IGNORED, copying, recall

SEEDS = st.integers(0, 999)


def rng(seed=0):
    return np.random.default_rng(seed)


def is_key(token, vocab):
    return 1 <= token <= (vocab - 1) // 2


def is_value(token, vocab):
    return (vocab - 1) // 2 < token < vocab


@given(SEEDS, st.integers(1, 6), st.sampled_from([0, 5]))
def test_pairs_by_dictionary(seed, count, noise):
    vocab, context = 21, 4 * count + 6
    batch = recall.pairs(rng(seed), 3, context, count, vocab, noise)
    assert batch.inputs.shape == (3, context)
    for past, label, whole, place in labelled(batch):
        assert whole[place + 1 : place + 2] in ([], [recall.BLANK]) or noise, "not shown"
        assert not any(is_value(token, vocab) for token in whole[place + 1 :])
        *before, query = past
        table = dict(itertools.pairwise(before))
        assert is_key(query, vocab)
        assert table[query] == label
        assert is_value(label, vocab)
        assert before.count(query) == 1, "told once, and never asked before"
    assert ((batch.labels != IGNORED).sum(1) == count).all()


@given(SEEDS, st.integers(1, 6))
def test_pairs_never_collide(seed, count):
    """Every key stands there exactly twice, the first time before its value; all else is blank."""
    inputs, _ = recall.pairs(rng(seed), 4, 4 * count + 2, count, 21)
    for row in inputs.tolist():
        keys = [token for token in row if is_key(token, 21)]
        assert sorted(keys) == sorted(2 * list(set(keys)))
        assert len(set(keys)) == count
        assert row.count(recall.BLANK) == 2 + count
        assert all(is_value(token, 21) for token in row[1 : 2 * count : 2])
        assert all(row[place + 1] == recall.BLANK for place in range(2 * count, len(row), 2))


def test_noise_stands_between_pairs_and_is_no_key():
    inputs, _ = recall.pairs(rng(), 50, 32, 3, 21, noise=5)
    table = inputs[:, :16]
    assert (inputs != recall.BLANK).all()
    assert (table >= 21).any(1).all(), "somewhere in the first half of every row"
    assert len({tuple(row >= 21) for row in table}) > 10, "not always at the same place"


@given(SEEDS, st.integers(1, 4))
def test_fuzzy_by_dictionary(seed, count):
    vocab = 9
    batch = recall.fuzzy(rng(seed), 3, 12 * count + 1, count, vocab)
    for inputs, labels in zip(*batch, strict=True):
        entries, answers = [], 0
        for token in inputs.tolist():
            if is_key(token, vocab) and (not entries or entries[-1][1]):
                entries.append(([], []))
            if token:
                entries[-1][0 if is_key(token, vocab) else 1].append(token)
        told, asked = entries[:count], entries[count:]
        table = {tuple(key): value for key, value in told}
        assert len(table) == count
        assert not any(a != b and b[: len(a)] == a for a in table for b in table), "a prefix"
        for key, value in asked:
            assert table[tuple(key)] == value
            answers += len(value)
        assert len(asked) == count
        assert (labels != IGNORED).sum() == answers
    for past, label, whole, place in labelled(batch):
        assert label == whole[place + 1]
        assert is_value(label, vocab)
        assert past[-1] != recall.BLANK


def test_fuzzy_asks_for_what_it_has_asked_for():
    """Or the last answer would be known by what the others were."""
    again = 0
    for row in recall.fuzzy(rng(), 50, 24, 2, 9).inputs.tolist():
        values = [[t for t in group if t] for key, group in grouped(row) if not key]
        again += len(values) == 4 and values[2] == values[3]
    assert 5 < again < 45


def grouped(row):
    """Runs of keys and of other tokens, in turn."""
    return [(key, list(group)) for key, group in itertools.groupby(row, lambda t: is_key(t, 9))]


@given(SEEDS, st.integers(1, 9), st.integers(1, 3))
def test_phonebook_by_dictionary(seed, entries, length):
    letters, digits = 3, 10
    batch = recall.phonebook(rng(seed), 3, entries, letters, digits, length)
    assert batch.inputs.shape[1] == entries * (3 + length) + 2 + length
    for past, label, whole, place in labelled(batch):
        assert label == whole[place + 1]
        lines, line = [], []
        for token in past:
            if token == recall.BLANK:
                lines, line = [*lines, line], []
            else:
                line.append(token)
        book = {tuple(entry[:2]): entry[2:] for entry in lines}
        assert len(book) == entries, "no name twice"
        assert book[tuple(line[:2])][len(line) - 2] == label
    assert ((batch.labels != IGNORED).sum(1) == length).all()


@given(SEEDS, st.integers(4, 20), st.integers(2, 9))
def test_induction_by_search(seed, context, vocab):
    batch = recall.induction(rng(seed), 4, context, vocab)
    for past, label, whole, place in labelled(batch):
        assert label == whole[place + 1]
        assert past[-1] == vocab - 1
        assert past.count(vocab - 1) == 2
        assert past[past.index(vocab - 1) + 1] == label
    assert ((batch.labels != IGNORED).sum(1) == 1).all()


def test_refusals():
    with pytest.raises(ValueError, match="context=6 must be even and hold 4 tokens for each of 2"):
        recall.pairs(rng(), 1, 6, 2, 9)
    with pytest.raises(ValueError, match="5 keys differ only if there are so many: vocab=9"):
        recall.pairs(rng(), 1, 20, 5, 9)
    with pytest.raises(ValueError, match="context=20 must hold 12 tokens for each of 2 pairs"):
        recall.fuzzy(rng(), 1, 20, 2, 9)
    with pytest.raises(ValueError, match="2 letters make 4 names, not 5"):
        recall.phonebook(rng(), 1, 5, 2, 10, 3)
    with pytest.raises(ValueError, match="context=3"):
        recall.induction(rng(), 1, 3, 5)


def test_the_same_everywhere():
    """Written down once; another version or machine that disagrees would change every result."""
    generator = rng(2026)
    texts = copying.random_texts(generator, 4, 9, 30)
    batches = [
        copying.selected(generator, texts, 14, 30),
        recall.pairs(generator, 4, 32, 5, 21),
        recall.pairs(generator, 4, 32, 5, 21, 3),
        recall.fuzzy(generator, 4, 48, 4, 21),
        recall.phonebook(generator, 4, 5, 4, 10, 3),
        recall.induction(generator, 4, 16, 9),
        copying.repeated(copying.windows(generator, np.arange(99), 4, 8)),
    ]
    whole = b"".join(part.astype("<i8").tobytes() for batch in batches for part in batch)
    assert hashlib.sha256(whole).hexdigest()[:16] == "25cb123995713092"
