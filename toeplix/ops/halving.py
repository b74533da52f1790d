"""Exact causality in near-linear time: blocks off the diagonal by FFT, diagonal blocks by matmul.

A Fourier transform over earlier and later positions spreads rounding errors of later inputs to earlier
outputs. No transform here does that: with time divided into halves, the second half receives from the
first

    y[s : 2s] += (kernel * x[0 : s])[s : 2s]

by FFT (all outputs are later than all inputs), and the halves themselves are smaller causal products,
down to `LEAF` positions, which are matmul tiles. All blocks of one size share one filter and are
computed by one call. O(t log^2 t) time.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import blocked, fft
from toeplix.ops.contraction import Gradient

LEAF = 512


def product(x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h t"]) -> Float[Tensor, "b t h c"]:
    batch, time, heads, channels = x.shape
    if time <= LEAF:
        return blocked.product(x, kernel)
    size = LEAF
    while size < time:
        size *= 2
    x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, size - time))
    taps = torch.nn.functional.pad(kernel, (0, size - time))
    y = blocked.product(x.reshape(-1, LEAF, heads, channels), taps[:, :LEAF])
    span = LEAF
    while span < size:
        pairs = (-1, 2, span, heads, channels)
        past, future = x.view(pairs)[:, 0], y.view(pairs)[:, 1]
        future += fft.window(past, taps, span, 2 * span)
        span *= 2
    return y.view(batch, size, heads, channels)[:, :time].contiguous()


def gradient(
    g: Float[Tensor, "b t h c"],
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h t"],
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    """Return the gradients; dx is a causal product of g in reversed time, and exact in the same sense."""
    dx = product(g.flip(1), kernel).flip(1) if need_x else None
    return dx, fft.gradient(g, x, kernel, False, True)[1] if need_kernel else None
