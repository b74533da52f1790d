"""The sums between chunks on a GPU: one launch that turns the contributions of chunks into states.

    forward    S_{n+1} = decay_n S_n     + U_n        slot n + 1 holds U_n before and S_{n+1} after
    reverse    A_n     = decay_n A_{n+1} + V_n        slot n     holds V_n before and A_n     after

The first state is given: S_0 in slot 0, and in reverse A_N in slot N.

decay_n is decays^m for a chunk of m positions, and another power for a shorter last chunk. A slot has one
number for every row, decay, head and inner index (channels; for lookup, key channels times channels), and
numbers of different columns never meet. Products of chunks are independent of each other; only this scan,
which moves r / m of the data, runs through time.
"""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from toeplix.ops.recurrent_filter import Matrices

BLOCK = 256  # numbers of a slot per program
WARPS = 4


@triton.jit
@no_type_check
def chunk_scan_kernel(
    states, decays, last_decays, width, inner, groups, whole, tail,
    BLOCK: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Scan `whole` chunks and `tail` (0 or 1) shorter ones; a group is a pair of decay and head."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < width
    group = (index // inner) % groups
    decay = tl.load(decays + group, mask=mask, other=0.0)
    last = tl.load(last_decays + group, mask=mask, other=0.0)
    states += index
    width = tl.cast(width, tl.int64)
    if REVERSE:
        slot, step = states + (whole + tail) * width, -width
    else:
        slot, step = states, width
    carry = tl.load(slot, mask=mask, other=0.0)
    if REVERSE:  # the shorter chunk is the last in time
        for _ in range(tail):
            slot += step
            carry = carry * last + tl.load(slot, mask=mask, other=0.0)
            tl.store(slot, carry, mask=mask)
    for _ in range(whole // 4):
        first = tl.load(slot + step, mask=mask, other=0.0)
        second = tl.load(slot + 2 * step, mask=mask, other=0.0)
        third = tl.load(slot + 3 * step, mask=mask, other=0.0)
        fourth = tl.load(slot + 4 * step, mask=mask, other=0.0)
        first += carry * decay
        second += first * decay
        third += second * decay
        carry = fourth + third * decay
        tl.store(slot + step, first, mask=mask)
        tl.store(slot + 2 * step, second, mask=mask)
        tl.store(slot + 3 * step, third, mask=mask)
        tl.store(slot + 4 * step, carry, mask=mask)
        slot += 4 * step
    for _ in range(whole % 4):
        slot += step
        carry = carry * decay + tl.load(slot, mask=mask, other=0.0)
        tl.store(slot, carry, mask=mask)
    if not REVERSE:
        for _ in range(tail):
            slot += step
            carry = carry * last + tl.load(slot, mask=mask, other=0.0)
            tl.store(slot, carry, mask=mask)


def chunk_scan(
    states: Float[Tensor, "slots b r h *inner"], matrices: Matrices, time: int, *, reverse: bool
) -> None:
    """Scan the slots in place; `time` positions are divided into slots - 1 chunks."""
    whole, rest = divmod(time, matrices.size)
    batch, rank, heads = states.shape[1:4]
    width = states[0].numel()
    if width == 0:
        return
    tables = (_by_group(matrices, positions) for positions in (matrices.size, rest))
    size = width // (batch * rank * heads)
    chunk_scan_kernel[(triton.cdiv(width, BLOCK),)](
        states, *tables, width, size, rank * heads, whole, int(rest > 0),
        BLOCK=BLOCK, REVERSE=reverse, num_warps=WARPS, enable_fp_fusion=True,
    )  # fmt: skip


def _by_group(matrices: Matrices, positions: int) -> Float[Tensor, " rh"]:
    """Return the decay after a number of positions in the order of a slot, `(r, h)`."""
    return matrices.decay(positions).flatten(1).t().contiguous().flatten()
