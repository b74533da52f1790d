"""The null distribution: the index of an untrained filter, with which trained ones are compared.

For independent noise the mean of the index is exactly -(n - 1)/2: reversing the taps changes no
probability and exchanges zeros inside and outside the circle. Its variance follows from Rice's formula
for the phase of a Gaussian process with a flat spectrum, whose angular velocity has the covariance

    R(x) = 1/2 ((r'/r)^2 - r''/r) (-log(1 - r^2)),  r(x) = sin(x/2) / (x/2),  x = n theta

so that the variance is n/pi times the integral of R over the line: 0.3057 n. Filters initialised as
decaying exponentials have all their zeros outside the circle, so their index is 0.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from toeplix.spectral.indices import indices

VARIANCE_PER_TAP = 0.3057  # variance of the index per tap, for independent noise
# taps below which the asymptotic variance is inaccurate; there the index is simulated
MIN_ASYMPTOTIC_TAPS = 64
SIMULATED_DRAWS = 2000


@dataclass(frozen=True)
class Null:
    """Mean and standard deviation of the index before training."""

    mean: float
    deviation: float

    def z(self, index: int) -> float:
        """Return the z-score of an index; infinite if the standard deviation is 0."""
        away = index - self.mean
        if self.deviation == 0:
            return 0.0 if away == 0 else math.copysign(math.inf, away)
        return away / self.deviation


@cache
def noise(taps: int) -> Null:
    """Return the distribution for independent Gaussian taps of any scale (Kaiming initialisation)."""
    if taps >= MIN_ASYMPTOTIC_TAPS:
        return Null(-(taps - 1) / 2, math.sqrt(VARIANCE_PER_TAP * taps))
    return Null(-(taps - 1) / 2, float(simulated(taps, SIMULATED_DRAWS).std()))


def simulated(taps: int, draws: int, seed: int = 0) -> np.ndarray:
    """Return the certified indices of `draws` filters of noise."""
    generator = torch.Generator().manual_seed(seed)
    kernel = torch.randn(draws, taps, generator=generator, dtype=torch.float64)
    return np.array([found.index for found in indices(kernel) if found.index is not None])


def untrained(kind: str, taps: int) -> Null | None:
    """Return the distribution of an initialisation; None without an index (ones: zeros on the circle)."""
    return {"kaiming": noise(taps), "decay": Null(0.0, 0.0), "ones": None}[kind]
