"""Empty shapes: no rows, heads or channels give results of that shape everywhere; no positions do not."""

import pytest
import torch

from tests.ops.cpu_paths import CPU_PATHS
from toeplix import (
    decoder,
    toeplitz,
    toeplitz_continued,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_windowed,
)
from toeplix.ops import DECODERS, RecurrentDecoder, toeplitz_recurrent
from toeplix.ops.decoding.online import LEAF
from toeplix.ops.decoding.ragged import RaggedDecoder

SHAPES = [(0, 2, 3), (2, 0, 3), (2, 2, 0), (1, 0, 3), (1, 2, 0), (0, 0, 0), (0, 1, 1), (1, 1, 0)]
TIMES = [1, 40, 600]

pytestmark = pytest.mark.usefixtures("unchecked")


def calls(path, taps, batch, time):
    mask = torch.ones(batch, time, dtype=torch.bool)
    mask[:, time // 2 :] = False
    first = time // 3
    found = {
        "whole": lambda x, w: toeplitz(x, w, path=path),
        "windowed": lambda x, w: toeplitz_windowed(x, w[:, :7], path=path),
        "padded": lambda x, w: toeplitz_padded(x, w, mask, path=path),
        "continued": lambda x, w: toeplitz_continued(x, w, x[:, :first], path=path),
    }
    if batch == 1:
        found["packed"] = lambda x, w: toeplitz_packed(x, w, [0, first, first, time], path=path)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("path", [*CPU_PATHS, "auto"])
def test_products_and_gradients_of_nothing(path, time, dtype):
    for batch, heads, channels in SHAPES:
        for name, call in calls(path, time, batch, time).items():
            x = torch.ones(batch, time, heads, channels, dtype=dtype)
            kernel = torch.ones(heads, time, dtype=dtype)
            with torch.no_grad():
                assert call(x, kernel).shape == x.shape, name
            x.requires_grad_(), kernel.requires_grad_()
            y = call(x, kernel)
            assert y.shape == x.shape, name
            assert y.dtype == dtype, name
            y.sum().backward()
            assert x.grad.shape == x.shape, name
            assert torch.equal(kernel.grad, torch.zeros_like(kernel)), name


@pytest.mark.parametrize("past", [0, 300])
@pytest.mark.parametrize("kind", [*DECODERS, "ragged"])
def test_decoders_of_nothing(kind, past):
    for batch, heads, channels in SHAPES:
        kernel = torch.ones(heads, 400)
        inputs = torch.ones(batch, past, heads, channels)
        ragged = kind == "ragged"
        state = RaggedDecoder(kernel, inputs, 900) if ragged else decoder(kernel, inputs, kind=kind)
        for _ in range(5 * LEAF):
            assert state.step(torch.ones(batch, heads, channels)).shape == (batch, heads, channels)
        rows = torch.arange(batch).repeat(2)
        state.select(rows)
        if ragged:
            state.append(torch.ones(3, 5, heads, channels))
        for _ in range(5 * LEAF):
            x = torch.ones(2 * batch + 3 * ragged, heads, channels)
            assert state.step(x).shape == x.shape


@pytest.mark.parametrize("kind", [*DECODERS, "ragged"])
def test_a_batch_may_run_empty_and_fill_again(kind):
    kernel = torch.ones(2, 300)
    past = torch.ones(2, 9, 2, 3)
    state = (
        RaggedDecoder(kernel, past, 600) if kind == "ragged" else decoder(kernel, past, kind=kind)
    )
    state.step(torch.ones(2, 2, 3))
    state.select(torch.tensor([], dtype=torch.int64))
    for _ in range(5 * LEAF):
        assert state.step(torch.ones(0, 2, 3)).shape == (0, 2, 3)
    if kind == "ragged":
        state.append(past)
        assert torch.equal(state.step(torch.ones(2, 2, 3)), torch.full((2, 2, 3), 10.0))


def recurrent_calls(filters, batch, time):
    mask = torch.ones(batch, time, dtype=torch.bool)
    mask[:, time // 2 :] = False

    def continued(x):
        return toeplitz_recurrent(x, *filters, state=toeplitz_recurrent(x, *filters)[1])

    found = {
        "whole": lambda x: toeplitz_recurrent(x, *filters),
        "continued": continued,
        "padded": lambda x: toeplitz_recurrent(x, *filters, mask=mask),
    }
    if batch == 1:
        found["packed"] = lambda x: toeplitz_recurrent(x, *filters, offsets=[0, 0, time])
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize(("short", "rank"), [(5, 3), (0, 2), (4, 0)])
def test_recurrent_products_and_gradients_of_nothing(short, rank, time, dtype):
    for batch, heads, channels in SHAPES:
        filters = [
            torch.full((heads, count), 0.5, requires_grad=True) for count in (short, rank, rank)
        ]
        for name, call in recurrent_calls(filters, batch, time).items():
            x = torch.ones(batch, time, heads, channels, dtype=dtype)
            with torch.no_grad():
                assert call(x)[0].shape == x.shape, name
            x.requires_grad_()
            y, state = call(x)
            assert (y.shape, y.dtype) == (x.shape, dtype), name
            rows = 2 if name == "packed" else batch
            assert state.recent.shape == (rows, max(0, short - 1), heads, channels), name
            assert state.sums.shape == (rows, rank, heads, channels), name
            grads = torch.autograd.grad(y.sum() + state.sums.sum(), [x, *filters])
            assert grads[0].shape == x.shape, name
            for grad, value in zip(grads[1:], filters, strict=True):
                assert torch.equal(grad, torch.zeros_like(value)), name


@pytest.mark.parametrize("past", [0, 40])
@pytest.mark.parametrize(("short", "rank"), [(5, 3), (0, 2), (4, 0)])
def test_recurrent_decoders_of_nothing(short, rank, past):
    for batch, heads, channels in SHAPES:
        filters = [torch.full((heads, count), 0.5) for count in (short, rank, rank)]
        x = torch.ones(batch, past, heads, channels)
        begin = toeplitz_recurrent(x, *filters)[1] if past else x
        for given in (x, begin):
            state = RecurrentDecoder(*filters, given)
            assert state.step(torch.ones(batch, heads, channels)).shape == (batch, heads, channels)
            state.select(torch.arange(batch).repeat(2))
            state.append(given)
            state.append(torch.ones(3, 5, heads, channels))
            for _ in range(20):
                now = torch.ones(3 * batch + 3, heads, channels)
                assert state.step(now).shape == now.shape


def test_a_batch_of_a_recurrent_decoder_may_run_empty_and_fill_again():
    filters = torch.ones(2, 4), torch.ones(2, 1), torch.ones(2, 1)
    state = RecurrentDecoder(*filters, torch.ones(2, 9, 2, 3))
    state.select(torch.tensor([], dtype=torch.int64))
    for _ in range(9):
        assert state.step(torch.ones(0, 2, 3)).shape == (0, 2, 3)
    state.append(torch.ones(2, 9, 2, 3))
    assert torch.equal(state.step(torch.ones(2, 2, 3)), torch.full((2, 2, 3), 14.0))


def test_recurrent_products_without_positions_are_rejected():
    with pytest.raises(ValueError, match="x has no positions: t must be at least 1"):
        toeplitz_recurrent(torch.ones(1, 0, 2, 3), *(torch.full((2, 2), 0.5) for _ in range(3)))


@pytest.mark.parametrize("name", ["whole", "windowed", "padded", "continued", "packed"])
def test_no_positions_are_rejected_in_one_way(name):
    call = calls("auto", 5, 1, 0)[name]
    with pytest.raises(ValueError, match="x has no positions: t must be at least 1"):
        call(torch.ones(1, 0, 2, 3), torch.ones(2, 5))
    with pytest.raises(ValueError, match="kernel has no taps: n must be at least 1"):
        calls("auto", 5, 1, 4)[name](torch.ones(1, 4, 2, 3), torch.ones(2, 0))
