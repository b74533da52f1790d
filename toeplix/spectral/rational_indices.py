"""The certified index of a recurrent filter.

The symbol a(u) = N(u) / prod (1 - rho_j u) is analytic in the closed disc if all rho_j are below 1. So

    index = winding number of a = -(number of zeros of a, or of N, with |u| < 1)

from 0 down to -(short + r - 1), minus the degree of N; poles do not count, as they are outside. A decay
of 1 with a weight is a pole on the circle: the operator is unbounded, and the index is undefined.

`rational_arcs` proves arcs in double precision, this module expands those too close to 0 for
`high_precision`, and `indices.add_up` adds them up.
"""

import math
from decimal import Decimal
from functools import partial

import numpy as np

from toeplix.spectral.high_precision import Polynomial
from toeplix.spectral.indices import EPS, MIN_EPS, Index, Size, add_up
from toeplix.spectral.rational import RationalFilter
from toeplix.spectral.rational_arcs import TAYLOR_RADIUS, Curve, maximum, prove
from toeplix.spectral.rational_sums import Sums
from toeplix.spectral.singular import RANK_EPS

UNDEFINED = "undefined"
RADIUS_SLACK = (
    16.0  # units of rounding in taps and decays that were multiplied by powers of a radius
)
GUARD_BITS = 128  # of series: a decay of 1 - 2^-53 takes 53 of them, in D_j and in its inverse


def rational_index(filter: RationalFilter, *, radius: float = 1.0, eps: float = EPS) -> Index:
    """Return the index: minus the number of zeros of the symbol within `radius`.

    `margin` is relative to the sum of |w| over all lags; for another radius, of |w[l]| radius^l. The
    status is "undefined" if a pole is on the circle.
    """
    if not MIN_EPS <= eps < 1:
        raise ValueError(f"eps={eps} must be in [{MIN_EPS:.1e}, 1)")
    merged = filter.merged()
    slowest = max((decay for decay, weight in merged.items() if weight), default=0.0)
    if not 0 < radius < math.inf or (radius != 1 and radius * slowest >= 1):
        pole = f" and below the pole {1 / slowest:.6g}" if slowest else " and finite"
        raise ValueError(f"radius={radius} must be positive{pole}")
    if slowest == 1 == radius:
        reason = "a decay of 1 is a pole of the symbol on the circle, and the operator is unbounded"
        return Index(index=None, status=UNDEFINED, margin=0.0, angle=0.0, reason=reason)
    curve, exponent = _scaled(filter, radius)
    total = float(Sums(filter, radius).absolute() / Decimal(2) ** exponent)
    arcs, hard = prove(curve)
    size = Size(total=total, taps=len(curve.free) + len(curve.decays), centre=0, steps=1)
    return add_up(arcs, hard, partial(expand, filter, curve, radius, exponent), size, eps)


def rational_eps_index(filter: RationalFilter, count: int, eps: float = RANK_EPS) -> Index:
    """Return minus the number of zeros with |r|^n < eps, for the n x n matrix of the filter."""
    return rational_index(filter, radius=eps ** (1 / count))


def symbol_maximum(filter: RationalFilter) -> float:
    """Return max |a| on the circle, the norm of the operator; infinite if a decay is 1."""
    if not filter.summable:
        return math.inf
    curve, exponent = _scaled(filter, 1.0)
    return math.ldexp(maximum(curve), exponent)


def _scaled(filter: RationalFilter, radius: float) -> tuple[Curve, int]:
    """Return the terms on a circle, divided by a power of two so that |s| <= 1, and its exponent."""
    decays, weights = filter.decays.numpy() * radius, filter.weights.numpy()
    kept = (weights != 0) & (decays < 1)  # weights of a decay of 1 that cancel are no pole
    decays, weights = decays[kept], weights[kept]
    free = filter.free.numpy()
    _, size = np.frexp(max(np.abs(free).max(initial=0), np.abs(weights).max(initial=0)))
    free, weights = np.ldexp(free, -size), np.ldexp(weights, -size)
    free = free * radius ** np.arange(len(free)) if radius != 1 else free
    _, exponent = np.frexp(np.abs(free).sum() + (np.abs(weights) / (1 - decays)).sum())
    slack = RADIUS_SLACK if radius != 1 else 0.0
    curve = Curve(np.ldexp(free, -exponent), np.ldexp(weights, -exponent), decays, slack)
    return curve, int(exponent + size)


def expand(
    filter: RationalFilter,
    curve: Curve,
    radius: float,
    exponent: int,
    low: float,
    high: float,
    bits: int,
) -> Polynomial:
    """Return the Taylor polynomial of s around the middle of [low, high], scaled to [-1, 1].

    exp(-i t) has a known series, hence D_j has one, and so has 1 / D_j. On the disc of TAYLOR_RADIUS
    around the arc |D_j| is at least half of its value in the middle, and Cauchy's estimate bounds the
    remainder.
    """
    import mpmath

    nearest = curve.distances(np.array([low]))[0]
    bound = 3 * np.abs(curve.free).sum() + 2 * (np.abs(curve.weights) / nearest).sum()
    order = 4 + math.ceil((bits + math.log2(max(1.0, bound))) / math.log2(TAYLOR_RADIUS))
    with mpmath.workprec(bits + GUARD_BITS):
        half = mpmath.pi * (mpmath.mpf(high) - mpmath.mpf(low)) / 2
        wave = mpmath.expj(-mpmath.pi * (mpmath.mpf(low) + mpmath.mpf(high)) / 2)
        scale = mpmath.mpf(2) ** -exponent
        series = [mpmath.mpc(1)]  # of exp(-i t)
        for m in range(1, order):
            series.append(series[-1] * mpmath.mpc(0, -half) / m)
        sums = [mpmath.mpc(0)] * order
        for lag, tap in enumerate(filter.free.tolist()):
            # the series of exp(-i lag t) has the terms lag^m series[m]
            value, power = tap * scale * (radius * wave) ** lag, 1
            for m in range(order):
                sums[m] += value * power * series[m]
                power *= lag
        for decay, weight in zip(filter.decays.tolist(), filter.weights.tolist(), strict=True):
            if not weight or decay * radius >= 1:
                continue
            turned = mpmath.mpf(decay) * radius * wave
            leading = 1 / (1 - turned)
            inverse = [leading]
            for m in range(1, order):
                known = mpmath.fsum(series[k] * inverse[m - k] for k in range(1, m + 1))
                inverse.append(known * turned * leading)
            for m in range(order):
                sums[m] += weight * scale * inverse[m]
        unit = mpmath.mpf(2) ** bits
        terms = [(int(value.real * unit), int(value.imag * unit)) for value in sums]
    # one unit for every coefficient, two for every step of Horner's rule, and the remainder
    error = 8.0 * (order + 2) * 2.0**-bits + 3 * bound * float(TAYLOR_RADIUS) ** -order
    return Polynomial(terms, bits, error)
