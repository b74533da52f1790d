"""One decode step with recurrent filters on a GPU, for all rows of a ragged batch: one launch per layer.

    sums[j] <- decays[j] * sums[j] + x[t]
    y[t]    =  sum over l < short of free[l] * x[t - l]  +  sum over j < r of weights[j] * sums[j]

The state is changed in place and no shape depends on the position, which is counted on the device: steps
can be captured in a CUDA graph and replayed. decoding/recurrent.py owns the state and its layout.
"""

import torch
from torch import Tensor

MAX_ROWS = 128  # free taps and decays: a program holds all of them
NUMBERS = 4096  # of the state per program, at most: more would not stay in registers
MAX_COLUMNS = 64  # pairs of row and channel per program
WARPS = 4


def columns_of(rows: int) -> int:
    """Return the columns of a program that holds a power of two of rows."""
    return min(MAX_COLUMNS, NUMBERS // rows)


@torch.library.custom_op("toeplix::recurrent_step", mutates_args=("state",))
def recurrent_step(
    x: Tensor, state: Tensor, coefficients: Tensor, decays: Tensor, clock: Tensor, first: int
) -> Tensor:
    """Return the outputs `(b, f, c)` of the heads from `first` on, and advance their state.

    Args:
        x: inputs `(b, f, c)`, of any floating dtype and strides.
        state: `(h, short + r, capacity, c)` in float32, contiguous; its first b rows are changed.
        coefficients: `(max(1, short), h, 1, short + r)`, one vector for every rotation of the ring.
        decays: `(h, r, 1)`.
        clock: the position, `(1,)`; modulo short it is the place of this input in the ring.
        first: the first head.
    """
    from toeplix.ops.triton.recurrent_step_kernel import recurrent_step_kernel

    batch, count, channels = x.shape
    y = x.new_empty(x.shape)
    if x.numel() == 0:
        return y
    heads, rows = state.shape[:2]
    rank, held = decays.shape[1], 1 << (rows - 1).bit_length()
    columns = columns_of(held)
    with torch.cuda.device_of(x):
        recurrent_step_kernel[(-(-batch * channels // columns), count)](
            x, y, state, coefficients, decays, clock, batch * channels, channels, heads, first,
            rows - rank, rank, *state.stride()[:2], *x.stride(),
            ROWS=held, COLUMNS=columns,
            num_warps=WARPS, enable_fp_fusion=True,
        )  # fmt: skip
    return y


@recurrent_step.register_fake
def _(
    x: Tensor, state: Tensor, coefficients: Tensor, decays: Tensor, clock: Tensor, first: int
) -> Tensor:
    return x.new_empty(x.shape)
