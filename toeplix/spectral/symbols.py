"""The symbol of a causal filter: what it does to waves, drawn as a closed curve.

a(theta) = sum over lags l of kernel[l] exp(-i l theta)
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def symbol(kernel: Float[Tensor, "*h n"], points: int = 4096) -> Complex[Tensor, "*h points"]:
    """Values at `points` equal steps around the circle, from theta = 0 on."""
    taps = kernel.shape[-1]
    if points < taps:
        raise ValueError(f"points={points} must be at least the {taps} taps: fewer would fold them")
    precise = kernel.detach().to(torch.promote_types(kernel.dtype, torch.float32))
    return torch.fft.fft(precise, n=points)
