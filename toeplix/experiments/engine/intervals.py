"""Confidence intervals (95%, Student's t over seeds), and comparisons with them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean with its confidence interval, which is infinitely wide for a single value."""

    value: float
    low: float
    high: float

    @property
    def flipped(self) -> "Interval":
        """The interval of the negated value."""
        return Interval(-self.value, -self.high, -self.low)

    def __str__(self) -> str:
        if not math.isfinite(self.high - self.low):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ± {(self.high - self.low) / 2:.3f}"


def mean(values: Sequence[float]) -> Interval:
    """Return the mean of independent repetitions, with its interval."""
    middle = statistics.fmean(values)
    if len(values) < 2:
        return Interval(middle, -math.inf, math.inf)
    from scipy.stats import t

    quantile = float(t.ppf(0.5 + LEVEL / 2, len(values) - 1))
    half = quantile * statistics.stdev(values) / len(values) ** 0.5
    return Interval(middle, middle - half, middle + half)


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Interval:
    """Return the mean of `first` minus `second`, paired by seed, with its interval."""
    return mean([first[seed] - second[seed] for seed in sorted(set(first) & set(second))])


def below(interval: Interval, bound: float = 0.0) -> bool | None:
    """Return whether the interval is below `bound`: True, False, or None if it contains `bound`."""
    if interval.high < bound:
        return True
    return False if interval.low > bound else None


def every(*answers: bool | None) -> bool | None:
    """Combine answers: False if any is False, else None if any is None, else True."""
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True
