"""The Triton kernel of one decode step with recurrent filters (recurrent_step.py launches it)."""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def recurrent_step_kernel(
    x, y, state, coefficients, decays, clock, columns, channels, heads, first, short, rank,
    state_h, state_k, x_b, x_h, x_c,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Advance one block of columns of one head, and write their outputs; y is contiguous.

    The state has the ring of inputs and the sums as its rows, and stays in registers between reading and
    writing. `clock` counts positions, in memory of the device, so that a captured graph can be replayed.
    """
    head = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = column < columns
    row, channel = (column // channels).to(tl.int64), (column % channels).to(tl.int64)
    u = tl.load(x + row * x_b + head * x_h + channel * x_c, mask=valid, other=0.0).to(tl.float32)
    turn = (tl.load(clock) % tl.maximum(short, 1)).to(tl.int32)
    k = tl.arange(0, ROWS)
    used = (k < short + rank)[:, None] & valid[None, :]
    place = state + (first + head) * state_h + k[:, None] * state_k + column[None, :]
    old = tl.load(place, mask=used, other=0.0)
    at = (first + head) * rank + k - short
    decay = tl.load(decays + at, mask=(k >= short) & (k < short + rank), other=0.0)
    new = tl.where((k < short)[:, None], old, old * decay[:, None] + u[None, :])
    new = tl.where((k == turn)[:, None] & (k < short)[:, None], u[None, :], new)
    factors = coefficients + (turn * heads + first + head) * (short + rank)
    factor = tl.load(factors + k, mask=k < short + rank, other=0.0)
    # where there is no row, NaN of an input must not meet the factor 0
    total = tl.sum(tl.where(used, factor[:, None] * new, 0.0), 0)
    changed = used & ((k == turn) | (k >= short))[:, None]
    tl.store(place, new, mask=changed)
    out = y + (row * tl.num_programs(1) + head) * channels + channel
    tl.store(out, total.to(y.dtype.element_ty), mask=valid)
