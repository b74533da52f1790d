"""Longer than the kernel, and chunk after chunk: one rule, equal to the loop that states it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.oracle import random_pair, spelled_out
from toeplix import toeplitz_continued, toeplitz_windowed
from toeplix.ops.continuation import carry


@given(time=st.integers(1, 400), taps=st.integers(1, 120), channels=st.integers(1, 3))
def test_windowed_is_the_sliding_window_rule(time, taps, channels):
    x, kernel = random_pair(2, time, 2, channels, taps)
    torch.testing.assert_close(toeplitz_windowed(x, kernel), spelled_out(x, kernel))


@given(
    chunks=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    taps=st.integers(1, 200),
    exact=st.booleans(),
)
def test_chunks_equal_one_shot(chunks, taps, exact):
    time = sum(chunks)
    x, kernel = random_pair(2, time, 2, 2, taps)
    pieces, done = [], 0
    for size in chunks:
        history = x[:, max(0, done - taps + 1) : done]
        pieces.append(toeplitz_continued(x[:, done : done + size], kernel, history, exact=exact))
        done += size
    torch.testing.assert_close(torch.cat(pieces, 1), spelled_out(x, kernel))


def test_a_long_past_goes_through_spectra():
    x, kernel = random_pair(1, 1500, 1, 2, 1400)
    y = toeplitz_continued(x[:, 1000:], kernel, x[:, :1000])
    torch.testing.assert_close(y, spelled_out(x, kernel)[:, 1000:])


def test_gradients_reach_the_past():
    x, kernel = random_pair(1, 30, 1, 2, 12)
    past, chunk = x[:, :18].clone().requires_grad_(), x[:, 18:].clone().requires_grad_()
    kernel.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda chunk, kernel, past: toeplitz_continued(chunk, kernel, past), (chunk, kernel, past)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_continuing_keeps_the_dtype(dtype):
    x, kernel = random_pair(1, 40, 1, 2, dtype=dtype)
    y = toeplitz_continued(x[:, 20:], kernel, x[:, :20])
    assert y.dtype == dtype
    expected = spelled_out(x.double(), kernel.double())[:, 20:]
    scale = expected.abs().max().item()
    torch.testing.assert_close(
        y.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps * scale
    )


@given(past=st.integers(0, 300), ahead=st.integers(1, 300), taps=st.integers(1, 500))
def test_carry_by_the_definition(past, ahead, taps):
    x, kernel = random_pair(1, past + ahead, 2, 2, taps)
    only_past = x.clone()
    only_past[:, past:] = 0
    expected = spelled_out(only_past, kernel)[:, past:]
    torch.testing.assert_close(carry(x[:, :past], kernel, ahead), expected)
