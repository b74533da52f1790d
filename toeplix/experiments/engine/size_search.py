"""The search for the best width and learning rate of a model, together.

    from a start, to the best of:                           until the start is the best of these
    1. its neighbours: the next widths, the next rates
    2. if none of them is better, both diagonals: wider at the lower rate, narrower at the higher one

Wider models want lower rates, so that a width which is compared at the rate of another one looks worse
than it is: the diagonals see that. If it is interrupted, the search goes on from what is measured to the
same end.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toeplix.experiments.engine import tuning

SAME_RATE = 0.15  # difference of logarithms below which two learning rates count as one


class Point(NamedTuple):
    """What is searched for."""

    width: int
    rate: float


class Search(NamedTuple):
    """The best point, None until all that the search needs is measured; and what it needs."""

    best: Point | None
    needed: list[Point]


def search(
    ladder: Sequence[int], grid: Sequence[float], start: Point, levels: Mapping[Point, float]
) -> Search:
    """Return where the search stands, given the losses of what is measured.

    Args:
        ladder: the widths that may be tried.
        grid: learning rates with the spacing of those to try; with one, rates are not searched.
        levels: losses, infinite if a run diverged. Points beside the search's path count, too: if one
            is better than the end of the path, the search goes on from there. Widths that are not on the
            ladder do not count.

    >>> bowl = lambda point: abs(math.log2(point.width / 64)) + abs(math.log2(point.rate / 0.02))
    >>> levels = {}
    >>> while not (found := search((16, 32, 64, 128), (0.01, 0.02), Point(16, 0.01), levels)).best:
    ...     levels |= {point: bowl(point) for point in found.needed}
    >>> found.best
    Point(width=64, rate=0.02)
    """
    needed: list[Point] = []
    levels = {point: each for point, each in levels.items() if point.width in ladder}
    here = _known(start, levels)
    while True:
        better = here
        for around in (_neighbours, _diagonals):
            several = [here, *(_known(each, levels) for each in around(ladder, grid, here))]
            needed += [each for each in several if each not in needed]
            if not set(several) <= set(levels):
                return Search(None, needed)
            better = min(several, key=lambda each: levels[each])
            if levels[better] < levels[here]:
                break
            better = here
        if better == here:
            better = min([here, *levels], key=lambda each: levels[each])
        if better == here:
            return Search(here, needed)
        here = better


def next_width(ladder: Sequence[int], width: int) -> int:
    """Return the next larger width, or the largest.

    >>> next_width((16, 32, 64), 32), next_width((16, 32, 64), 64)
    (64, 64)
    """
    return min((each for each in ladder if each > width), default=max(ladder))


def _neighbours(ladder: Sequence[int], grid: Sequence[float], here: Point) -> list[Point]:
    lower, higher = _rates(grid, here.rate)
    narrower, wider = _widths(ladder, here.width)
    widths = [Point(width, here.rate) for width in (*narrower, *wider)]
    return widths + [Point(here.width, rate) for rate in (*lower, *higher)]


def _diagonals(ladder: Sequence[int], grid: Sequence[float], here: Point) -> list[Point]:
    lower, higher = _rates(grid, here.rate)
    narrower, wider = _widths(ladder, here.width)
    up = [Point(width, rate) for width in wider for rate in lower]
    return up + [Point(width, rate) for width in narrower for rate in higher]


def _widths(ladder: Sequence[int], width: int) -> tuple[list[int], list[int]]:
    """Return the next smaller and the next larger width, each if there is one."""
    steps = sorted(ladder)
    place = steps.index(width)
    return steps[max(0, place - 1) : place], steps[place + 1 : place + 2]


def _rates(grid: Sequence[float], rate: float) -> tuple[list[float], list[float]]:
    """Return the next lower and the next higher learning rate, each if there is one."""
    several = tuning.around(rate, grid)
    return [each for each in several if each < rate], [each for each in several if each > rate]


def _known(point: Point, levels: Mapping[Point, float]) -> Point:
    """Return the point, or what is measured at its width with a rate that counts as the same."""
    if point in levels:
        return point
    near = [
        each
        for each in levels
        if each.width == point.width and abs(math.log(each.rate / point.rate)) < SAME_RATE
    ]
    return min(near, key=lambda each: abs(math.log(each.rate / point.rate)), default=point)
