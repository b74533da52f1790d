"""The proof of the index in double precision: the change of the symbol's argument on arcs of the circle.

With an integer centre c, h = pi / N and x = theta / h in [0, N] (the half circle, as taps are real),

    s(x) = sum over lags k of w[k] exp(-i (k - c) h x)

has the winding number of the symbol plus c. N/2 + 1 cells of half-width 1 lie around x = 0, 2, ..., N; on
each of them s is a Taylor polynomial of order M whose coefficients, for all cells, are M real FFTs.

An arc [lo, hi] with computed end values a, b is proven if

    dist(0, segment ab) > 2 (bound(|s''|) (hi - lo)^2 / 8 + 4 error)

because then the curve and its computed ends lie in a convex set without 0: the curve is homotopic to the
segment, and its argument changes by that of b / a, less than pi. Arcs that fail the test are bisected;
arcs closer to 0 than the rounding error are left to `high_precision`.
"""

from typing import NamedTuple

import numpy as np

ROUNDING = 2.0**-53
MAX_BISECTIONS = 30  # maximum number of bisections; positions x stay exact in float64
RESOLVED_ERROR_BOUNDS = 64  # values below this many error bounds are left to high_precision


class Arcs(NamedTuple):
    """Proven arcs, one entry each; `turn` is the change of the argument."""

    row: np.ndarray  # number of the filter
    low: np.ndarray  # start of the arc in x
    high: np.ndarray  # end of the arc in x
    first: np.ndarray  # computed value at low
    last: np.ndarray  # computed value at high
    turn: np.ndarray
    floor: np.ndarray  # a lower bound of |s|


class Cells(NamedTuple):
    """Taylor polynomials of rows of filters around the points of a uniform grid."""

    coefficients: np.ndarray  # (M, filters, N / 2 + 1)
    error: np.ndarray  # error bound of a computed value, one per filter
    centre: np.ndarray  # c, one per filter
    steps: int  # N


