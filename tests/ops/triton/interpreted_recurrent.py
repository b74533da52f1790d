"""Kernels of recurrent filters in Triton's interpreter, against the definition in float64.

Not collected by itself: test_interpreted.py runs this file in a process with TRITON_INTERPRET=1.
"""

from itertools import pairwise

import pytest
import torch

from tests.ops.test_recurrent import definition, random_filters, random_x
from tests.ops.triton.bounds import assert_equals_definition
from toeplix.ops import RecurrentDecoder, RecurrentState, recurrent_autograd, toeplitz_recurrent
from toeplix.ops.triton import recurrent

HALF = (torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def _only_kernels(monkeypatch):
    """No test passes because something else computed the product."""
    monkeypatch.setattr(recurrent_autograd.chunked, "forward", None)
    monkeypatch.setattr(recurrent_autograd.chunked, "gradient", None)


def continued(x, free, weights, decays, recent, sums):
    """The definition after a state: free taps read `recent`, and the sums decay."""
    reach, time = recent.shape[1], x.shape[1]
    short = definition(torch.cat([recent, x], 1), free, weights * 0, decays)[:, reach:]
    powers = decays[..., None] ** torch.arange(1, time + 1, dtype=x.dtype)
    y = short + definition(x, free * 0, weights, decays)
    y = y + torch.einsum("hr,hrt,brhc->bthc", weights, powers, sums)
    lags = decays[..., None] ** torch.arange(time - 1, -1, -1, dtype=x.dtype)
    last = torch.einsum("hrs,bshc->brhc", lags, x)
    return y, last + torch.einsum("hr,brhc->brhc", powers[..., -1], sums)


def check(batch, time, heads, channels, short=16, rank=8, dtype=torch.float32, layout=None):
    """Compare a product without a state, and one after a state, with values and all gradients."""
    sizes = (heads, channels)
    x, g = (random_x(batch, time, *sizes, dtype, seed=seed) for seed in (0, 1))
    x, g = (each if layout is None else layout(each) for each in (x, g))
    filters = random_filters(heads, short, rank, torch.float32)
    reach = max(0, short - 1)
    recent = random_x(batch, 64, *sizes, dtype, seed=2)[:, :reach]
    sums, change = (random_x(batch, 64, *sizes, torch.float32, seed=s)[:, :rank] for s in (3, 4))

    def ours(x, free, weights, decays, recent, sums):
        state = RecurrentState(recent, sums)
        y, last = toeplitz_recurrent(x, free, weights, decays, state=state)
        assert (y.dtype, y.is_contiguous()) == (dtype, True)
        return y, last.sums

    names = ("y", "final sums", "dx", "dfree", "dweights", "ddecays", "drecent", "dsums")
    given = (x, *filters, recent, sums)
    assert_equals_definition(ours, continued, given, (g, change), names)
    names = ("y", "dx", "dfree", "dweights", "ddecays")
    assert_equals_definition(
        lambda *a: toeplitz_recurrent(*a)[:1],
        lambda *a: (definition(*a),),
        (x, *filters),
        (g,),
        names,
    )


@pytest.mark.parametrize("time", [1, 2, 31, 32, 33, 65])
def test_lengths(time):
    check(2, time, 2, 3)


@pytest.mark.parametrize(("time", "dtype"), [(t, d) for t in (63, 129) for d in HALF])
def test_half_precision(time, dtype):
    check(2, time, 1, 5, dtype=dtype)


@pytest.mark.parametrize(("batch", "heads", "channels"), [(1, 3, 1), (37, 1, 1), (2, 1, 33)])
def test_columns(batch, heads, channels):
    """Tiles extend over rows and channels, full and not."""
    check(batch, 40, heads, channels)


@pytest.mark.parametrize(("short", "rank"), [(0, 1), (1, 17), (2, 3), (65, 2)])
def test_free_taps_and_decays(short, rank):
    check(1, 70, 1, 2, short, rank)


def test_layouts():
    check(2, 40, 2, 3, layout=lambda x: x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0))
    check(2, 40, 2, 3, layout=lambda x: torch.cat([x, x], -1)[..., :3])
    check(2, 40, 2, 3, layout=lambda x: x[:1].expand(2, -1, -1, -1))


def far_apart(x):
    """Return the same numbers with channels 2^30 numbers apart; only pages that are used take memory."""
    channels = x.shape[-1]
    memory = torch.empty((channels - 1) * 2**30 + x.numel(), dtype=x.dtype)
    return memory.as_strided(x.shape, (*x[..., 0].contiguous().stride(), 2**30)).copy_(x)


def test_offsets_beyond_32_bits():
    """The third channel is 2^31 numbers from the first."""
    check(1, 40, 1, 3, dtype=torch.bfloat16, layout=far_apart)
    x, filters = random_x(1, 5, 1, 3, torch.bfloat16), random_filters(1, 3, 2, torch.float32)
    near, far = (RecurrentDecoder(*filters, torch.zeros(1, 0, 1, 3)) for _ in range(2))
    assert far._fused
    for position in x.unbind(1):
        assert torch.equal(near.step(position), far.step(far_apart(position)))


