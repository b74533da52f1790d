"""The definition in float64 by NumPy, and the error that a path may make beside it.

    y[t] = sum over lags 0 <= l < min(t + 1, n) of kernel[l] x[t - l]

of one sequence (t, h, c), by the matrix written out; gradients by its transpose and its diagonals.
"""

import numpy as np
import torch
from torch import Tensor

ROUNDINGS = 24  # of the working precision, relative to the norms of what was multiplied


def product(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return np.einsum("hts,shc->thc", _matrix(kernel, len(x)), x)


def gradients(g: np.ndarray, x: np.ndarray, kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of x, and of the kernel."""
    dx = np.einsum("hts,thc->shc", _matrix(kernel, len(x)), g)
    meetings = np.einsum("thc,shc->hts", g, x)
    lag = np.subtract.outer(np.arange(len(x)), np.arange(len(x)))
    within = (lag >= 0) & (lag < kernel.shape[1])
    dkernel = np.stack([np.bincount(lag[within], m[within], kernel.shape[1]) for m in meetings])
    return dx, dkernel


def _matrix(kernel: np.ndarray, time: int) -> np.ndarray:
    lag = np.subtract.outer(np.arange(time), np.arange(time))
    within = (lag >= 0) & (lag < kernel.shape[1])
    return np.where(within, kernel[:, np.where(within, lag, 0)], 0.0)


def norm(x: np.ndarray) -> float:
    """The largest of any channel along time: transforms keep it, and it bounds what is inside."""
    return float(np.sqrt((x**2).sum(0)).max(initial=0.0))


def assert_rounded_once(actual: Tensor, exact: np.ndarray, size: float, what: str) -> None:
    """Half a unit in the last place of the result, and some roundings of the working precision."""
    info = torch.finfo(actual.dtype)
    inside = torch.finfo(torch.float64 if actual.dtype == torch.float64 else torch.float32)
    bound = 0.5 * info.eps * np.abs(exact) + ROUNDINGS * inside.eps * size + info.tiny
    error = np.abs(actual.detach().double().numpy() - exact)
    excess = float((error / bound).max(initial=0.0))
    assert excess <= 1, f"{what}: {excess:.3g} times the error of one rounding"


def assert_same_bits(one: Tensor, other: Tensor, what: str) -> None:
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[one.dtype.itemsize]
    same = torch.equal(one.contiguous().view(bits), other.contiguous().view(bits))
    assert same, f"{what}: another row changed it"
