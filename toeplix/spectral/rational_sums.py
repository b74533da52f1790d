"""Sums over all lags of a recurrent filter in closed form: geometric sums, without truncation.

Beyond the free taps, w[l] = sum of a_j rho_j^l, so

    sum over l >= p of w[l]      =  sum over j of a_j rho_j^p / (1 - rho_j)
    sum over l >= p of w[l]^2    =  sum over i, j of a_i a_j q^p / (1 - q),          q = rho_i rho_j
    sum over l >= p of l w[l]^2  =  sum over i, j of a_i a_j q^p (p / (1 - q) + q / (1 - q)^2)

Terms of opposite signs cancel where decays are close to each other, so the sums are computed with 100
decimal digits and rounded at the end.

*Signs.* A sum of r exponentials changes its sign at most r - 1 times (Descartes). With rho_1 the largest
decay, g[l] = w[l] / rho_1^l has the differences g[l + 1] - g[l], a sum of r - 1 exponentials. Between
sign changes of these, which recursion finds, g is monotone, and its sign change is found by bisection.
This gives the sum of |w| and, from the differences of w, the largest tap.
"""

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from itertools import pairwise

from toeplix.spectral.rational import RationalFilter

PRECISE = Context(prec=100, Emax=MAX_EMAX, Emin=MIN_EMIN)
Terms = list[tuple[Decimal, Decimal]]  # weight and decay, largest decay first


class Sums:
    """Sums over the taps w[l] radius^l of one filter; `start` is the first lag without a free tap."""

    def __init__(self, filter: RationalFilter, radius: float = 1.0) -> None:
        with localcontext(PRECISE):
            scale = Decimal(radius)
            self.terms: Terms = [(weight, decay * scale) for weight, decay in _merged(filter)]
            self.start = max(1, len(filter.free))
            taps = filter.free.tolist() or [0.0]
            free = [Decimal(tap) * scale**lag for lag, tap in enumerate(taps)]
            free[0] += sum(map(Decimal, filter.weights[filter.decays == 0].tolist()), Decimal(0))
            self.first = [tap + self._decaying(lag) for lag, tap in enumerate(free)]

    def tap(self, lag: int) -> Decimal:
        with localcontext(PRECISE):
            return self.first[lag] if lag < self.start else self._decaying(lag)

    def _decaying(self, lag: int) -> Decimal:
        return sum((weight * decay**lag for weight, decay in self.terms), Decimal(0))

    def absolute(self) -> Decimal:
        """Return the sum of |w|; every decay is below 1."""
        with localcontext(PRECISE):
            borders = [self.start, *sign_changes(self.terms, self.start)]
            tails = [_tail(self.terms, border) for border in borders] + [Decimal(0)]
            parts = [abs(here - after) for here, after in pairwise(tails)]
            return sum(map(abs, self.first), Decimal(0)) + sum(parts, Decimal(0))

    def largest_tap(self) -> int:
        """Return the lag of the largest |w|, the first of several."""
        with localcontext(PRECISE):
            steps = [(weight * (decay - 1), decay) for weight, decay in self.terms if decay != 1]
            extremes = [self.start, *sign_changes(steps, self.start)]
            known = {lag: abs(self._decaying(lag)) for lag in extremes}
            known |= {lag: abs(tap) for lag, tap in enumerate(self.first)}
            return min(known, key=lambda lag: (-known[lag], lag))

    def energy(self, count: int | None = None) -> Decimal:
        """Return the sum of w^2 over all lags, or over the first `count`; decays are below 1."""
        with localcontext(PRECISE):
            taps = self.first if count is None else self.first[:count]
            total = sum((tap * tap for tap in taps), Decimal(0))
            if count is None:
                return total + self._energy_after(self.start)
            if count > self.start:
                total += self._energy_after(self.start) - self._energy_after(count)
            return total

    def _energy_after(self, lag: int) -> Decimal:
        return self._pairs(lambda q: q**lag / (1 - q))

    def moment(self) -> Decimal:
        """Return the sum of l w[l]^2; decays are below 1."""
        with localcontext(PRECISE):
            lag = self.start
            total = sum((i * tap * tap for i, tap in enumerate(self.first)), Decimal(0))
            return total + self._pairs(lambda q: q**lag * (lag / (1 - q) + q / (1 - q) ** 2))

    def frobenius(self, count: int) -> Decimal:
        """Return the square of the Frobenius norm of the n x n matrix: the sum of (n - l) w[l]^2.

        Beyond the free taps, the sum of (m - k) q^k over k < m is m / (1 - q) - q (1 - q^m) / (1 - q)^2.
        """
        with localcontext(PRECISE):
            taps = self.first[:count]
            total = sum(((count - lag) * tap * tap for lag, tap in enumerate(taps)), Decimal(0))
            rest = count - self.start
            if rest > 0:
                total += self._pairs(lambda q: q**self.start * _falling(q, rest))
            return total

    def _pairs(self, value: Callable[[Decimal], Decimal]) -> Decimal:
        """Return the sum over i, j of a_i a_j value(rho_i rho_j)."""
        total = Decimal(0)
        for number, (weight, decay) in enumerate(self.terms):
            total += weight * weight * value(decay * decay)
            for other, faster in self.terms[number + 1 :]:
                total += 2 * weight * other * value(decay * faster)
        return total


def _falling(q: Decimal, count: int) -> Decimal:
    if q == 1:
        return Decimal(count * (count + 1) // 2)
    return count / (1 - q) - q * (1 - q**count) / (1 - q) ** 2


def _merged(filter: RationalFilter) -> Terms:
    """Return the decays that act at lags beyond 0, each once, with their total weights."""
    groups: dict[float, Decimal] = {}
    for decay, weight in zip(filter.decays.tolist(), filter.weights.tolist(), strict=True):
        groups[decay] = groups.get(decay, Decimal(0)) + Decimal(weight)
    kept = sorted((decay for decay in groups if decay and groups[decay]), reverse=True)
    return [(groups[decay], Decimal(decay)) for decay in kept]


def _tail(terms: Terms, lag: int) -> Decimal:
    return sum((weight * decay**lag / (1 - decay) for weight, decay in terms), Decimal(0))


def sign_changes(terms: Terms, start: int) -> list[int]:
    """Return the lags after `start` at which sum of a_j rho_j^l changes between > 0 and <= 0."""
    if len(terms) < 2:
        return []
    lead, slowest = terms[0]
    ratios = [(weight, decay / slowest) for weight, decay in terms[1:]]
    steps = [(weight * (ratio - 1), ratio) for weight, ratio in ratios]

    def positive(lag: int) -> bool:
        return lead + sum((weight * ratio**lag for weight, ratio in ratios), Decimal(0)) > 0

    found = []
    borders = [start, *sign_changes(steps, start)]
    for number, low in enumerate(borders):
        before = positive(low)
        if number + 1 < len(borders):
            high = borders[number + 1]
            if positive(high) == before:
                continue
        else:  # the last piece never ends, and the slowest decay remains
            if before == (lead > 0):
                continue
            high = low + 1
            while positive(high) == before:
                high = low + 2 * (high - low)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if positive(middle) == before else (low, middle)
        found.append(high)
    return found
