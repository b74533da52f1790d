"""Singular values of the n x n matrix T(w) of a filter.

Products with T and its transpose are computed by FFT, so ARPACK's Lanczos iteration finds the largest
singular value at n = 65536 in seconds. The inverse of a triangular Toeplitz matrix is another one,
T(1/w), whose taps Newton's iteration computes in O(n log n), so the same method finds the smallest. The
symbol bounds both:

    largest <= max |a|,  and  smallest >= min |a|  if the index is 0

For a zero r of p inside the circle, the output of the input x[s] = r^(n-1-s) is of size |r|^n. The
number of zeros with |r|^n < eps (minus the eps-index) is therefore about the number of singular values
below eps times the largest. It is slightly smaller, because zeros near each other give more small
singular values together than separately.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toeplix.spectral.checks import taps
from toeplix.spectral.indices import Index, indices

RANK_EPS = 1e-6  # singular values below this times the largest count as zero, as in the paper
# condition number up to which float64 resolves the smallest singular value
MAX_TRUSTED_CONDITION = 1e12
RELATIVE_TOLERANCE = 1e-6  # relative tolerance of extreme singular values
MAX_DENSE_TAPS = 64  # taps up to which a dense matrix is fastest


@dataclass(frozen=True, kw_only=True)
class Extremes:
    """Extreme singular values. Unless `certain`, `smallest` is an upper bound, too small for float64."""

    largest: float
    smallest: float
    certain: bool

    @property
    def condition(self) -> float:
        return self.largest / self.smallest if self.smallest else math.inf


def matrix(kernel: Tensor) -> Tensor:
    """Return T(w), lower triangular: (..., n, n)."""
    place = torch.arange(kernel.shape[-1], device=kernel.device)
    lag = place[:, None] - place
    return kernel.detach().double()[..., lag.clamp(min=0)] * (lag >= 0)


def singular_values(
    kernel: Tensor, name: str = "kernel", device: torch.device | None = None
) -> Tensor:
    """Return all singular values, largest first, from dense matrices: (..., n). None: on the CPU."""
    taps(kernel, name)
    return torch.linalg.svdvals(matrix(kernel.to(device))).cpu()


def numerical_rank(kernel: Tensor, eps: float = RANK_EPS) -> int:
    """Return the number of singular values above eps times the largest."""
    values = singular_values(kernel)
    return int((values > eps * values[0]).sum())


def eps_indices(kernel: Tensor, eps: float = RANK_EPS, name: str = "kernel") -> list[Index]:
    """Return minus the number of zeros with |r|^n < eps: certified indices on a smaller circle."""
    return indices(kernel, radius=eps ** (1 / kernel.shape[-1]), name=name)


def extremes(kernel: Tensor, name: str = "kernel") -> Extremes:
    """Return the largest and smallest singular value of one filter (n,) without forming its matrix."""
    row = taps(kernel, name)[0]
    size = float(np.abs(row).max())
    row = row / size
    largest = spectral_norm(row)
    leading = int(np.flatnonzero(row)[0])
    if leading:  # the filter contains a shift, so the last positions of the input are lost
        return Extremes(largest=largest * size, smallest=0.0, certain=True)
    with np.errstate(all="ignore"):
        inverse = inverse_taps(row)
        reach = float(np.sqrt(np.sum(inverse**2)))
    if not np.isfinite(reach):
        return Extremes(largest=largest * size, smallest=0.0, certain=False)
    if largest * reach > MAX_TRUSTED_CONDITION:
        return Extremes(largest=largest * size, smallest=size / reach, certain=False)
    smallest = 1 / spectral_norm(inverse)
    certain = largest / smallest <= MAX_TRUSTED_CONDITION
    return Extremes(largest=largest * size, smallest=smallest * size, certain=certain)


def frobenius_norm(kernel: Tensor, name: str = "kernel") -> float:
    """Return the Frobenius norm of T(w) of one filter (n,): the root of the sum of (n - l) w[l]^2."""
    row = taps(kernel, name)[0]
    size = float(np.abs(row).max())
    return size * math.sqrt((row / size) ** 2 @ np.arange(len(row), 0, -1))


def stable_rank(kernel: Tensor, name: str = "kernel") -> float:
    """Return |T|_F^2 / |T|_2^2 of one filter (n,): 1 for rank 1, n for orthogonal matrices."""
    return (frobenius_norm(kernel, name) / extremes(kernel, name).largest) ** 2


def inverse_taps(row: np.ndarray) -> np.ndarray:
    """Return the taps of the power series 1/w, for which T(1/w) is the inverse of T(w)."""
    inverse = np.array([1 / row[0]])
    while len(inverse) < len(row):
        count = min(2 * len(inverse), len(row))
        residual = _convolved(row[:count], inverse, count)
        residual[0] -= 1
        longer = np.zeros(count)
        longer[: len(inverse)] = inverse
        inverse = longer - _convolved(inverse, residual, count)
    return inverse


def _convolved(a: np.ndarray, b: np.ndarray, count: int) -> np.ndarray:
    """Return the first `count` taps of a * b."""
    length = 2 ** (len(a) + len(b) - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)[:count]


def spectral_norm(row: np.ndarray) -> float:
    """Return the largest singular value of T(row).

    For long smooth filters the largest singular values are so close together that Lanczos iteration does
    not converge, but then they equal the maximum of the symbol: a windowed wave at its frequency gives a
    lower bound within the tolerance.
    """
    count = len(row)
    if count <= MAX_DENSE_TAPS:
        return float(torch.linalg.matrix_norm(matrix(torch.from_numpy(row)), ord=2))
    from scipy.sparse.linalg import LinearOperator, eigsh

    length = 2 ** (2 * count - 1).bit_length()
    size = float(np.abs(row).max())
    spectrum = np.fft.rfft(row / size, length)

    def gram(x: np.ndarray) -> np.ndarray:
        y = np.fft.irfft(np.fft.rfft(x.ravel(), length) * spectrum, length)[:count]
        return np.fft.irfft(np.fft.rfft(y, length) * spectrum.conj(), length)[:count]

    peak = int(np.argmax(np.abs(spectrum)))
    time = np.arange(1, count + 1)
    wave = np.sin(np.pi * time / (count + 1)) * np.cos(2 * np.pi * peak / length * time)
    wave /= np.linalg.norm(wave)
    most, shown = float(np.abs(spectrum[peak])), float(np.sqrt(wave @ gram(wave)))
    if most * (1 - RELATIVE_TOLERANCE) <= shown:
        return shown * size
    operator = LinearOperator((count, count), matvec=gram, dtype=np.float64)
    start = wave + 1e-3 * np.random.default_rng(0).standard_normal(count) / math.sqrt(count)
    settings = {
        "k": 1,
        "which": "LA",
        "v0": start,
        "ncv": min(48, count),
        "tol": RELATIVE_TOLERANCE,
    }
    value = eigsh(operator, **settings, return_eigenvectors=False)
    return float(np.sqrt(value[0])) * size
