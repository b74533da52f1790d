"""Recurrent filters: a few free taps and r decays, multiplied in linear time.

    w[l] = free[l] (l < short) + sum over j < r of weights[j] * decays[j]^l        one filter per head

    recurrent_kernel     the filter at every lag: `toeplitz(x, recurrent_kernel(...))` is the definition
    toeplitz_recurrent   the same product in O(t), and the state after it         chunked.py
    RecurrentDecoder     one position at a time from such a state                 decoding/recurrent.py

The state of a channel is its last short - 1 inputs and r sums, whatever the length:

    sums[j] = sum over s <= t of decays[j]^(t - s) * x[s]

Axes: b batch, t time, h heads, c channels of one head, r decays.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from toeplix.ops.autograd import product as toeplitz_product
from toeplix.ops.checks import check_mask, check_offsets, check_sequence
from toeplix.ops.dispatch import AUTO_EXACT
from toeplix.ops.recurrent_autograd import product
from toeplix.ops.recurrent_filter import Filter
from toeplix.ops.segments import Segments, segments_from_mask, segments_from_offsets

# Sequences up to this length, with at least so many channels per head, are faster as tiles of the matrix:
# 2.8 against 7.2 ms at t=128 for one head of 96 channels, 4.5 against 6.7 for 8 heads of 12 (batch 16,
# forward and backward, one thread). With one channel per head the recurrence is faster at any length.
TILED_TIME, TILED_CHANNELS = 128, 8


class RecurrentState(NamedTuple):
    """The state of a product with recurrent filters between two positions."""

    recent: Float[Tensor, "b e h c"]  # the last short - 1 inputs, zeros before the first
    sums: Float[Tensor, "b r h c"]  # in the working precision


def recurrent_kernel(
    free: Float[Tensor, "h short"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, "#h r"] | Float[Tensor, " r"],
    time: int,
) -> Float[Tensor, "h time"]:
    """Return the filters at the lags `0 .. time - 1`, `w[l] = free[l] + sum_j weights[j] decays[j]^l`.

    >>> recurrent_kernel(torch.tensor([[1.0, 1.0]]), torch.ones(1, 1), torch.tensor([0.5]), 4).tolist()
    [[2.0, 1.5, 0.25, 0.125]]
    """
    check_filter(free, weights, decays)
    filters = Filter(free.double(), weights.double(), decays.double().expand_as(weights))
    return filters.taps(time).to(free.dtype)


def toeplitz_recurrent(
    x: Float[Tensor, "b t h c"],
    free: Float[Tensor, "h short"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, "#h r"] | Float[Tensor, " r"],
    *,
    state: RecurrentState | None = None,
    offsets: Int[Tensor, " documents_plus_1"] | list[int] | None = None,
    mask: Bool[Tensor, "b t"] | Int[Tensor, "b t"] | None = None,
) -> tuple[Float[Tensor, "b t h c"], RecurrentState]:
    """Return the causal product with recurrent filters, computed in O(t), and the state after it.

    The product equals `toeplitz(x, recurrent_kernel(free, weights, decays, t))`, with no limit on t.

    Args:
        x: sequences `(b, t, h, c)`, of any floating dtype and layout. Half precision is computed in
            float32 inside, with or without autocast.
        free: the first taps of every head, `(h, short)`; short may be 0.
        weights: of the decays, `(h, r)`; r may be 0.
        decays: in (0, 1], `(h, r)`, or `(r,)` for all heads.
        state: after the positions before x, as an earlier call returned it. None: x is the beginning.
        offsets: documents laid end to end in one row, each multiplied as if it were alone (see
            `toeplitz_packed`). The state then has a row for every document.
        mask: true (or 1) at positions that are not padding (see `toeplitz_padded`). Outputs at padding
            are zero; the state is that after the last position of a row that is not padding.

    Causality is exact: outputs up to t stay the same bit for bit whatever follows t, NaN and infinity
    included. From its first input that is not finite on, a channel's outputs are NaN. Differentiable
    once, in x, free, weights, decays and the state.

    >>> x = torch.tensor([1.0, 0.0, 0.0, 10.0]).view(1, 4, 1, 1)
    >>> y, state = toeplitz_recurrent(x, torch.ones(1, 2), torch.ones(1, 1), torch.tensor([0.5]))
    >>> y.flatten().tolist(), state.sums.item()
    ([2.0, 1.5, 0.25, 20.125], 10.125)
    """
    check_sequence("x", x)
    check_filter(free, weights, decays)
    if free.shape[0] != x.shape[2] or free.device != x.device:
        raise ValueError(
            f"free has {free.shape[0]} heads on {free.device} and x {x.shape[2]} on {x.device}: free "
            "must be (h, short) and x (b, t, h, c) with the same h and device"
        )
    decays = decays.expand_as(weights)
    reach = max(0, free.shape[1] - 1)
    segments = _segments(x, state, offsets, mask)
    if segments is not None:
        y, sums = product(x, free, weights, decays, None, 0, segments)
        return y, RecurrentState(_last_of_segments(x, reach, segments), sums)
    if state is None:
        y, sums = product(x, free, weights, decays, None, 0, None)
        missing = max(0, reach - x.shape[1])
        recent = torch.nn.functional.pad(
            x[:, max(0, x.shape[1] - reach) :], (0,) * 4 + (missing, 0)
        )
        return y, RecurrentState(recent.clone(), sums)
    check_state(state, reach, weights.shape[1], (x.shape[0], x.shape[2], x.shape[3]))
    whole = torch.cat([state.recent.to(x.dtype), x], 1) if reach else x
    y, sums = product(whole, free, weights, decays, state.sums, reach, None)
    # a copy, as a view would keep the whole sequence in memory
    return y, RecurrentState(whole[:, whole.shape[1] - reach :].clone(), sums)


def takes_tiles(time: int, channels: int) -> bool:
    """Return whether whole sequences are multiplied as tiles of the matrix and not by the recurrence."""
    return time <= TILED_TIME and channels >= TILED_CHANNELS


def multiply_recurrent(
    x: Float[Tensor, "b t h c"],
    free: Float[Tensor, "h short"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, "#h r"] | Float[Tensor, " r"],
) -> Float[Tensor, "b t h c"]:
    """Return the product of whole sequences by the faster way, without the state after it.

    Short sequences with several channels per head are multiplied as tiles of the matrix; both ways are
    causal bit for bit for finite values.
    """
    if takes_tiles(x.shape[1], x.shape[3]):
        kernel = recurrent_kernel(free, weights, decays, x.shape[1])
        return toeplitz_product(x, kernel, AUTO_EXACT)
    return toeplitz_recurrent(x, free, weights, decays)[0]


def check_filter(free: Tensor, weights: Tensor, decays: Tensor) -> None:
    """Raise an error unless these are the parameters of recurrent filters."""
    for name, value in (("free", free), ("weights", weights), ("decays", decays)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a tensor of a floating dtype, got {kind}")
    if free.ndim != 2 or weights.ndim != 2 or free.shape[0] != weights.shape[0]:
        raise ValueError(
            "free must be (h, short) and weights (h, r) with the same h, got "
            f"{tuple(free.shape)} and {tuple(weights.shape)}"
        )
    if tuple(decays.shape) not in (
        tuple(weights.shape),
        (1, weights.shape[1]),
        (weights.shape[1],),
    ):
        raise ValueError(
            f"decays must be (h, r) = {tuple(weights.shape)} like weights, or (r,), "
            f"got {tuple(decays.shape)}"
        )


def check_state(state: RecurrentState, reach: int, rank: int, like: tuple[int, int, int]) -> None:
    """Raise an error for a state of other filters or rows; `like` is (b, h, c)."""
    batch, heads, channels = like
    for name, value, count in (("recent", state.recent, reach), ("sums", state.sums, rank)):
        if tuple(value.shape) != (batch, count, heads, channels):
            raise ValueError(
                f"state.{name} must be (b, {'short - 1' if name == 'recent' else 'r'}, h, c) = "
                f"{(batch, count, heads, channels)}, got {tuple(value.shape)}"
            )


def _segments(
    x: Tensor, state: RecurrentState | None, offsets: object, mask: Tensor | None
) -> Segments | None:
    if sum(given is not None for given in (state, offsets, mask)) > 1:
        raise ValueError("give one of state, offsets (one packed row) and mask (padded rows)")
    if offsets is not None:
        if x.shape[0] != 1:
            raise ValueError(
                f"packed documents lie in one row: x must be (1, t, h, c), got {tuple(x.shape)}"
            )
        return segments_from_offsets(check_offsets(offsets), x.shape[1])
    if mask is not None:
        return segments_from_mask(check_mask(mask, x))
    return None


def _last_of_segments(x: Tensor, reach: int, segments: Segments) -> Tensor:
    starts, lengths = (each.to(x.device, non_blocking=True) for each in segments)
    positions = (starts + lengths)[:, None] - reach + torch.arange(reach, device=x.device)
    recent = x.flatten(0, 1)[positions.clamp(min=0)]
    return recent.masked_fill((positions < starts[:, None])[..., None, None], 0)