def cells(rows: np.ndarray, slack: float = 0.0) -> Cells:
    """Expand filters (f, n) with sum |w| <= 1; `slack` bounds the sum of the errors of their taps."""
    filters, count = rows.shape
    steps = max(8, 4 * 2 ** (count - 1).bit_length())
    energy = rows**2
    lag = np.arange(count)
    centre = np.rint((energy @ lag) / energy.sum(axis=1)).astype(np.int64)
    away = lag - centre[:, None]
    angle = away * (np.pi / steps)
    size = np.abs(angle)
    order, tail = 4, (np.abs(rows) * size**4).sum(axis=1) / 24
    while (tail > ROUNDING).any():
        order += 1
        tail = np.exp(np.log(size, where=size > 0, out=np.full_like(size, -np.inf)) * order)
        tail = (np.abs(rows) * tail).sum(axis=1) / _factorial(order)
    grid = np.zeros((filters, steps))
    place = away % steps
    term = rows.astype(np.float64)
    found = np.empty((order, filters, steps // 2 + 1), np.complex128)
    for m in range(order):
        if m:
            term = term * angle / m
        np.put_along_axis(grid, place, term, axis=1)
        found[m] = np.fft.rfft(grid, axis=1) * (-1j) ** m
    # an FFT of length 2^L adds L sums of two products with rounded roots of unity: every output
    # has an error below 8 (L + 3) u sum |term|; the rest is rounding of the terms and of Horner's rule
    weight = (np.abs(rows) * np.exp(size)).sum(axis=1)
    levels = steps.bit_length() + 2
    error = ROUNDING * (8 * levels + 32 * order) * weight + tail * order**2 + slack * weight
    return Cells(found, error, centre, steps)


def _factorial(order: int) -> float:
    return float(np.prod(np.arange(1.0, order + 1)))


class Hard(NamedTuple):
    """Arcs that cannot be decided in double precision."""

    row: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: np.ndarray  # the smallest |s| computed on the arc


def prove(grid: Cells) -> tuple[Arcs, Hard]:
    """Cover [0, N] for every filter by proven arcs and arcs that need higher precision."""
    coefficients, error, _, steps = grid
    order, filters, count = coefficients.shape
    column = error[:, None]
    even, odd = coefficients[::2].sum(axis=0), coefficients[1::2].sum(axis=0)
    first, last = even - odd, even + odd
    first[:, 0], last[:, -1] = coefficients[0, :, 0], coefficients[0, :, -1]
    low = np.tile(np.arange(-1.0, steps, 2.0), (filters, 1))
    high = low + 2
    low[:, 0], high[:, -1] = 0, steps
    curved = np.zeros((filters, count))
    for m in range(2, order):
        curved = curved + m * (m - 1) * np.abs(coefficients[m])
    bend = curved * (1 + 1e-9) + order**3 * column
    row = np.repeat(np.arange(filters), count)
    cell = np.tile(np.arange(count), filters)
    parts: list[Arcs] = []
    hard: list[Hard] = []
    work = (row, cell, low.ravel(), high.ravel(), first.ravel(), last.ravel(), bend.ravel())
    for depth in range(MAX_BISECTIONS + 1):
        row, cell, lo, hi, a, b, curve = work
        proven, floor = chord_test(a, b, curve * (hi - lo) ** 2 / 8, error[row])
        done = Arcs(row, lo, hi, a, b, turn(a, b), floor)
        parts.append(Arcs(*(part[proven] for part in done)))
        row, cell, lo, hi, a, b = (part[~proven] for part in (row, cell, lo, hi, a, b))
        if not len(row):
            break
        polynomial = coefficients[:, row, cell]
        middle = (lo + hi) / 2
        value = horner(polynomial, middle - 2 * cell)
        least = np.minimum(np.minimum(np.abs(a), np.abs(b)), np.abs(value))
        give_up = (least < RESOLVED_ERROR_BOUNDS * error[row]) | (depth == MAX_BISECTIONS)
        hard.append(Hard(*(part[give_up] for part in (row, lo, hi, least))))
        keep = ~give_up
        row, cell, lo, hi, a, b, middle, value = (
            part[keep] for part in (row, cell, lo, hi, a, b, middle, value)
        )
        curve = _bends(polynomial[:, keep], lo - 2 * cell, hi - 2 * cell, error[row])
        work = (
            np.concatenate([row, row]),
            np.concatenate([cell, cell]),
            np.concatenate([lo, middle]),
            np.concatenate([middle, hi]),
            np.concatenate([a, value]),
            np.concatenate([value, b]),
            np.concatenate(curve),
        )
    empty = Hard(*(np.empty(0, kind) for kind in (int, float, float, float)))
    return (
        Arcs(*(np.concatenate(part) for part in zip(*parts, strict=True))),
        Hard(*(np.concatenate(part) for part in zip(*hard, empty, strict=True))),
    )


def chord_test(
    a: np.ndarray, b: np.ndarray, sag: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which tubes around segments do not contain 0, and a lower bound of their distance from 0."""
    rounding = 64 * ROUNDING * np.maximum(np.abs(a), np.abs(b))
    radius = sag + 4 * error + rounding
    distance = segment_distance(a, b)
    return distance > 2 * radius, distance - radius


def segment_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the distance from 0 to the segments from a to b."""
    along = b - a
    square = np.maximum(along.real**2 + along.imag**2, np.finfo(float).tiny)
    share = np.clip(-(a.real * along.real + a.imag * along.imag) / square, 0, 1)
    return np.abs(a + share * along)


def turn(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the angle from a to b, in (-pi, pi]."""
    sizes = (np.maximum(np.abs(value), np.finfo(float).tiny) for value in (a, b))
    a, b = (value / size for value, size in zip((a, b), sizes, strict=True))
    return np.angle(b * np.conj(a))


def horner(polynomial: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the values of polynomials (M, arcs) at one point each."""
    value = polynomial[-1]
    for term in polynomial[-2::-1]:
        value = value * at + term
    return value


def _bends(
    polynomial: np.ndarray, low: np.ndarray, high: np.ndarray, error: np.ndarray
) -> list[np.ndarray]:
    """Return bounds of |s''| on both halves: its value in their middle plus a bound of the variation."""
    order = len(polynomial)
    m = np.arange(order, dtype=float)[:, None]
    second = (polynomial * m * (m - 1))[2:]
    third = (np.abs(polynomial[3:]) * (m * (m - 1) * (m - 2))[3:]).sum(axis=0)
    third = third * (1 + 1e-9) + order**4 * error
    quarter = (high - low) / 4
    middle = (low + high) / 2
    return [
        np.abs(horner(second, at)) * (1 + 1e-9) + order**3 * error + third * quarter
        for at in (middle - quarter, middle + quarter)
    ]
