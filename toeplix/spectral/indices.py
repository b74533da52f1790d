"""The certified index of a causal filter.

The filter w acts on sequences as a Toeplitz operator with the symbol a(z) = sum_k w[k] z^-k. If a has no
zero on the circle the operator is Fredholm, and here, where filters multiply rows from the right (y = x
T), its index is the winding number of a around 0:

    index = -(number of zeros of p(u) = sum_k w[k] u^k with |u| < 1)      from 0 down to -(n - 1)

For example the shift w = (0, 1) has y = (0, x0, x1, ...), a(z) = 1/z and index -1: the kernel is 0, and
the first position of every output is 0, so the cokernel has dimension 1. Multiplying columns from the
left, x -> T x with the same upper triangular T, is the transposed operator, whose index has the opposite
sign.

`arcs` proves arcs in double precision, `high_precision` those too close to 0; this module adds them up.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from torch import Tensor

from toeplix.spectral import high_precision
from toeplix.spectral.arcs import ROUNDING, Arcs, Hard, cells, prove, turn
from toeplix.spectral.checks import taps

CERTIFIED, SINGULAR, UNDECIDED = "certified", "not fredholm within eps", "undecided"
EPS = 2.0**-100  # of sum |w|
MIN_EPS = 2.0**-400
CHUNK_COEFFICIENTS = 2**22  # Taylor coefficients per chunk
GRID_POINTS_PER_TAP = 4  # of `arcs.cells`, at most: half of N < 8 n
MAX_TAYLOR_TERMS = 20  # at angles up to pi / 4, 17 of them reach double precision
MAX_PRODUCTS = 2**28  # maximum fixed-point products per filter, some minutes


@dataclass(frozen=True, kw_only=True)
class Index:
    """`index` is proven if `status` is "certified", else None.

    certified                 |a| >= margin sum |w| on the whole circle, so that no change of the
                              taps by less than this (summed) moves the index
    not fredholm within eps   |a| <= margin sum |w| at `angle`, and margin <= eps
    undecided                 `reason` says why
    """

    index: int | None
    status: str
    margin: float
    angle: float  # angle of the smallest |a| that was computed, radians in [0, pi]
    arcs: int = 0  # number of arcs in the proof
    reason: str = ""


def index(kernel: Tensor, *, radius: float = 1.0, eps: float = EPS, name: str = "kernel") -> Index:
    """Return the index of one filter (n,): minus the number of zeros of p within `radius`."""
    if kernel.ndim != 1:
        raise ValueError(
            f"{name} must be one filter (n,), got {tuple(kernel.shape)}: see `indices`"
        )
    return indices(kernel, radius=radius, eps=eps, name=name)[0]


def indices(
    kernel: Tensor, *, radius: float = 1.0, eps: float = EPS, name: str = "kernel"
) -> list[Index]:
    """Return the indices of many filters (..., n), in the order of their rows."""
    rows = taps(kernel, name)
    if not MIN_EPS <= eps < 1:
        raise ValueError(f"eps={eps} must be in [{MIN_EPS:.1e}, 1)")
    if not 0 < radius < math.inf:
        raise ValueError(f"radius={radius} must be positive and finite")
    rows, slack = _scaled(rows, radius)
    eps = max(eps, 64 * slack)
    step = max(1, CHUNK_COEFFICIENTS // (rows.shape[1] * GRID_POINTS_PER_TAP * MAX_TAYLOR_TERMS))
    found: list[Index] = []
    for start in range(0, len(rows), step):
        found += _decide(rows[start : start + step], eps, slack)
    return found


def _scaled(rows: np.ndarray, radius: float) -> tuple[np.ndarray, float]:
    """Return rows with taps times radius^k, scaled to sum |w| in (1/4, 1], and their rounding error."""
    slack = 0.0
    if radius != 1:
        lag = np.arange(rows.shape[1]) * math.log(radius)
        with np.errstate(divide="ignore"):
            logs = np.log(np.abs(rows)) + lag
        rows = np.sign(rows) * np.exp(logs - logs.max(axis=1, keepdims=True))
        largest = np.abs(logs[np.isfinite(logs)]).max() + np.abs(lag).max()
        slack = 32 * ROUNDING * (1 + float(largest))
    _, exponent = np.frexp(np.abs(rows).max(axis=1, keepdims=True))
    rows = np.ldexp(rows, -exponent)
    _, exponent = np.frexp(np.abs(rows).sum(axis=1, keepdims=True))
    return np.ldexp(rows, -exponent), slack


def _decide(rows: np.ndarray, eps: float, slack: float) -> list[Index]:
    grid = cells(rows, slack)
    proven, hard = prove(grid)
    order = np.lexsort((proven.low, proven.row))
    proven = Arcs(*(part[order] for part in proven))
    borders = np.searchsorted(proven.row, np.arange(len(rows) + 1))
    found = []
    for number, (start, stop) in enumerate(pairwise(borders)):
        mine = Arcs(*(part[start:stop] for part in proven))
        left = Hard(*(part[hard.row == number] for part in hard))
        row, centre = rows[number], int(grid.centre[number])
        expand = partial(high_precision.expand, row, centre, grid.steps)
        size = Size(total=float(np.abs(row).sum()), taps=len(row), centre=centre, steps=grid.steps)
        found.append(add_up(mine, left, expand, size, eps, slack))
    return found


class Size(NamedTuple):
    """Sizes of a filter in its proof."""

    total: float  # sum |w|
    taps: int
    centre: int  # half turns that the proof adds to the symbol
    steps: int  # the half circle is [0, steps]


def add_up(
    arcs: Arcs,
    hard: Hard,
    expand: Callable[[float, float, int], high_precision.Polynomial],
    size: Size,
    eps: float,
    slack: float = 0.0,
) -> Index:
    """Prove the remaining arcs, check that all arcs cover the half circle, and add up their turns.

    Args:
        arcs: proven arcs, sorted.
        hard: arcs to be proven in higher precision.
        expand: returns the expansion of the curve on an arc, from its ends and a number of bits.
        size: of the filter.
        eps: of size.total; a smaller |a| counts as a zero on the circle.
        slack: error of the expansion, because taps were rounded.
    """
    total, step, steps = size.total, math.pi / size.steps, size.steps
    pieces: list[tuple[float, float, high_precision.Proven]] = []
    bits, work = high_precision.bits_for(min(eps, eps * total), size.taps), 0
    for place in np.argsort(hard.size):
        low, high = float(hard.low[place]), float(hard.high[place])
        polynomial = expand(low, high, bits)
        answer = high_precision.prove_arc(polynomial, eps * total, slack)
        work += size.taps * len(polynomial.terms)
        middle, half = (low + high) / 2, (high - low) / 2
        if isinstance(answer, high_precision.Zero):
            angle = (middle + half * answer.at) * step
            return Index(index=None, status=SINGULAR, margin=answer.size / total, angle=angle)
        if work > MAX_PRODUCTS and not isinstance(answer, str):
            answer = (
                f"{len(hard.row)} arcs need more than double precision, and that takes too long"
            )
        if isinstance(answer, str):
            margin = float(hard.size[place]) / total
            return Index(
                index=None, status=UNDECIDED, margin=margin, angle=middle * step, reason=answer
            )
        pieces.append((low, high, answer))
    if pieces:
        more = Arcs(
            np.zeros(len(pieces), int),
            *(np.array([piece[i] for piece in pieces]) for i in (0, 1)),
            *(np.array([piece[2][i] for piece in pieces]) for i in range(4)),
        )
        arcs = Arcs(*(np.concatenate(pair) for pair in zip(arcs, more, strict=True)))
        order = np.argsort(arcs.low)
        arcs = Arcs(*(part[order] for part in arcs))
    covered = arcs.low[0] == 0 and arcs.high[-1] == steps and (arcs.high[:-1] == arcs.low[1:]).all()
    joints = turn(arcs.last[:-1], arcs.first[1:])
    turns = (float(arcs.turn.sum()) + float(joints.sum())) / math.pi
    if not covered or abs(turns - round(turns)) > 0.1:
        raise AssertionError(f"the arcs do not close: {turns} half turns")
    least = int(np.argmin(arcs.floor))
    margin = float(arcs.floor[least]) / total
    angle = float(arcs.low[least] + arcs.high[least]) / 2 * step
    if (
        3 * margin <= eps
    ):  # an arc at distance d > 2 radius has points within d + radius <= 3 (d - radius)
        return Index(index=None, status=SINGULAR, margin=3 * margin, angle=angle)
    proven = round(turns) - size.centre
    return Index(index=proven, status=CERTIFIED, margin=margin, angle=angle, arcs=len(arcs.row))
