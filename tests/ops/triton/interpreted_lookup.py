"""Kernels of lookup with recurrent filters in Triton's interpreter, against the definition in float64.

Not collected by itself: test_interpreted.py runs this file in a process with TRITON_INTERPRET=1.
"""

import pytest
import torch

from tests.ops.triton.bounds import assert_equals_definition
from tests.ops.triton.interpreted_recurrent import far_apart
from toeplix.ops import lookup_chunks, lookup_tiles
from toeplix.ops.lookup import (
    lookup_dense,
    lookup_recurrent_whole,
    toeplitz_lookup_recurrent,
)
from toeplix.ops.triton import lookup

NAMES = ("y", "last state", "dq", "dk", "dv", "dweights", "ddecays", "dstate")


def definition(q, k, v, weights, decays, state):
    """The matrix of every head, and the state before it, which decays."""
    time = torch.arange(q.shape[1], dtype=q.dtype)
    y = lookup_dense(q, k, v, torch.einsum("hr,rt->ht", weights, decays[:, None] ** time))
    powers = decays[:, None] ** (time + 1)
    y = y + torch.einsum("bthe,hr,rt,brhec->bthc", q, weights, powers, state)
    added = torch.einsum("rs,bshe,bshc->brhec", decays[:, None] ** time.flip(0), k, v)
    return y, added + powers[:, -1, None, None, None] * state


def random_inputs(batch, time, heads, keys, values, rank, dtype=torch.float32):
    """Return the inputs, and changes of the outputs."""
    generator = torch.Generator().manual_seed(time)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    q, k = (normal(batch, time, heads, keys).to(dtype) for _ in range(2))
    v, g = (normal(batch, time, heads, values).to(dtype) for _ in range(2))
    state, change = (normal(batch, rank, heads, keys, values) for _ in range(2))
    decays = torch.exp(-1 / 10 ** (3 * torch.rand(rank, generator=generator) - 1))
    return (q, k, v, normal(heads, rank), decays, state), (g, change)


class Kernels(torch.autograd.Function):
    """The kernels by themselves, which return the gradient of decays too."""

    @staticmethod
    def forward(ctx, q, k, v, weights, decays, state):
        assert lookup.supports(q, k, v, len(decays))
        y, states = lookup.forward(q, k, v, weights, decays.expand_as(weights), state)
        assert (y.dtype, states.dtype, y.is_contiguous()) == (v.dtype, torch.float32, True)
        ctx.save_for_backward(q, k, v, weights, decays, states)
        return y, states[-1].clone()

    @staticmethod
    def backward(ctx, g, final):
        *inputs, decays, states = ctx.saved_tensors
        found = lookup.backward(g, final, *inputs, decays.expand_as(inputs[3]), states)
        return *found[:4], found.decays.sum(0), found.state


@pytest.mark.parametrize(
    ("batch", "time", "heads", "keys", "values", "rank", "dtype"),
    [
        (1, 1, 1, 2, 3, 2, torch.float32),
        (2, 33, 1, 3, 2, 1, torch.float32),
        (1, 63, 2, 1, 1, 2, torch.float32),
        (1, 129, 1, 5, 9, 2, torch.float32),
        (1, 90, 1, 13, 3, 5, torch.float32),  # chunks of several blocks
        (1, 40, 1, 4, 35, 2, torch.float32),  # two tiles of values
        (1, 64, 1, 8, 4, 2, torch.bfloat16),
        (1, 70, 1, 3, 65, 2, torch.bfloat16),
        (1, 65, 1, 4, 8, 2, torch.float16),
    ],
)
def test_values_and_gradients(batch, time, heads, keys, values, rank, dtype):
    inputs, changes = random_inputs(batch, time, heads, keys, values, rank, dtype)
    assert_equals_definition(Kernels.apply, definition, inputs, changes, NAMES)


def test_offsets_beyond_32_bits():
    """The third channel of every sequence is 2^31 numbers from the first."""
    (q, k, v, *filters), (g, change) = random_inputs(1, 40, 1, 3, 3, 2, torch.bfloat16)
    inputs = (*map(far_apart, (q, k, v)), *filters)
    assert_equals_definition(Kernels.apply, definition, inputs, (far_apart(g), change), NAMES)


def test_the_operator_uses_the_kernels(monkeypatch):
    """With a state and without one, and for sequences with strides."""
    monkeypatch.setattr(lookup_chunks, "forward", None)
    monkeypatch.setattr(lookup_chunks, "gradient", None)
    (q, k, v, weights, decays, state), changes = random_inputs(2, 20, 2, 3, 3, 2)
    packed = torch.stack([q, k, v], 3).transpose(1, 2).contiguous().transpose(1, 2)

    def ours(packed, weights, state):
        parts = (*packed.unbind(3), weights, decays)
        y, last = toeplitz_lookup_recurrent(*parts, state=state)
        return y, last, toeplitz_lookup_recurrent(*parts)[0]

    def exact(packed, weights, state):
        parts = (*packed.unbind(3), weights, decays.double())
        return *definition(*parts, state), definition(*parts, torch.zeros_like(state))[0]

    names = ("y", "last state", "y alone", "dqkv", "dweights", "dstate")
    changes = (*changes, changes[0])
    assert_equals_definition(ours, exact, (packed, weights, state), changes, names)


def test_training_lengths_take_the_kernels(monkeypatch):
    """Block rows are for devices without them."""
    for module in (lookup_chunks, lookup_tiles):
        monkeypatch.setattr(module, "forward", None)
    (q, k, v, weights, decays, _), _ = random_inputs(1, 20, 1, 2, 3, 2)
    whole = lookup_recurrent_whole(q, k, v, weights, decays)
    assert torch.equal(whole, toeplitz_lookup_recurrent(q, k, v, weights, decays)[0])


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # NumPy's, in the interpreter
def test_nothing_reaches_back():
    (q, k, v, weights, decays, _), _ = random_inputs(1, 70, 1, 2, 2, 2)
    before, _ = toeplitz_lookup_recurrent(q, k, v, weights, decays)
    k[0, 40, 0, 1] = float("nan")
    after, last = toeplitz_lookup_recurrent(q, k, v, weights, decays)
    assert torch.equal(before[:, :40], after[:, :40])
    assert after[:, 40:].isnan().all()
    assert last.isnan().all()


def test_scores_beyond_the_range_of_float16():
    (q, k, v, weights, decays, _), _ = random_inputs(1, 20, 1, 4, 4, 2, torch.float16)
    q, k, v = 300 * q, 300 * k, v / 1000
    assert (q.double() @ k.double().mT).abs().max() > torch.finfo(torch.float16).max
    y, _ = toeplitz_lookup_recurrent(q, k, v, weights, decays)
    exact, _ = definition(
        *(each.double() for each in (q, k, v, weights, decays, torch.zeros(1, 2, 1, 4, 4)))
    )
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=1e-3 * exact.abs().max().item())


def test_what_kernels_do_not_support_is_computed_elsewhere():
    q, v = torch.zeros(1, 3, 1, 128), torch.zeros(1, 3, 1, 128)
    assert lookup.supports(q, q, v, 1)
    assert not lookup.supports(q, q, v, 0)
    assert not lookup.supports(q.half(), q, v, 1)
    assert not lookup.supports(q.double(), q.double(), v.double(), 1)
    assert not lookup.supports(q, q, torch.zeros(1, 3, 1, 129), 1)
    assert not lookup.supports(q[:0], q[:0], v[:0], 1)