def test_documents():
    """Packed documents are multiplied one by one, with the states of each recomputed for the gradient."""
    x, filters = random_x(1, 90, 2, 3, torch.float32), random_filters(2, 5, 3, torch.float32)
    bounds = [0, 7, 50, 90]

    def alone(x, *filters):
        parts = [x[:, a:b] for a, b in pairwise(bounds)]
        return (torch.cat([definition(part, *filters) for part in parts], 1),)

    names = ("y", "dx", "dfree", "dweights", "ddecays")
    assert_equals_definition(
        lambda *a: toeplitz_recurrent(*a, offsets=bounds)[:1],
        alone,
        (x, *filters),
        (random_x(1, 90, 2, 3, torch.float32, seed=1),),
        names,
    )


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize(
    ("bad", "cut"), [(float("nan"), 0), (float("inf"), 40), (float("nan"), 64), (3e38, 5)]
)
def test_nothing_reaches_back_or_to_another_row(bad, cut):
    """Neither a value that overflows the sums nor one that is not finite, in one channel of one row."""
    filters = random_filters(1, 4, 2, torch.float32)
    x = random_x(2, 70, 1, 3, torch.float32)
    spoiled = x.clone()
    spoiled[1, cut:, 0, 2] = bad
    (before, last), (after, later) = (toeplitz_recurrent(v, *filters) for v in (x, spoiled))
    untouched = torch.ones_like(x, dtype=torch.bool)
    untouched[1, cut:, 0, 2] = False
    assert torch.equal(before[untouched], after[untouched])
    rows = untouched[:, -1:].expand_as(last.sums)
    assert torch.equal(last.sums[rows], later.sums[rows])
    if not torch.isfinite(torch.tensor(bad)):
        assert after[1, cut:, 0, 2].isnan().all()
        assert later.sums[1, :, 0, 2].isnan().all()


def test_gradients_are_added_in_a_fixed_order(monkeypatch):
    """Every program has a matrix of its own; few programs with many items give the same sums."""
    filters = [part.requires_grad_() for part in random_filters(1, 4, 2, torch.float32)]
    x, g = (random_x(3, 200, 1, 20, torch.float32, seed=seed) for seed in (0, 1))

    def gradients():
        return torch.autograd.grad(toeplitz_recurrent(x, *filters)[0], filters, g)

    first, again = gradients(), gradients()
    assert all(map(torch.equal, first, again))
    monkeypatch.setattr(recurrent, "CORRELATION_PROGRAMS", 3)
    for ours, theirs in zip(gradients(), first, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("short", "rank"), [(4, 2), (1, 3), (0, 1), (3, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decode_steps_of_a_ragged_batch(short, rank, dtype):
    """Rows join with their own states and leave, and every one is decoded as if it were alone."""
    filters = random_filters(2, short, rank, torch.float32)
    rows = [random_x(1, 30, 2, 3, torch.float32, seed=seed).to(dtype) for seed in range(3)]

    def state_after(x):
        """Inputs and sums by the definition: with rank 0 no kernel computes a state."""
        x = x.float()
        reach, powers = max(0, short - 1), torch.arange(x.shape[1] - 1, -1, -1)
        recent = torch.cat([x.new_zeros(1, reach, 2, 3), x], 1)[:, x.shape[1] :]
        sums = torch.einsum("hrs,bshc->brhc", filters[2][..., None] ** powers, x)
        return RecurrentState(recent, sums)

    decoder = RecurrentDecoder(*filters, state_after(rows[0][:, :10]))
    assert decoder._fused
    got = {0: [], 1: [], 2: []}
    here, places, address = [0], {0: 10, 1: 4, 2: 7}, decoder._clock.data_ptr()
    for step in range(12):
        if step in (2, 5):
            here.append(1 if step == 2 else 2)
            decoder.append(state_after(rows[here[-1]][:, : places[here[-1]]]))
        if step == 8:
            decoder.select(torch.tensor([2, 1]))
            here = [here[2], here[1]]
        now = torch.cat([rows[i][:, places[i]] for i in here])
        # two layers of one head each; the second gets inputs with other strides
        both = decoder.emit(now[:, :1]), decoder.emit(now.transpose(1, 2).clone().mT[:, 1:], 1)
        decoder.advance()
        for index, i in enumerate(here):
            got[i].append(torch.cat(both, 1)[index])
            places[i] += 1
    assert decoder._clock.data_ptr() == address
    assert decoder._clock.item() == decoder.position == 12
    for i, outputs in got.items():
        first = places[i] - len(outputs)
        exact = definition(rows[i].double(), *(part.double() for part in filters))
        y = torch.stack(outputs).double()
        assert outputs[0].dtype == dtype
        error = (y - exact[0, first : places[i]]).abs().max().item()
        assert error <= 8 * torch.finfo(dtype).eps * exact.abs().max().item()


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_no_row_touches_another_in_a_decode_step():
    x, filters = random_x(3, 12, 2, 2, torch.float32), random_filters(2, 3, 2, torch.float32)
    spoiled = x.clone()
    spoiled[1, 3:] = float("nan")
    before, after = (
        torch.stack([state.step(part) for part in each.unbind(1)], 1)
        for each, state in (
            (each, RecurrentDecoder(*filters, torch.zeros(3, 0, 2, 2))) for each in (x, spoiled)
        )
    )
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert torch.equal(before[1, :3], after[1, :3])
    assert after[1, 3:].isnan().all()


def test_what_kernels_do_not_support_is_computed_elsewhere():
    x = random_x(1, 5, 1, 2, torch.float32)
    assert recurrent.supports(x, 65, 32)
    assert not recurrent.supports(x, 66, 2)
    assert not recurrent.supports(x, 2, 0)
    assert not recurrent.supports(x, 2, 33)
    assert not recurrent.supports(x.double(), 2, 2)
