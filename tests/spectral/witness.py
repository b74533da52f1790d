"""The number of zeros inside the unit disc, by ways that share nothing with the package."""

import math
from fractions import Fraction
from itertools import zip_longest

import mpmath
import numpy as np


def by_roots(taps: np.ndarray) -> int:
    """Eigenvalues of the companion matrix."""
    return int((abs(np.roots(np.asarray(taps, dtype=float)[::-1])) < 1).sum())


def by_schur_cohn(taps: list[Fraction]) -> int | None:
    """Exact. None where the recursion breaks down, as it does for zeros on the circle.

    Let q(u) = u^d p(1/u), so that |p| = |q| on the circle. By Rouche, p[0] p - p[d] q has as many zeros
    inside as p if |p[0]| > |p[d]|, and as q if it is less; and q has d - (those of p). Its degree is
    lower.
    """
    taps = list(taps)
    while taps and taps[-1] == 0:
        taps.pop()
    degree = len(taps) - 1
    if degree <= 0:
        return None if degree < 0 else 0
    first, last = taps[0], taps[-1]
    if abs(first) == abs(last):
        return None
    mirrored = taps[::-1]
    lower = [first * a - last * b for a, b in zip(taps, mirrored, strict=True)]
    scale = max(abs(value) for value in lower)
    if scale == 0:
        return None
    inside = by_schur_cohn([value / scale for value in lower])
    if inside is None:
        return None
    return inside if abs(first) > abs(last) else degree - inside


def product(factors: list[list[Fraction]]) -> list[Fraction]:
    """Of polynomials, exactly."""
    result = [factors[0][0] * 0 + 1] if factors else [Fraction(1)]
    for factor in factors:
        longer = [factor[0] * 0] * (len(result) + len(factor) - 1)
        for i, a in enumerate(result):
            for j, b in enumerate(factor):
                longer[i + j] += a * b
        result = longer
    return result


def by_numerator(
    free: list[float], weights: list[float], decays: list[float], radius: float = 1.0
) -> int:
    """Roots of the numerator of a rational symbol with 60 digits: those within the radius."""
    with mpmath.workdps(60):
        poles = [[mpmath.mpf(1), -mpmath.mpf(decay)] for decay in decays]
        total = product([[mpmath.mpf(tap) for tap in free] or [mpmath.mpf(0)], *poles])
        for number, weight in enumerate(weights):
            others = poles[:number] + poles[number + 1 :]
            part = product([[mpmath.mpf(weight)], *others])
            total = [a + b for a, b in zip_longest(total, part, fillvalue=mpmath.mpf(0))]
        while len(total) > 1 and total[-1] == 0:
            total.pop()
        roots = mpmath.polyroots(total[::-1], maxsteps=500, extraprec=400)
        return sum(abs(root) < radius for root in roots)


def partial_fractions(
    numerator: list[Fraction], decays: list[Fraction]
) -> tuple[list[float], list[float]]:
    """Return free taps and weights of numerator / prod (1 - rho u) times an integer, unrounded."""
    weights = []
    for number, decay in enumerate(decays):
        others = decays[:number] + decays[number + 1 :]
        value = sum(tap / decay**power for power, tap in enumerate(numerator))
        weights.append(
            value / math.prod((1 - other / decay for other in others), start=Fraction(1))
        )
    denominator = product([[Fraction(1), -decay] for decay in decays])
    rest = list(numerator)
    for number, weight in enumerate(weights):
        part = product([[Fraction(1), -d] for i, d in enumerate(decays) if i != number])
        rest = [a - weight * b for a, b in zip_longest(rest, part, fillvalue=Fraction(0))]
    free: list[Fraction] = []  # the quotient, from the lowest power, as it has no remainder
    for power in range(len(rest) - len(decays)):
        free.append(rest[power] / denominator[0])
        for shift, value in enumerate(denominator):
            rest[power + shift] -= free[-1] * value
    assert not any(rest)
    whole = math.lcm(*(value.denominator for value in [*free, *weights]))
    exact = [value * whole for value in [*free, *weights]]
    floats = [float(value) for value in exact]
    assert [Fraction(value) for value in floats] == exact
    return floats[: len(free)], floats[len(free) :]
