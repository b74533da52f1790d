"""Documents and padding: equal to one document at a time, values and gradients."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.cpu_paths import CPU_PATHS
from tests.ops.oracle import random_pair, spelled_out
from toeplix import toeplitz_packed, toeplitz_padded
from toeplix.ops.packed import MIN_LENGTH_RATIO, SHORT_SEGMENT, groups


def by_document(x, kernel, offsets):
    parts = [x[:, a:b] for a, b in pairwise(offsets) if b > a]
    return torch.cat([spelled_out(part, kernel) for part in parts], 1)


@pytest.mark.slow
@given(lengths=st.lists(st.integers(0, 150), min_size=1, max_size=12).filter(any))
def test_packed_equals_document_by_document(lengths):
    offsets = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    x, kernel = (part.requires_grad_() for part in random_pair(1, offsets[-1], 2, 3, 150))
    g = torch.randn_like(x)
    y, expected = toeplitz_packed(x, kernel, offsets), by_document(x, kernel, offsets)
    torch.testing.assert_close(y, expected)
    for ours, theirs in zip(
        torch.autograd.grad(y, (x, kernel), g),
        torch.autograd.grad(expected, (x, kernel), g),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_second_derivatives():
    x, kernel = (part.requires_grad_() for part in random_pair(1, 9, 1, 2))
    assert torch.autograd.gradgradcheck(lambda x, k: toeplitz_packed(x, k, [0, 4, 9]), (x, kernel))


@pytest.mark.parametrize("path", ["auto", *CPU_PATHS])
def test_no_document_touches_another(path):
    """Not even by rounding: the others, which share its batch, may hold anything, NaN included."""
    x, kernel = random_pair(1, 90, 1, 4, dtype=torch.float32)
    offsets = torch.tensor([0, 30, 60, 90])
    other = x.clone()
    other[:, :30], other[:, 60:] = float("nan"), 1e30
    before, after = (toeplitz_packed(v, kernel, offsets, path=path) for v in (x, other))
    assert torch.equal(before[:, 30:60], after[:, 30:60])


def test_gradients_of_a_half_precision_kernel_are_rounded_once():
    lengths = [3 + 7 * step for step in range(12)]
    offsets = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    x, kernel = random_pair(1, offsets[-1], 1, 4, 100, dtype=torch.float32)
    low = kernel.bfloat16().requires_grad_()
    (got,) = torch.autograd.grad(toeplitz_packed(x, low, offsets).sum(), low)
    exact = low.detach().double().requires_grad_()
    (truth,) = torch.autograd.grad(by_document(x.double(), exact, offsets).sum(), exact)
    ulp = torch.finfo(torch.bfloat16).eps
    assert ((got.double() - truth).abs() <= 0.51 * ulp * truth.abs() + 1e-4).all()


@pytest.mark.parametrize("kind", [torch.bool, torch.int64])
def test_padded_equals_the_document_alone(kind):
    x, kernel = random_pair(4, 60, 2, 3)
    x.requires_grad_()
    kernel.requires_grad_()
    runs = [(0, 60), (0, 41), (35, 60), (7, 50)]
    mask = torch.zeros(4, 60, dtype=kind)
    for row, (first, last) in enumerate(runs):
        mask[row, first:last] = 1
    y = toeplitz_padded(x, kernel, mask)
    alone = torch.zeros_like(x)
    for row, (first, last) in enumerate(runs):
        alone[row, first:last] = spelled_out(x[row : row + 1, first:last], kernel)[0]
    torch.testing.assert_close(y, alone)
    g = torch.randn_like(x)
    for ours, theirs in zip(
        torch.autograd.grad(y, (x, kernel), g),
        torch.autograd.grad(alone, (x, kernel), g),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_row_of_nothing_but_padding():
    x, kernel = random_pair(2, 5, 1, 2)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    y = toeplitz_padded(x, kernel, mask)
    assert y[1].abs().max() == 0
    torch.testing.assert_close(y[0], spelled_out(x, kernel)[0])


@given(lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=200))
def test_the_work_is_near_the_sum_of_the_documents(lengths):
    """Padding adds at most a third, and short documents are rounded up together."""
    total = sum(lengths)
    x = torch.empty(1, total, 1, 1)
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    made = groups(x, 5000, starts, torch.tensor(lengths))
    work = sum(group.real.numel() for group in made)
    assert work <= total / MIN_LENGTH_RATIO + SHORT_SEGMENT * len(lengths)
    covered = torch.cat([group.positions[group.real] for group in made])
    assert torch.equal(covered.sort().values, torch.arange(total))
