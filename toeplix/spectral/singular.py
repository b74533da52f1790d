"""Singular values of the n x n matrix T(w): how much of its input a filter of finite length keeps.

Products with T and its transpose are FFTs, so ARPACK's Lanczos finds the largest value at n = 65536 in
seconds; and as the inverse of a triangular Toeplitz matrix is another one, T(1/w), whose taps Newton's
iteration gives in O(n log n), the same finds the smallest. The symbol bounds both:

    largest <= max |a|,  and  smallest >= min |a|  if the index is 0

A zero r of p inside the circle makes x[s] = r^(n-1-s) an input of which only parts of size |r|^n come
out. The eps-index, the number of zeros with |r|^n < eps, is therefore about the number of singular
values below eps times the largest: a little less, as zeros that are near each other cost more than one
by one.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toeplix.spectral.checks import taps
from toeplix.spectral.indices import Index, indices

EPS = 1e-6  # below this times the largest a singular value counts as zero, as in the paper
TRUSTED = 1e12  # condition up to which double precision gives the smallest value
PRECISION = 1e-6  # relative, of extreme singular values
SMALL = 64  # taps for which a dense matrix is quickest


@dataclass(frozen=True, kw_only=True)
class Extremes:
    """`smallest` is a value if `certain`, and else an upper bound of one too small for float64."""

    largest: float
    smallest: float
    certain: bool

    @property
    def condition(self) -> float:
        return self.largest / self.smallest if self.smallest else math.inf


def matrix(kernel: Tensor) -> Tensor:
    """T(w), lower triangular: (..., n, n)."""
    count = kernel.shape[-1]
    lag = torch.arange(count)[:, None] - torch.arange(count)
    return kernel.detach().double()[..., lag.clamp(min=0)] * (lag >= 0)


def singular_values(kernel: Tensor, name: str = "kernel") -> Tensor:
    """All of them, largest first, from dense matrices: (..., n)."""
    taps(kernel, name)
    return torch.linalg.svdvals(matrix(kernel))


def numerical_rank(kernel: Tensor, eps: float = EPS) -> int:
    """Singular values above eps times the largest."""
    values = singular_values(kernel)
    return int((values > eps * values[0]).sum())


def eps_indices(kernel: Tensor, eps: float = EPS, name: str = "kernel") -> list[Index]:
    """Minus the number of zeros with |r|^n < eps: certified indices on a smaller circle."""
    return indices(kernel, radius=eps ** (1 / kernel.shape[-1]), name=name)


def extremes(kernel: Tensor, name: str = "kernel") -> Extremes:
    """The largest and the smallest singular value of one filter's matrix (n,), never forming it."""
    row = taps(kernel, name)[0]
    size = float(np.abs(row).max())
    row = row / size
    largest = _norm(row)
    leading = int(np.flatnonzero(row)[0])
    if leading:  # a shift: the last positions of the input never come out
        return Extremes(largest=largest * size, smallest=0.0, certain=True)
    with np.errstate(all="ignore"):
        inverse = inverse_taps(row)
        reach = float(np.sqrt(np.sum(inverse**2)))
    if not np.isfinite(reach):
        return Extremes(largest=largest * size, smallest=0.0, certain=False)
    if largest * reach > TRUSTED:
        return Extremes(largest=largest * size, smallest=size / reach, certain=False)
    smallest = 1 / _norm(inverse)
    certain = largest / smallest <= TRUSTED
    return Extremes(largest=largest * size, smallest=smallest * size, certain=certain)


def inverse_taps(row: np.ndarray) -> np.ndarray:
    """Taps of 1/w as a power series, so that T(1/w) is the inverse of T(w)."""
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
    """The first `count` taps of a * b."""
    length = 2 ** (len(a) + len(b) - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)[:count]


def _norm(row: np.ndarray) -> float:
    """The largest singular value of T(row).

    For long smooth filters the largest values lie so close together that Lanczos would not part them,
    but then the symbol's largest value is theirs: a windowed wave at its place shows it from below.
    """
    count = len(row)
    if count <= SMALL:
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
    if most * (1 - PRECISION) <= shown:
        return shown * size
    operator = LinearOperator((count, count), matvec=gram, dtype=np.float64)
    start = wave + 1e-3 * np.random.default_rng(0).standard_normal(count) / math.sqrt(count)
    settings = {"k": 1, "which": "LA", "v0": start, "ncv": min(48, count), "tol": PRECISION}
    value = eigsh(operator, **settings, return_eigenvectors=False)
    return float(np.sqrt(value[0])) * size
