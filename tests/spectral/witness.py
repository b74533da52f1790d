"""The number of zeros inside the unit disc, by ways that share nothing with the package."""

from fractions import Fraction

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
    result = [Fraction(1)]
    for factor in factors:
        longer = [Fraction(0)] * (len(result) + len(factor) - 1)
        for i, a in enumerate(result):
            for j, b in enumerate(factor):
                longer[i + j] += a * b
        result = longer
    return result
