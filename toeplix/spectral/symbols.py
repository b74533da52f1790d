"""The symbol of a causal filter: its frequency response, a closed curve in the complex plane.

a(theta) = sum over lags l of kernel[l] exp(-i l theta)
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def symbol(kernel: Float[Tensor, "*h n"], points: int = 4096) -> Complex[Tensor, "*h points"]:
    """Return the symbol at `points` equally spaced angles, from theta = 0 on."""
    taps = kernel.shape[-1]
    if points < taps:
        raise ValueError(f"points={points} must be at least the {taps} taps: fewer would fold them")
    precise = kernel.detach().to(torch.promote_types(kernel.dtype, torch.float32))
    return torch.fft.fft(precise, n=points)
