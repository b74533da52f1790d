"""The protocol of comparisons: which learning rates are tried, which seeds, and which rows are current.

A random seed changes the initialisation and the data order. All models of a seed read the same data in
the same order, so their differences are paired by seed. Learning rates are chosen on the tuning half of
the validation documents (`corpora.TUNE`) and never on the reported half. The grid is extended while the
best rate is at its end, by up to MAX_EXTRA_RATES.

Comparisons of a claim have `Scale.max_seeds` seeds. At scale desk they have them from the start
(`Scale.all_seeds`), except where an experiment says that it has fewer. At scale laptop, and for
comparisons that decide no claim, the scale's seeds come first, and a comparison whose interval contains
its bound gets the others: this saves half of the runs where differences are clear. But it looks twice,
after 3 and after 6 seeds, so that such a comparison is decided wrongly in 9% of cases and not in 5%, and
one that Holm's correction leaves undecided stays at 3 seeds. SEEDS_RULE says so in the report.

PROTOCOL_VERSION is a field of every case that trains. Rows without it were measured under the first
protocol (one data order for all seeds; learning rates chosen on the reported data): they stay in their
files, `collect` measures their cases anew, and the report says which rows are old.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from toeplix.experiments.engine.intervals import Interval
from toeplix.experiments.engine.scale import Scale

PROTOCOL_VERSION = 2
VERSION_FIELD = "protocol_version"
SEEDS_RULE = (
    "At scale desk, comparisons of a claim have all their seeds from the start: 6, except 1 in C7c, "
    "and 3 in C7a, C7b, C15a, C15b and C17a (C15c was undecided with 3, and has 6 since then). At "
    "scale laptop a comparison has 3 seeds, and 6 if its interval over the 3 contains its bound: "
    "looking twice raises the probability of a wrong decision from 5% to 9% there."
)
MAX_EXTRA_RATES = 4  # maximum number of learning rates tried beyond the grid

Score = TypeVar("Score", float, tuple[float, float])  # of a learning rate; lower is better
AnyRow = TypeVar("AnyRow", bound=Mapping[str, Any])


def rates(grid: Sequence[float], tried: Mapping[float, Score]) -> tuple[float, ...]:
    """Return the grid, extended by up to `MAX_EXTRA_RATES` while the best learning rate is at its end.

    >>> rates((0.01, 0.02, 0.04), {0.01: 3.0, 0.02: 2.0, 0.04: 1.0})
    (0.01, 0.02, 0.04, 0.08)
    """
    grid = tuple(sorted(grid))
    for _ in range(MAX_EXTRA_RATES if len(grid) > 1 else 0):
        if set(grid) - set(tried):
            break
        best = min(grid, key=lambda rate: tried[rate])
        if best == grid[0]:
            grid = (_rounded(grid[0] ** 2 / grid[1]), *grid)
        elif best == grid[-1]:
            grid = (*grid, _rounded(grid[-1] ** 2 / grid[-2]))
    return grid


def around(rate: float, grid: Sequence[float]) -> tuple[float, ...]:
    """Return a grid around a learning rate that is known for another size, with the spacing of `grid`.

    >>> around(0.02, (0.01, 0.02, 0.04, 0.08))
    (0.01, 0.02, 0.04)
    """
    if len(grid) < 2:
        return (rate,)
    first, second = sorted(grid)[:2]
    return _rounded(rate * first / second), rate, _rounded(rate * second / first)


def _rounded(rate: float) -> float:
    return float(f"{rate:.2g}")


def best(grid: Sequence[float], tried: Mapping[float, Score]) -> float | None:
    """Return the learning rate with the lowest score; None until the extended grid is measured."""
    wanted = rates(grid, tried)
    return None if set(wanted) - set(tried) else min(wanted, key=lambda rate: tried[rate])


def edge(tried: Mapping[float, Score]) -> str:
    """Return where the best of the tried learning rates lies: "inside", "lowest", "highest" or "only"."""
    if len(tried) < 2:
        return "only"
    found = min(sorted(tried), key=lambda rate: tried[rate])
    return {min(tried): "lowest", max(tried): "highest"}.get(found, "inside")


def seeds(scale: Scale, undecided: bool = False) -> tuple[int, ...]:
    """Return the seeds of a comparison: the scale's, or up to its maximum if they do not decide it.

    >>> from toeplix.experiments.engine.scale import SCALES
    >>> seeds(SCALES["laptop"]), seeds(SCALES["laptop"], undecided=True)
    ((0, 1, 2), (0, 1, 2, 3, 4, 5))
    """
    if not undecided or len(scale.seeds) >= scale.max_seeds:
        return scale.seeds
    following = range(max(scale.seeds) + 1, max(scale.seeds) + 1 + scale.max_seeds)
    return (*scale.seeds, *following)[: scale.max_seeds]


def undecided(interval: Interval | None, bound: float = 0.0) -> bool:
    """Return whether an interval contains the bound. One that is not measured asks for nothing."""
    return interval is not None and interval.low <= bound <= interval.high


def version(row: Mapping[str, Any]) -> int:
    return int(row.get(VERSION_FIELD, 1))


def current(case: type, rows: Iterable[AnyRow]) -> list[AnyRow]:
    """Return the rows of this protocol; all rows if cases of this kind do not depend on it."""
    if not _depends(case):
        return list(rows)
    return [row for row in rows if version(row) == PROTOCOL_VERSION]


def newest(case: type, rows: Iterable[AnyRow]) -> tuple[list[AnyRow], bool]:
    """Return the rows to report, and whether they are of an old protocol: rows of one version only."""
    known = list(rows)
    if not _depends(case) or not known:
        return known, False
    latest = max(version(row) for row in known)
    return [row for row in known if version(row) == latest], latest < PROTOCOL_VERSION


def _depends(case: type) -> bool:
    return VERSION_FIELD in {field.name for field in dataclasses.fields(case)}
