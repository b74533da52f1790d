"""Recurrent filters in linear time against the definition: values, gradients, causality, state."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from tests.ops.oracle import assert_near, spelled_out
from toeplix.ops import (
    RecurrentState,
    chunked,
    recurrent_filter,
    recurrent_kernel,
    toeplitz_recurrent,
)
from toeplix.testing import assert_causal

pytestmark = pytest.mark.slow

SIZES = [1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1021]
NAMES = ("x", "free", "weights", "decays")


@pytest.fixture(params=["small chunks", "chunks", "small pieces"])
def cut(request, monkeypatch):
    """The ways to cut time and columns, which the size of x decides otherwise."""
    if request.param == "chunks":
        monkeypatch.setattr(recurrent_filter, "MIN_INPUTS", 0)
    if request.param == "small pieces":
        monkeypatch.setitem(chunked.PIECE_ELEMENTS, "cpu", 256)
        monkeypatch.setattr(chunked, "MIN_PIECE_COLUMNS", 4)
        monkeypatch.setattr(chunked, "MAX_STAGED_CHANNELS", 0)


def random_filters(heads, short=16, rank=8, dtype=torch.float64, seed=0):
    """Decays from nearly none to those that forget at once, another set for every head."""
    generator = torch.Generator().manual_seed(seed)
    free = torch.randn(heads, short, generator=generator, dtype=torch.float64) / 4
    weights = torch.randn(heads, rank, generator=generator, dtype=torch.float64) / 4
    spans = 10 ** (5 * torch.rand(heads, rank, generator=generator, dtype=torch.float64) - 1)
    return [part.to(dtype) for part in (free, weights, torch.exp(-1 / spans))]


def random_x(batch, time, heads, channels, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(time + 10_000 * seed)
    x = torch.randn(batch, time, heads, channels, generator=generator, dtype=torch.float64)
    return x.to(dtype)


def definition(x, free, weights, decays):
    """The loop over lags, with powers by repeated multiplication."""
    decays = decays.expand_as(weights)
    taps, power = [], torch.ones_like(decays)
    for lag in range(x.shape[1]):
        tap = (weights * power).sum(1)
        taps.append(tap + free[:, lag] if lag < free.shape[1] else tap)
        power = power * decays
    return spelled_out(x, torch.stack(taps, 1))


def size_of(x, filters):
    """A bound on the sums of absolute values that are added to an output."""
    free, weights, decays = (part.detach().double().abs() for part in filters)
    time = x.shape[1]
    taps = recurrent_kernel(free, weights, decays, time)
    return float(definition(x.detach().double().abs(), free, weights, decays).max()) + float(
        taps.max()
    )


def test_the_kernel_by_hand():
    kernel = recurrent_kernel(
        torch.tensor([[1.0, 10.0]]), torch.tensor([[1.0, 2.0]]), torch.tensor([0.5, 1.0]), 4
    )
    assert kernel.tolist() == [[4.0, 12.5, 2.25, 2.125]]


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("time", SIZES)
def test_values_equal_the_definition(time):
    x, filters = random_x(2, time, 2, 3), random_filters(2)
    y, _ = toeplitz_recurrent(x, *filters)
    assert_near(y, definition(x, *filters), size_of(x, filters), x.dtype)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("time", [1, 2, 17, 63, 64, 65, 130, 300])
@pytest.mark.parametrize(("heads", "channels"), [(1, 4), (3, 1)])
def test_gradients_equal_those_of_the_definition(time, heads, channels):
    """The witness is autograd through the loop of the definition."""
    inputs = [random_x(2, time, heads, channels), *random_filters(heads)]
    inputs = [each.requires_grad_() for each in inputs]
    g = random_x(2, time, heads, channels, seed=1)
    ours = torch.autograd.grad(toeplitz_recurrent(*inputs)[0], inputs, g)
    theirs = torch.autograd.grad(definition(*inputs), inputs, g, materialize_grads=True)
    for name, our, their in zip(NAMES, ours, theirs, strict=True):
        assert our.shape == their.shape
        torch.testing.assert_close(
            our, their, rtol=1e-9, atol=1e-11 * max(1, time) ** 2, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 5, 2, 2), (1, 9, 1, 2)])
@pytest.mark.parametrize(("short", "rank"), [(3, 2), (1, 1), (0, 2), (4, 0)])
def test_gradcheck_with_a_state(shape, short, rank):
    batch, _, heads, channels = shape
    x, (free, weights, decays) = random_x(*shape), random_filters(heads, short, rank)
    recent = random_x(batch, max(short - 1, 1), heads, channels, seed=2)[:, : max(short - 1, 0)]
    sums = random_x(batch, max(rank, 1), heads, channels, seed=3)[:, :rank]
    inputs = [part.clone().requires_grad_() for part in (x, free, weights, decays, recent, sums)]

    def function(x, free, weights, decays, recent, sums):
        first, after = toeplitz_recurrent(x, free, weights, decays * 0.9)
        state = RecurrentState(recent, sums)
        second, last = toeplitz_recurrent(x, free, weights, decays * 0.9, state=state)
        return first, *after, second, *last

    assert gradcheck(function, inputs)


def test_gradcheck_across_chunks():
    inputs = [random_x(1, recurrent_filter.SHORT_CHUNK_LENGTH + 6, 1, 1), *random_filters(1, 3, 2)]
    inputs[3] = inputs[3] * 0.999
    assert gradcheck(lambda *a: toeplitz_recurrent(*a)[0], [i.requires_grad_() for i in inputs])


@given(
    batch=st.integers(1, 3),
    time=st.integers(1, 300),
    heads=st.integers(1, 4),
    channels=st.integers(1, 6),
    short=st.integers(0, 80),
    rank=st.integers(0, 9),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
)
def test_any_shape_any_dtype(batch, time, heads, channels, short, rank, dtype):
    x = random_x(batch, time, heads, channels, dtype)
    filters = random_filters(heads, short, rank, dtype=torch.promote_types(dtype, torch.float32))
    y, state = toeplitz_recurrent(x, *filters)
    exact = definition(x.double(), *(part.double() for part in filters))
    assert (y.dtype, y.shape) == (dtype, x.shape)
    assert y.is_contiguous()
    work = torch.promote_types(dtype, torch.float32)
    assert state.sums.dtype == work
    # computed in the working precision, rounded once to the dtype of x
    rounding = torch.finfo(dtype).eps / torch.finfo(work).eps * exact.abs().max().item()
    assert_near(y, exact, size_of(x, filters) + rounding, work)


@pytest.mark.parametrize("decay", [1.0, 1 - 1e-7, 0.5, 1e-3, 1e-20, 1e-45])
def test_extreme_decays(decay):
    """Powers neither overflow nor lose their digits, in values and gradients."""
    x = random_x(1, 1000, 1, 2, torch.float32)
    free, weights, _ = random_filters(1, 2, 1, torch.float32)
    decays = torch.tensor([decay], dtype=torch.float64 if decay < 1e-40 else torch.float32)
    inputs = [part.requires_grad_() for part in (x, free, weights, decays)]
    y, _ = toeplitz_recurrent(*inputs)
    exact = definition(*(part.double() for part in inputs))
    assert_near(y, exact, size_of(x, (free, weights, decays)), torch.float32)
    ours, theirs = torch.autograd.grad(y.sum(), inputs), torch.autograd.grad(exact.sum(), inputs)
    for our, their in zip(ours, theirs, strict=True):
        assert our.isfinite().all()
        torch.testing.assert_close(our, their, rtol=2e-4, atol=2e-4)


def test_decays_for_all_heads_or_for_each():
    x, (free, weights, decays) = random_x(2, 90, 3, 2), random_filters(3)
    shared = decays[0].clone().requires_grad_()
    each = decays[:1].expand(3, -1).clone().requires_grad_()
    ys = [toeplitz_recurrent(x, free, weights, value)[0] for value in (shared, each)]
    assert torch.equal(*ys)
    grads = [
        torch.autograd.grad(y.square().sum(), value)[0]
        for y, value in zip(ys, (shared, each), strict=True)
    ]
    torch.testing.assert_close(grads[0], grads[1].sum(0))


def test_layouts():
    """Transposed, sliced, expanded inputs, and a gradient that is expanded."""
    x, filters = random_x(3, 150, 2, 4), random_filters(2)
    expected = definition(x, *filters)
    transposed = x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    for same in (transposed, torch.cat([x, x], -1)[..., :4]):
        assert not same.is_contiguous()
        torch.testing.assert_close(toeplitz_recurrent(same, *filters)[0], expected)
    expanded = x[:1].expand(3, -1, -1, -1)
    torch.testing.assert_close(
        toeplitz_recurrent(expanded, *filters)[0], expected[:1].expand(3, -1, -1, -1)
    )
    x.requires_grad_()
    (dx,) = torch.autograd.grad(toeplitz_recurrent(x, *filters)[0].sum(), x)
    (ex,) = torch.autograd.grad(definition(x, *filters).sum(), x)
    torch.testing.assert_close(dx, ex)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("time", [65, 300])
def test_causality_is_exact(time):
    filters = random_filters(2, dtype=torch.float32)
    x = random_x(2, time, 2, 3, torch.float32)
    assert_causal(lambda x: toeplitz_recurrent(x, *filters)[0], x, tolerance=0, scale=1e20)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e20, 3e38])
@pytest.mark.parametrize("rank", [0, 8])
@pytest.mark.parametrize("cut", [0, 5, 70, 200])
def test_nothing_reaches_back_or_to_another_row(bad, rank, cut):
    """Neither a value that overflows the sums nor one that is not a number, in one channel of one row."""
    filters = random_filters(2, rank=rank, dtype=torch.float32)
    x = random_x(3, 210, 2, 3, torch.float32)
    spoiled = x.clone()
    spoiled[1, cut:, 1, 2] = bad
    (before, last), (after, later) = (toeplitz_recurrent(v, *filters) for v in (x, spoiled))
    untouched = torch.ones_like(x, dtype=torch.bool)
    untouched[1, cut:, 1, 2] = False
    assert torch.equal(before[untouched], after[untouched])
    rows = untouched[:, -1:].expand_as(last.sums)
    assert torch.equal(last.sums[rows], later.sums[rows])
    if not torch.isfinite(torch.tensor(bad)):
        assert after[1, cut:, 1, 2].isnan().all()


def test_one_that_is_not_finite_after_another():
    filters = random_filters(1, dtype=torch.float32)
    x = random_x(1, 100, 1, 1, torch.float32)
    x[0, 40] = float("inf")
    before, _ = toeplitz_recurrent(x, *filters)
    x[0, 43] = float("nan")
    after, _ = toeplitz_recurrent(x, *filters)
    torch.testing.assert_close(before[:, :43], after[:, :43], rtol=0, atol=0, equal_nan=True)


@given(lengths=st.lists(st.integers(0, 150), min_size=1, max_size=9).filter(any))
def test_packed_equals_document_by_document(lengths):
    offsets = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    inputs = [random_x(1, offsets[-1], 2, 3), *random_filters(2, 5, 3)]
    inputs = [part.requires_grad_() for part in inputs]
    x, *filters = inputs
    y, state = toeplitz_recurrent(x, *filters, offsets=offsets)
    alone = [toeplitz_recurrent(x[:, a:b], *filters) for a, b in pairwise(offsets) if b > a]
    torch.testing.assert_close(y, torch.cat([part for part, _ in alone], 1))
    kept = torch.tensor(lengths) > 0
    for ours, theirs in zip(state, zip(*(each for _, each in alone), strict=True), strict=True):
        torch.testing.assert_close(ours[kept], torch.cat(theirs))
        assert not ours[~kept].any()
    g, other = torch.randn_like(y), torch.randn_like(state.sums)
    ours = torch.autograd.grad([y, state.sums], inputs, [g, other])
    sums = torch.cat([each.sums for _, each in alone])
    theirs = torch.autograd.grad(
        [torch.cat([part for part, _ in alone], 1), sums], inputs, [g, other[kept]]
    )
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)


@pytest.mark.parametrize("bad", [float("nan"), 1e30])
def test_no_document_touches_another(bad):
    x, filters = random_x(1, 90, 1, 4, torch.float32), random_filters(1, dtype=torch.float32)
    other = x.clone()
    other[:, :30], other[:, 60:] = bad, 1e30
    before, after = (toeplitz_recurrent(v, *filters, offsets=[0, 30, 60, 90]) for v in (x, other))
    assert torch.equal(before[0][:, 30:60], after[0][:, 30:60])
    assert torch.equal(before[1].sums[1], after[1].sums[1])


def test_padding_is_not_read_and_gives_zero():
    x, filters = random_x(3, 100, 2, 2), random_filters(2)
    mask = torch.zeros(3, 100, dtype=torch.bool)
    mask[0, :70], mask[1, 45:], mask[2, 7:93] = True, True, True
    x[~mask] = float("nan")
    x.requires_grad_()
    y, state = toeplitz_recurrent(x, *filters, mask=mask)
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert not y[~mask].any()
    assert not dx[~mask].any()
    for row, real in enumerate(mask):
        alone, last = toeplitz_recurrent(x[row : row + 1, real], *filters)
        torch.testing.assert_close(y[row, real], alone[0])
        torch.testing.assert_close(state.sums[row], last.sums[0])
        torch.testing.assert_close(state.recent[row], last.recent[0])


@given(cuts=st.lists(st.integers(1, 299), min_size=1, max_size=5, unique=True))
def test_pieces_continue_each_other(cuts):
    x, filters = random_x(2, 300, 2, 2), random_filters(2)
    whole, last = toeplitz_recurrent(x, *filters)
    outputs, state = [], None
    for a, b in pairwise([0, *sorted(cuts), 300]):
        y, state = toeplitz_recurrent(x[:, a:b], *filters, state=state)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), whole)
    torch.testing.assert_close(state.sums, last.sums)
    assert torch.equal(state.recent, last.recent)


def test_a_state_does_not_keep_the_sequence_alive():
    x, filters = random_x(1, 500, 1, 2), random_filters(1)
    for state in (None, toeplitz_recurrent(x, *filters)[1]):
        _, after = toeplitz_recurrent(x, *filters, state=state)
        assert after.recent.untyped_storage().nbytes() == after.recent.nbytes


def test_autocast_keeps_full_precision_inside():
    x, filters = random_x(1, 200, 2, 4, torch.float32), random_filters(2, dtype=torch.float32)
    inputs = [part.requires_grad_() for part in (x, *filters)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = toeplitz_recurrent(*inputs)
        low, _ = toeplitz_recurrent(x.bfloat16(), *filters)
    assert (y.dtype, low.dtype) == (torch.float32, torch.bfloat16)
    exact = definition(*(part.double() for part in inputs))
    assert_near(y, exact, size_of(x, filters), torch.float32)
    grads = torch.autograd.grad(low.float().sum(), inputs)
    assert all(grad.dtype == torch.float32 for grad in grads)


def test_only_the_gradient_that_is_needed():
    x, filters = random_x(1, 200, 1, 2), random_filters(1)
    y, _ = toeplitz_recurrent(x.clone().requires_grad_(), *filters)
    saved = y.grad_fn.saved_tensors
    assert saved[0] is None, "frozen filters must not keep x alive"
    assert saved[1].numel() == 0, "nor the sums"
    filters[1].requires_grad_()
    y, _ = toeplitz_recurrent(x, *filters)
    kept, states = y.grad_fn.saved_tensors[:2]
    chunks = -(-200 // recurrent_filter.SHORT_CHUNK_LENGTH)
    assert (kept.numel(), states.numel()) == (x.numel(), 8 * 2 * chunks)
    (dweights,) = torch.autograd.grad(y.sum(), filters[1])
    assert dweights.shape == filters[1].shape


def test_empty_batches_pass():
    inputs = [torch.empty(0, 5, 2, 3), *random_filters(2, dtype=torch.float32)]
    inputs = [part.requires_grad_() for part in inputs]
    y, state = toeplitz_recurrent(*inputs)
    y.sum().backward()
    assert y.shape == inputs[0].shape
    assert state.sums.shape == (0, 8, 2, 3)
    assert not any(part.grad.any() for part in inputs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_fake_and_meta_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    inputs = [random_x(1, 70, 2, 2), *random_filters(2)]
    with FakeTensorMode() as mode:
        y, state = toeplitz_recurrent(*(mode.from_tensor(part) for part in inputs))
    assert (y.shape, state.sums.shape) == ((1, 70, 2, 2), (1, 8, 2, 2))
    y, state = toeplitz_recurrent(*(part.to("meta") for part in inputs))
    assert (y.shape, state.recent.shape) == ((1, 70, 2, 2), (1, 15, 2, 2))


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments():
    x, (free, weights, decays) = random_x(2, 9, 2, 3), random_filters(2, 4, 2)
    state = toeplitz_recurrent(x, free, weights, decays)[1]
    with pytest.raises(ValueError, match=r"decays must lie in \(0, 1\], got 1.5"):
        toeplitz_recurrent(x, free, weights, torch.tensor([0.5, 1.5]))
    with pytest.raises(ValueError, match=r"decays must lie in \(0, 1\], got 0.0"):
        toeplitz_recurrent(x, free, weights, torch.tensor([0.5, 0.0]))
    with pytest.raises(ValueError, match=r"decays must be \(h, r\) = \(2, 2\)"):
        toeplitz_recurrent(x, free, weights, decays[:, :1])
    with pytest.raises(ValueError, match="the same h, got"):
        toeplitz_recurrent(x, free[:1], weights, decays)
    with pytest.raises(ValueError, match="free has 1 heads"):
        toeplitz_recurrent(x, free[:1], weights[:1], decays[:1])
    with pytest.raises(TypeError, match=r"weights must be .* got torch.int64"):
        toeplitz_recurrent(x, free, weights.long(), decays)
    with pytest.raises(
        ValueError, match=r"state.sums must be .* \(1, 2, 2, 3\), got \(2, 2, 2, 3\)"
    ):
        toeplitz_recurrent(x[:1], free, weights, decays, state=state._replace(recent=x[:1, :3]))
    with pytest.raises(ValueError, match="one of state, offsets"):
        toeplitz_recurrent(x[:1], free, weights, decays, state=state, offsets=[0, 9])
    with pytest.raises(ValueError, match="packed documents lie in one row"):
        toeplitz_recurrent(x, free, weights, decays, offsets=[0, 9])
