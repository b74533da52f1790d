"""Copying by hand, and by somebody who only reads what stands before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toeplix.tasks import IGNORED, copying, scored

SIZES = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 12), st.integers(0, 99))


def row(batch):
    """The only row, labels with - for what is not scored."""
    inputs, labels = (part[0].tolist() for part in batch)
    return inputs, ["-" if label == IGNORED else label for label in labels]


def test_repeated_by_hand():
    assert row(copying.repeated(np.array([[7, 8, 9]]))) == (
        [7, 8, 9, 7, 8, 9],
        ["-", "-", 7, 8, 9, "-"],
    )


def test_delimited_by_hand():
    assert row(copying.delimited(np.array([[7, 8, 9]]), np.array([2]), 10)) == (
        [7, 8, 10, 7, 8, 11, 11],
        ["-", "-", 7, 8, "-", "-", "-"],
    )


def test_reversed_by_hand():
    assert row(copying.reversed_(np.array([[7, 8, 9]]), np.array([3]), 10)) == (
        [7, 8, 9, 10, 9, 8, 7],
        ["-", "-", "-", 9, 8, 7, "-"],
    )


def test_selected_where_there_is_only_one_way():
    batch = copying.selected(np.random.default_rng(0), np.array([[7, 8, 9]]), 3, 10)
    assert row(batch) == ([7, 8, 9, 10, 7, 8, 9], ["-", "-", "-", 7, 8, 9, "-"])


def test_windows_are_pieces_of_the_text():
    pieces = copying.windows(np.random.default_rng(0), np.arange(100, 110), 50, 4)
    assert (np.diff(pieces) == 1).all()
    assert set(pieces[:, 0].tolist()) == set(range(100, 107)), "every place, the last one too"


def labelled(batch):
    """What stands before each scored position with it, and what is to come."""
    for inputs, labels in zip(*batch, strict=True):
        for place in np.flatnonzero(labels != IGNORED):
            yield inputs[: place + 1].tolist(), int(labels[place]), inputs.tolist(), place


@given(SIZES)
def test_labels_are_the_next_tokens(sizes):
    b, m, vocab, seed = sizes
    rng = np.random.default_rng(seed)
    texts = copying.random_texts(rng, b, m, vocab)
    lengths = rng.integers(1, m + 1, b)
    for batch in (
        copying.repeated(texts),
        copying.delimited(texts, lengths, vocab),
        copying.reversed_(texts, lengths, vocab),
        copying.selected(rng, texts, m + 3, vocab),
    ):
        assert batch.inputs.shape == batch.labels.shape
        assert batch.inputs.dtype == batch.labels.dtype == np.int64
        assert batch.inputs.max() < vocab + copying.CONTROL_TOKENS
        for _, label, whole, place in labelled(batch):
            assert label == whole[place + 1]


@given(SIZES)
def test_a_reader_of_the_past_knows_every_answer(sizes):
    b, m, vocab, seed = sizes
    rng = np.random.default_rng(seed)
    texts = copying.random_texts(rng, b, m, vocab)
    lengths = rng.integers(1, m + 1, b)
    for past, label, _, _ in labelled(copying.repeated(texts)):
        assert label == past[-m]
    for past, label, _, _ in labelled(copying.delimited(texts, lengths, vocab)):
        sign = past.index(vocab)
        assert label == past[len(past) - 1 - sign]
    for past, label, _, _ in labelled(copying.reversed_(texts, lengths, vocab)):
        sign = past.index(vocab)
        assert label == past[sign - (len(past) - sign)]
    for past, label, _, _ in labelled(copying.selected(rng, texts, m + 3, vocab)):
        sign = past.index(vocab)
        told = [token for token in past[:sign] if token != vocab + 1]
        assert told[len(past) - 1 - sign] == label


def test_the_last_token_of_every_copy_is_scored():
    texts, lengths = np.arange(12).reshape(2, 6), np.array([3, 6])
    batch = copying.delimited(texts, lengths, 12)
    assert (batch.labels != IGNORED).sum(1).tolist() == [3, 6]


def test_refusals():
    texts = np.zeros((1, 3), np.int64)
    with pytest.raises(ValueError, match="lengths of 4 to 4 of texts of 3"):
        copying.delimited(texts, np.array([4]), 10)
    with pytest.raises(ValueError, match="3 tokens do not fit into 2 places"):
        copying.selected(np.random.default_rng(0), texts, 2, 10)
    with pytest.raises(ValueError, match="a text of 3 tokens has no piece of 4"):
        copying.windows(np.random.default_rng(0), texts[0], 1, 4)
    with pytest.raises(ValueError, match="cannot be scored"):
        scored(texts, np.ones((1, 3), dtype=bool))
