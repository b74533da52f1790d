"""What the index of an untrained filter is: the yardstick of every trained one.

For independent noise the index is -(n - 1)/2 on average, exactly: reversing the taps changes no
probability and exchanges zeros inside and outside. Its spread follows from Rice's formula for the phase
of a Gaussian wave of even spectrum, whose angular velocity has the covariance

    R(x) = 1/2 ((r'/r)^2 - r''/r) (-log(1 - r^2)),  r(x) = sin(x/2) / (x/2),  x = n theta

so that the variance is n/pi times the integral of R over the line: 0.3057 n. Filters that start as
decaying exponentials have all their zeros outside the circle: index 0, always.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from toeplix.spectral.indices import indices

VARIANCE = 0.3057  # per tap, of independent noise
FEW = 64  # taps below which the limit is not there yet, and counting is quick
DRAWS = 2000


@dataclass(frozen=True)
class Null:
    """Mean and standard deviation of the index before training."""

    mean: float
    deviation: float

    def z(self, index: int) -> float:
        """Standard deviations above the mean; infinite where there is no spread to measure by."""
        away = index - self.mean
        if self.deviation == 0:
            return 0.0 if away == 0 else math.copysign(math.inf, away)
        return away / self.deviation


@cache
def noise(taps: int) -> Null:
    """Of independent Gaussian taps, of whatever size: the paper's Kaiming initialisation."""
    if taps >= FEW:
        return Null(-(taps - 1) / 2, math.sqrt(VARIANCE * taps))
    return Null(-(taps - 1) / 2, float(simulated(taps, DRAWS).std()))


def simulated(taps: int, draws: int, seed: int = 0) -> np.ndarray:
    """Certified indices of that many filters of noise."""
    generator = torch.Generator().manual_seed(seed)
    kernel = torch.randn(draws, taps, generator=generator, dtype=torch.float64)
    return np.array([found.index for found in indices(kernel) if found.index is not None])


def untrained(kind: str, taps: int) -> Null | None:
    """By the name of an initialisation; None if it has no index (ones: zeros on the circle)."""
    return {"kaiming": noise(taps), "decay": Null(0.0, 0.0), "ones": None}[kind]
