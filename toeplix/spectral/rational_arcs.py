"""Arcs of the symbol of a recurrent filter: the proof of its index in double precision, its maximum.

With theta = pi x, x in [0, 1], and D_j = 1 - rho_j exp(-i theta),

    s(x)     = sum of free[l] exp(-i l theta) + sum of a_j / D_j
    |s''(x)| <= pi^2 (sum of l^2 |free[l]| + sum of |a_j| rho_j (1 + rho_j) / |D_j|^3)
    |D_j|^2  = (1 - rho_j)^2 + 4 rho_j sin^2(theta / 2)

|D_j| grows with theta, so an upper bound at the start of an arc holds on the arc. Arcs start as the whole
half circle and are bisected until the test of `arcs` proves them; they become short only near zeros and
near theta = 0, where poles are close. The numerator polynomial is not formed, because its coefficients
cancel where several decays are near 1.
"""

from typing import NamedTuple

import numpy as np

from toeplix.spectral.arcs import RESOLVED_ERROR_BOUNDS, ROUNDING, Arcs, Hard, chord_test, turn

MAX_BISECTIONS = 80  # arcs of 2^-59 are as short as a decay of 1 - 2^-53 needs
TAYLOR_RADIUS = (
    64  # arcs for higher precision are this many times shorter than a disc without poles
)
MAXIMUM_TOLERANCE = 1e-9  # relative tolerance of the maximum of |s|


class Curve(NamedTuple):
    """The symbol on the circle of one radius, as terms in float64."""

    free: np.ndarray  # (short,)
    weights: np.ndarray  # (r,)
    decays: np.ndarray  # (r,), below 1
    slack: float  # relative error of these numbers, in units of rounding

    def distances(self, x: np.ndarray) -> np.ndarray:
        """Return |D_j| at points (p,): (p, r)."""
        sine = np.sin(np.pi / 2 * x)[:, None]
        square = (1 - self.decays) ** 2 + 4 * self.decays * sine**2
        return np.asarray(np.sqrt(square))

    def values(self, x: np.ndarray) -> np.ndarray:
        """Return s at points (p,)."""
        theta = np.pi * x
        wave = np.exp(-1j * theta)
        value = np.zeros(len(x), np.complex128)
        for tap in self.free[::-1]:
            value = value * wave + tap
        half, sine = np.sin(theta / 2)[:, None], np.sin(theta)[:, None]
        # both parts of the sum are positive: nothing cancels where the pole is near
        real = (1 - self.decays) + 2 * self.decays * half**2
        return np.asarray(value + (self.weights / (real + 1j * self.decays * sine)).sum(axis=1))

    def errors(self, x: np.ndarray) -> np.ndarray:
        """Return a bound of the error of s, which falls with x.

        Angles have an error of 2 units of rounding and sines of 8, so that D_j has one of 31 and a term
        of 45, relative to its absolute value. A power of the wave has 16 per lag. A rounded decay (slack)
        changes D_j by a unit of rounding, relative to 1.
        """
        inverse = 1 / self.distances(x)
        size = np.abs(self.weights)
        count = len(self.free) + len(self.weights)
        poles = (size * inverse * (64 + count + self.slack * (1 + inverse))).sum(axis=1)
        taps = np.abs(self.free).sum() * (32 * (len(self.free) + 1) + count + self.slack)
        return np.asarray(ROUNDING * (1 + 1e-9) * (poles + taps))

    def bends(self, x: np.ndarray) -> np.ndarray:
        """Return bounds of |s''| on arcs that start at x."""
        lag = np.arange(len(self.free))
        inverse = 1 / self.distances(x)
        poles = np.abs(self.weights) * self.decays * (1 + self.decays) * inverse**3
        poles = poles * (1 + 8 * ROUNDING * self.slack * inverse)
        return np.asarray(
            np.pi**2 * (1 + 1e-9) * (poles.sum(axis=1) + (np.abs(self.free) * lag**2).sum())
        )

    def widest(self, x: np.ndarray) -> np.ndarray:
        """Return the largest half-width of arcs from x on which `rational_indices` may expand s."""
        nearest = self.distances(x).min(axis=1, initial=1.0)
        free = 1 / max(1, len(self.free))
        return np.asarray(np.minimum(nearest / 4, free) / (np.pi * TAYLOR_RADIUS))


def prove(curve: Curve) -> tuple[Arcs, Hard]:
    """Cover [0, 1] by proven arcs and arcs that need higher precision, both sorted by `low`."""
    low, high = np.array([0.0]), np.array([1.0])
    first, last = curve.values(low), curve.values(high)
    proven: list[Arcs] = []
    hard: list[Hard] = []
    for _ in range(MAX_BISECTIONS):
        error, width = curve.errors(low), high - low
        done, floor = chord_test(first, last, curve.bends(low) * width**2 / 8, error)
        row = np.zeros(len(low), int)
        parts = Arcs(row, low, high, first, last, turn(first, last), floor)
        proven.append(Arcs(*(part[done] for part in parts)))
        low, high, first, last, error = (part[~done] for part in (low, high, first, last, error))
        if not len(low):
            break
        middle = (low + high) / 2
        value = curve.values(middle)
        least = np.minimum(np.minimum(np.abs(first), np.abs(last)), np.abs(value))
        left = (least < RESOLVED_ERROR_BOUNDS * error) & ((high - low) / 2 <= curve.widest(low))
        row = np.zeros(len(low), int)
        hard.append(Hard(*(part[left] for part in (row, low, high, least))))
        low, high, first, last, middle, value = (
            part[~left] for part in (low, high, first, last, middle, value)
        )
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        first, last = np.concatenate([first, value]), np.concatenate([value, last])
    else:
        raise AssertionError(f"{len(low)} arcs are not decided by {MAX_BISECTIONS} bisections")
    arcs = Arcs(*(np.concatenate(part) for part in zip(*proven, strict=True)))
    order = np.argsort(arcs.low)
    empty = Hard(*(np.empty(0, kind) for kind in (int, float, float, float)))
    return (
        Arcs(*(part[order] for part in arcs)),
        Hard(*(np.concatenate(part) for part in zip(*hard, empty, strict=True))),
    )


def maximum(curve: Curve) -> float:
    """Return max |s|, within a relative tolerance of 1e-9, by branch and bound."""
    low, high = np.array([0.0]), np.array([1.0])
    best = 0.0
    for _ in range(MAX_BISECTIONS):
        ends = np.maximum(np.abs(curve.values(low)), np.abs(curve.values(high)))
        best = max(best, float(ends.max()))
        # |s| is convex along a chord, and the curve is no farther from it than the sagitta
        bound = ends + curve.bends(low) * (high - low) ** 2 / 8
        keep = bound > best * (1 + MAXIMUM_TOLERANCE)
        if not keep.any():
            break
        low, high = low[keep], high[keep]
        middle = (low + high) / 2
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    return best
