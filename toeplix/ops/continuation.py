"""The contribution of earlier inputs to the positions after them.

    z[b, j, h, c] = sum over s < p of kernel[h, p + j - s] * past[b, s, h, c]      j = 0 .. ahead-1

Taps beyond the end of the kernel are zero. Every output is later than every input, so any method is
exactly causal: a matmul if `past` and `ahead` are short, else an FFT.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import contraction, fft

MAX_MATMUL_SIDE = 256  # a rectangle of at most the size of such a square is multiplied as a matrix


def carry(
    past: Float[Tensor, "b p h c"], kernel: Float[Tensor, "h n"], ahead: int
) -> Float[Tensor, "b ahead h c"]:
    past = past[
        :, max(0, past.shape[1] - kernel.shape[1] + 1) :
    ]  # earlier inputs are outside the receptive field
    length = past.shape[1]
    if past.numel() == 0:
        return past.new_zeros(past.shape[0], ahead, *past.shape[2:])
    if length * ahead > MAX_MATMUL_SIDE**2:
        return fft.window(past, kernel, length, length + ahead)
    z = past.new_empty(past.shape[0], ahead, *past.shape[2:])
    contraction.apply(rectangle(kernel, length, ahead), contraction.stack(past), z)
    return z


def rectangle(kernel: Float[Tensor, "h n"], past: int, ahead: int) -> Float[Tensor, "h ahead past"]:
    """Return the matrix `matrix[h, j, s] = kernel[h, past + j - s]`."""
    lags = past + ahead
    taps = kernel[:, :lags]
    falling = torch.nn.functional.pad(taps, (0, lags - taps.shape[1])).flip(-1)  # lags .. 0
    return falling[:, :-1].unfold(-1, past, 1).flip(1)
