"""Confidence intervals (95%, Student's t over seeds), comparisons with them, and Holm's correction.

Intervals in tables and figures are those of one comparison. A claim often makes several comparisons, so
its verdict uses Holm's correction over those of one experiment: with the probabilities p of m comparisons
in ascending order, the i-th is decided if (m - i + 1) p_i <= 0.05 and all before it are decided. The
probability that any of them is decided wrongly is then at most 5% if their seeds were fixed in advance
(`tuning`). Claims that two experiments decide (C1, C20) have two such families.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEVEL = 0.95
HOLM = (
    "Verdicts use Holm's correction over all comparisons of a claim in one experiment, so that the "
    "probability of any wrong decision per claim and experiment is at most 5% where the number of seeds "
    "was fixed in advance; the intervals shown are 95% intervals of one comparison each. C1 and C20 are "
    "decided in two experiments each."
)


class Interval(NamedTuple):
    """A mean with its confidence interval, which is infinitely wide for a single value."""

    value: float
    low: float
    high: float
    dof: float = 0  # degrees of freedom of its standard error; infinite for an exact value

    @property
    def flipped(self) -> "Interval":
        """The interval of the negated value."""
        return self.scaled(-1)

    def scaled(self, factor: float) -> "Interval":
        """The interval of a multiple of the value."""
        low, high = sorted((factor * self.low, factor * self.high))
        return Interval(factor * self.value, low, high, self.dof)

    def __str__(self) -> str:
        half = (self.high - self.low) / 2
        if not math.isfinite(half) or half == 0:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ± {half:.3f}"


def mean(values: Sequence[float]) -> Interval:
    """Return the mean of independent repetitions, with its interval."""
    middle = statistics.fmean(values)
    if len(values) < 2:
        return Interval(middle, -math.inf, math.inf)
    half = _quantile(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(middle, middle - half, middle + half, len(values) - 1)


def shown(values: Sequence[float]) -> str:
    """Return a mean with its interval as text; of two values, whose interval is useless, both.

    >>> shown([0.5]), shown([0.5, 0.9]), shown([0.5, 0.6, 0.7])
    ('0.500', '0.700 (0.500, 0.900)', '0.600 ± 0.248')
    """
    if len(values) != 2:
        return str(mean(values))
    low, high = sorted(values)
    return f"{statistics.fmean(values):.3f} ({low:.3f}, {high:.3f})"


def exact(value: float) -> Interval:
    """Return the interval of a number that is counted, not estimated."""
    return Interval(value, value, value, math.inf)


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Interval:
    """Return the mean of `first` minus `second`, paired by seed, with its interval."""
    return mean([first[seed] - second[seed] for seed in sorted(set(first) & set(second))])


def widened(interval: Interval, error: float) -> Interval:
    """Return the interval with another, independent standard error added to its own.

    Its degrees of freedom stay, which makes it too wide rather than too narrow.

    >>> print(widened(mean([1.0, 2.0, 3.0]), 0.0), widened(mean([1.0, 2.0, 3.0]), 1.0))
    2.000 ± 2.484 2.000 ± 4.968
    """
    if not interval.dof or not math.isfinite(interval.high - interval.low):
        return interval
    quantile = _quantile(interval.dof)
    half = math.hypot((interval.high - interval.low) / 2, quantile * error)
    return Interval(interval.value, interval.value - half, interval.value + half, interval.dof)


def _quantile(dof: float) -> float:
    from scipy.stats import norm, t

    share = 0.5 + LEVEL / 2
    return float(t.ppf(share, dof) if math.isfinite(dof) else norm.ppf(share))


def probability(interval: Interval, bound: float = 0.0) -> float:
    """Return the two-sided probability of such a mean or a farther one if the truth were `bound`."""
    if not interval.dof or not math.isfinite(interval.high - interval.low):
        return 1.0
    error = (interval.high - interval.low) / 2
    if error == 0:
        return 1.0 if interval.value == bound else 0.0
    from scipy.stats import norm, t

    distance = abs(interval.value - bound) / (error / _quantile(interval.dof))
    finite = math.isfinite(interval.dof)
    return float(2 * (t.sf(distance, interval.dof) if finite else norm.sf(distance)))


def below(interval: Interval, bound: float = 0.0) -> bool | None:
    """Return whether the interval is below `bound`: True, False, or None if it contains `bound`."""
    if interval.high < bound:
        return True
    return False if interval.low > bound else None


def holm(tested: Sequence[tuple[Interval, float]]) -> list[bool | None]:
    """Return whether each interval is below its bound, None if Holm's correction leaves it undecided.

    >>> each = mean([-1.0, -0.7, -0.5])
    >>> below(each), holm([(each, 0.0)]), holm([(each, 0.0), (each, 0.0)])
    (True, [True], [None, None])
    """
    probabilities = [probability(interval, bound) for interval, bound in tested]
    found: list[bool | None] = [None] * len(tested)
    for rank, place in enumerate(
        sorted(range(len(tested)), key=lambda place: probabilities[place])
    ):
        if probabilities[place] * (len(tested) - rank) > 1 - LEVEL:
            break
        interval, bound = tested[place]
        found[place] = bool(interval.value < bound)  # not numpy's
    return found


def every(*answers: bool | None) -> bool | None:
    """Combine answers: False if any is False, else None if any is None, else True."""
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True
