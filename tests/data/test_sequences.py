"""Rows lose nothing, mix nothing, and are functions of (seed, epoch, index)."""

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from toeplix import Model
from toeplix import build as build_model
from toeplix.data import Packed, Padded, Split, Store
from toeplix.data.shuffling import shuffled


def numbered(lengths):
    """Documents whose tokens are all different, so that each is known by its number."""
    offsets = np.cumsum([0, *lengths])
    return Split(
        name="train",
        tokens=np.arange(offsets[-1], dtype=np.uint32),
        offsets=offsets,
        sizes=3 * offsets,
        pad=10**6,
    )


LENGTHS = st.lists(st.integers(2, 40), min_size=1, max_size=30)


@given(lengths=LENGTHS, context=st.integers(1, 50), seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_packing_loses_no_position_and_mixes_no_documents(lengths, context, seed, epoch):
    split = numbered(lengths)
    rows = Packed(split, context=context, seed=seed, epoch=epoch, remainder=True)
    document_of = np.repeat(np.arange(len(lengths)), lengths)
    seen = []
    for row in (rows[index] for index in range(len(rows))):
        tokens, labels, ends = row["tokens"], row["labels"], row["offsets"].tolist()
        assert ends[0] == 0
        assert ends[-1] == len(tokens) <= context
        assert torch.equal(labels, tokens + 1), "the label is the next token"
        for begin, end in pairwise(ends):
            assert end > begin
            piece = tokens[begin:end]
            assert torch.equal(piece, torch.arange(int(piece[0]), int(piece[0]) + end - begin))
            owners = document_of[[*piece.tolist(), int(labels[end - 1])]]
            assert (owners == owners[0]).all()
        assert len({int(document_of[tokens[end]]) for end in ends[:-1]}) == len(ends) - 1, (
            "a document is not cut inside a row"
        )
        seen += tokens.tolist()
    last_ones = set((split.offsets[1:] - 1).tolist())
    assert sorted(seen) == [token for token in range(sum(lengths)) if token not in last_ones]


@given(lengths=LENGTHS, context=st.integers(1, 20))
def test_without_the_remainder_only_whole_rows(lengths, context):
    split = numbered(lengths)
    positions = sum(lengths) - len(lengths)
    if positions < context:
        with pytest.raises(ValueError, match=f"has {positions} positions, less than a row"):
            Packed(split, context=context)
        return
    rows = Packed(split, context=context)
    assert len(rows) == positions // context
    assert all(len(rows[index]["tokens"]) == context for index in range(len(rows)))
    seen = torch.cat([rows[index]["tokens"] for index in range(len(rows))])
    assert len(seen.unique()) == positions - positions % context, "the stated remainder is lost"


@given(lengths=LENGTHS, context=st.integers(1, 50))
def test_padded_rows_are_beginnings_of_documents(lengths, context):
    split = numbered(lengths)
    rows = Padded(split, context=context, seed=1)
    firsts = []
    for row in (rows[index] for index in range(len(rows))):
        real = int(row["mask"].sum())
        first = int(row["tokens"][0])
        document = split.document(int(np.searchsorted(split.offsets, first, side="right")) - 1)
        assert real == min(len(document) - 1, context)
        assert row["mask"].tolist() == [True] * real + [False] * (context - real)
        assert row["tokens"].tolist() == document[:real].tolist() + [10**6] * (context - real)
        assert row["labels"].tolist() == document[1 : real + 1].tolist() + [-100] * (context - real)
        firsts.append(first)
    assert sorted(firsts) == split.offsets[:-1].tolist(), "each document once"


@pytest.mark.parametrize("kind", [Padded, Packed])
def test_rows_are_a_function_of_seed_and_epoch(kind, store):
    def all_rows(sequences):
        return torch.cat([sequences[index]["tokens"] for index in range(len(sequences))])

    rows = kind(store.train, context=32, seed=5, epoch=2)
    again = kind(Store.open(store.directory).train, context=32, seed=5)
    first = all_rows(again)
    again.set_epoch(2)
    assert torch.equal(all_rows(rows), all_rows(again))
    assert not torch.equal(all_rows(rows), first)
    assert not torch.equal(all_rows(kind(store.train, context=32, seed=6, epoch=2)), all_rows(rows))
    assert torch.equal(rows[-1]["tokens"], rows[len(rows) - 1]["tokens"])
    with pytest.raises(IndexError, match="row"):
        rows[len(rows)]


def test_the_order_is_fixed_for_ever():
    """Resuming under another version must find the same rows."""
    assert shuffled(8, 1, 2, 3).tolist() == EXPECTED
    many = shuffled(5000, 7)
    assert sorted(many.tolist()) == list(range(5000))
    assert abs(np.corrcoef(many, np.arange(5000))[0, 1]) < 0.06, "four standard deviations"


EXPECTED = [3, 1, 6, 7, 0, 5, 2, 4]


def test_pieces_of_a_long_document_do_not_follow_each_other():
    rows = Packed(numbered([4001]), context=10)
    firsts = [int(rows[index]["tokens"][0]) for index in range(len(rows))]
    assert sum(b - a == 10 for a, b in pairwise(firsts)) < 10


def test_unshuffled_rows_keep_the_order():
    rows = Packed(numbered([5, 4]), context=4, shuffle=False, remainder=True)
    assert [rows[index]["tokens"].tolist() for index in range(2)] == [[0, 1, 2, 3], [5, 6, 7]]


def test_collating_by_hand():
    rows = Packed(numbered([4, 3, 4]), context=4, shuffle=False, remainder=True)
    batch = Packed.collate([rows[0], rows[1]])
    assert batch["tokens"].tolist() == [[0, 1, 2, 4, 5, 7, 8, 9]]
    assert batch["labels"].tolist() == [[1, 2, 3, 5, 6, 8, 9, 10]]
    assert batch["offsets"].tolist() == [0, 3, 4, 5, 8]
    padded = Padded(numbered([4, 2]), context=4, shuffle=False)
    batch = Padded.collate([padded[0], padded[1]])
    assert batch["tokens"].tolist() == [[0, 1, 2, 10**6], [4] + [10**6] * 3]
    assert batch["labels"].tolist() == [[1, 2, 3, -100], [5, -100, -100, -100]]
    assert batch["mask"].tolist() == [[True] * 3 + [False], [True] + [False] * 3]


def test_a_model_scores_packed_and_padded_rows_like_documents_alone(store):
    """Total loss over all documents, three ways."""
    torch.manual_seed(0)
    end = store.val.offsets[6]
    held = replace(store.val, tokens=store.val.tokens[:end], offsets=store.val.offsets[:7])
    longest = int(np.diff(held.offsets).max())
    model = build_model(Model(vocab=store.vocab, context=longest, dim=16, depth=2)).double().eval()

    def loss(batch):
        extra = {name: batch[name] for name in ("mask", "offsets") if name in batch}
        logits = model(batch["tokens"], **extra).flatten(0, 1)
        return cross_entropy(logits, batch["labels"].flatten(), reduction="sum")

    documents = [torch.from_numpy(held.document(n).astype(np.int64)) for n in range(len(held))]
    with torch.no_grad():
        alone = sum(loss({"tokens": d[None, :-1], "labels": d[None, 1:]}) for d in documents)
        padded = Padded(held, context=longest)
        found = sum(loss(batch) for batch in DataLoader(padded, 7, collate_fn=Padded.collate))
        torch.testing.assert_close(found, alone)
        # one row holds all: no document is cut
        packed = Packed(held, context=len(held.tokens), remainder=True)
        torch.testing.assert_close(loss(Packed.collate([packed[0]])), alone)


def test_a_loader_with_processes_gives_the_same_batches(store):
    rows = Packed(store.train, context=64)
    batches = [Packed.collate([rows[n], rows[n + 1]]) for n in range(0, 8, 2)]
    loader = DataLoader(
        torch.utils.data.Subset(rows, range(8)),
        batch_size=2,
        collate_fn=Packed.collate,
        num_workers=1,
        multiprocessing_context="forkserver",
    )
    for expected, found in zip(batches, loader, strict=True):
        assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_split_goes_to_another_process_as_a_name(store):
    small = pickle.dumps(store.train)
    assert len(small) < 1000
    np.testing.assert_array_equal(pickle.loads(small).tokens, store.train.tokens)
    rows = Packed(store.train, context=32, seed=3, epoch=4)
    again = pickle.loads(pickle.dumps(rows))
    assert len(pickle.dumps(rows)) < 1000
    assert torch.equal(again[7]["tokens"], rows[7]["tokens"])
    split = pickle.loads(pickle.dumps(numbered([3, 4])))
    assert split.document(1).tolist() == [3, 4, 5, 6]


def test_nonsense_is_refused(store):
    with pytest.raises(ValueError, match="context=0 must be at least 1"):
        Padded(store.train, context=0)
    with pytest.raises(ValueError, match=r"'val' has no documents: .*--val-fraction"):
        Packed(
            Split(
                name="val",
                tokens=np.empty(0, np.uint16),
                offsets=np.zeros(1, np.int64),
                sizes=np.zeros(1, np.int64),
                pad=0,
            ),
            context=4,
        )
