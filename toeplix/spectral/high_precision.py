"""The proof of one arc in higher precision than float64, or a zero on it.

It uses the Taylor polynomial and the test of `arcs`, around the middle of one arc, in fixed-point
arithmetic: Python's integers are multiples of 2^-bits, sums and products are exact, and every shift has
an error of less than one unit. Only sine, cosine and pi come from mpmath.
"""

import math
from typing import NamedTuple

import numpy as np

from toeplix.spectral.arcs import ROUNDING, segment_distance, turn


class Zero(NamedTuple):
    """A point x at which the distance of the curve from 0 is at most `size`."""

    at: float
    size: float


class Proven(NamedTuple):
    first: complex
    last: complex
    turn: float
    floor: float


class Polynomial(NamedTuple):
    """Taylor coefficients in fixed point, (real, imaginary), with the arc scaled to [-1, 1]."""

    terms: list[tuple[int, int]]
    bits: int
    error: float

    def __call__(self, at: int) -> tuple[int, int]:
        real, imaginary = self.terms[-1]
        for x, y in reversed(self.terms[:-1]):
            real, imaginary = (real * at >> self.bits) + x, (imaginary * at >> self.bits) + y
        return real, imaginary

    def derived(self) -> "Polynomial":
        terms = [(m * x, m * y) for m, (x, y) in enumerate(self.terms)][1:]
        return Polynomial(terms or [(0, 0)], self.bits, self.error * len(self.terms))

    def number(self, value: tuple[int, int]) -> complex:
        """Return the floating-point number nearest to a fixed-point number, however small."""
        return complex(*(math.ldexp(part, -self.bits) for part in value))


def bits_for(eps: float, taps: int) -> int:
    """Return the number of bits needed to distinguish values of size eps from 0."""
    return math.ceil(-math.log2(eps)) + 64 + 2 * taps.bit_length()


def expand(
    row: np.ndarray, centre: int, steps: int, low: float, high: float, bits: int
) -> Polynomial:
    """Return the expansion of s around the middle of [low, high]; sum |w| of the row is at most 1."""
    import mpmath

    half = (high - low) / 2
    lag = np.arange(len(row)) - centre
    size = np.abs(lag) * (math.pi / steps) * half
    order = _order(np.abs(row), size, bits)
    with mpmath.workprec(bits + 64):
        step = mpmath.pi / steps
        middle = (mpmath.mpf(low) + mpmath.mpf(high)) / 2
        wave = mpmath.expj(-step * middle)
        start = mpmath.expj(centre * step * middle)
        unit = mpmath.mpf(2) ** bits
        cosine, sine = int(wave.real * unit), int(wave.imag * unit)
        real, imaginary = int(start.real * unit), int(start.imag * unit)
        scale = int(step * half * unit)
    sums = [[0, 0] for _ in range(order)]
    for tap, distance in zip(row.tolist(), lag.tolist(), strict=True):
        if tap:
            weight = int(math.ldexp(tap, bits))
            x, y = weight * real >> bits, weight * imaginary >> bits
            away = distance * scale
            for m, total in enumerate(sums, 1):
                total[0] += x
                total[1] += y
                # times -i (k - c) h / m
                x, y = (y * away >> bits) // m, -(x * away >> bits) // m
        real, imaginary = (
            (real * cosine - imaginary * sine) >> bits,
            (real * sine + imaginary * cosine) >> bits,
        )
    # error bounds: 3 units per tap for the waves, 2 per order for terms, 2 per order for Horner's rule
    error = 16.0 * len(row) * (order + 2) * 2.0**-bits
    return Polynomial([(x, y) for x, y in sums], bits, error)


def _order(weights: np.ndarray, size: np.ndarray, bits: int) -> int:
    """Return the number of terms after which the remainder is below 2^-bits."""
    largest = float(size.max())
    order, bound = 3, largest**3 / 6
    while bound * weights.sum() * order**2 > 2.0**-bits:
        order += 1
        bound *= largest / order
    return order


def prove_arc(polynomial: Polynomial, eps: float, slack: float) -> Proven | Zero | str:
    """Return the change of the argument on the arc, a zero within eps, or the reason for neither."""
    bits = polynomial.bits
    one, error = 1 << bits, polynomial.error + slack
    second = polynomial.derived().derived()
    third = [abs(polynomial.number(term)) * (1 + 1e-9) for term in second.derived().terms]
    bend = sum(third) + len(third) * second.derived().error + error * len(third) ** 3
    values: dict[int, complex] = {}

    def value(at: int) -> complex:
        if at not in values:
            values[at] = polynomial.number(polynomial(at))
        return values[at]

    nearest = _descend(polynomial, min((-one, 0, one), key=lambda at: abs(value(at))))
    if abs(value(nearest)) + error <= eps:
        return Zero(math.ldexp(nearest, -bits), abs(value(nearest)) + error)
    stack, total, floor = [(-one, one)], 0.0, math.inf
    while stack:
        low, high = stack.pop()
        a, b = value(low), value(high)
        width = math.ldexp(high - low, -bits)
        middle = (low + high) >> 1
        curve = abs(second.number(second(middle))) * (1 + 1e-9) + second.error + bend * width / 2
        rounding = 64 * ROUNDING * max(abs(a), abs(b))
        radius = curve * width**2 / 8 + 4 * error + rounding
        ends = np.array([a]), np.array([b])
        distance = segment_distance(*ends).item()
        if distance > 2 * radius:
            total += turn(*ends).item()
            floor = min(floor, distance - radius)
            continue
        if abs(value(middle)) + error <= eps:
            return Zero(math.ldexp(middle, -bits), abs(value(middle)) + error)
        if high - low < 4 or len(values) > 100_000:
            return f"an arc is not decided by {bits} bits and {len(values)} points"
        stack += [(middle, high), (low, middle)]
    return Proven(value(-one), value(one), total, floor)


def _descend(polynomial: Polynomial, at: int) -> int:
    """Search the arc for a small |s| with Newton's method."""
    one, bits = 1 << polynomial.bits, polynomial.bits
    slope = polynomial.derived()
    for _ in range(2 * bits.bit_length()):
        x, y = polynomial(at)
        dx, dy = slope(at)
        square = dx * dx + dy * dy
        if not square:
            break
        at = max(-one, min(one, at - ((x * dx + y * dy) << bits) // square))
    return at
