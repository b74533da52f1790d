"""The protocol of comparisons: which learning rates are tried, which seeds, and which rows are current.

A random seed changes the initialisation and the data order. All models of a seed read the same data in
the same order, so their differences are paired by seed. Learning rates are chosen on the tuning half of
the validation documents (`corpora.TUNE`) and never on the reported half. The grid is extended while the
best rate is at its end, by up to MAX_EXTRA_RATES. Where shorter runs choose the rate, full runs of the
first seed check it: longer training often prefers a lower one (`settled`).

Comparisons of a claim have `Scale.max_seeds` seeds. At scale desk they have them from the start
(`Scale.all_seeds`), except where an experiment has fewer, or adds seeds. To add seeds means: the scale's
seeds come first, and the others where these leave a comparison open, which saves half of the runs where
differences are clear. `frontier` and `retention` add seeds to the models of parts that are undecided
after Holm's correction; at scale laptop, and for comparisons that decide no claim, those whose interval
contains its bound get them, so that one that Holm's correction alone leaves undecided stays at 3 seeds.
This looks twice, after 3 and after 6 seeds: a decision is wrong in up to 10% of cases and not in up to
5%. SEEDS_RULE says so in the report.

PROTOCOL_VERSION is a field of every case that trains. Rows without it were measured under the first
protocol (one data order for all seeds; learning rates chosen on the reported data): they stay in their
files, `collect` measures their cases anew, they decide no claim, and are shown only where an experiment
has no others.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from toeplix.experiments.engine.intervals import Interval
from toeplix.experiments.engine.scale import Scale

PROTOCOL_VERSION = 2
VERSION_FIELD = "protocol_version"
SEEDS_RULE = (
    "At scale desk, comparisons of a claim have 6 seeds from the start, with these exceptions: 3 in C7, "
    "C10b, C14, C15a, C15b and C17a (models of C15c and C17b had 3 first, and have 6 since C15c was "
    "undecided with them). In C1a to C1c and in C9, models have 3 seeds, and 6 if a part that compares "
    "them is undecided with 3, after Holm's correction; at scale laptop a comparison has 6 if its "
    "interval over 3 contains its bound. Looking twice raises the probability of a wrong decision from "
    "5% to at most 10% there."
)
FIRST_PROTOCOL = (
    "rows of the first protocol: learning rates were chosen on the reported data, and all seeds had one "
    "data order"
)
LOOKS = 3, 6  # numbers of seeds at which comparisons to which seeds are added are judged
MAX_EXTRA_RATES = 4  # maximum number of learning rates tried beyond the grid

Score = TypeVar("Score", float, tuple[float, float])  # of a learning rate; lower is better
Value = TypeVar("Value")
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


class Settled(NamedTuple):
    """The learning rate of reported runs, None until it is known, and the rates whose runs it needs."""

    rate: float | None
    needed: tuple[float, ...]


def settled(rate: float, tried: Sequence[float], levels: Mapping[float, float]) -> Settled:
    """Return the best learning rate of full runs, and the rates at which it needs one.

    The rate is lowered while the next lower one is better. Next to a rate at which a run diverged lies a
    smaller step down, the geometric mean of it and the next.

    Args:
        rate: that of the best shorter run.
        tried: the learning rates of shorter runs.
        levels: tuning losses of full runs by learning rate, infinite if a seed diverged.

    >>> settled(0.04, (0.01, 0.02, 0.04), {0.04: 3.0, 0.02: 2.0})
    Settled(rate=None, needed=(0.04, 0.02, 0.01))
    >>> settled(0.04, (0.01, 0.02, 0.04), {0.04: 3.0, 0.02: 2.0, 0.01: 2.5}).rate
    0.02
    """
    needed = [rate]
    for _ in range(MAX_EXTRA_RATES if len(tried) > 1 else 0):
        lower = _next_lower(rate, sorted(tried))
        below = [lower]
        if levels.get(rate) == math.inf:
            below.insert(0, _rounded(math.sqrt(rate * lower)))
        needed += below
        if not {rate, *below} <= set(levels):
            return Settled(None, tuple(needed))
        best = min((rate, *below), key=lambda each: levels[each])
        if levels[best] < math.inf and best != lower:
            return Settled(best, tuple(needed))
        rate = lower
    return Settled(rate if rate in levels else None, tuple(needed))


def _next_lower(rate: float, tried: Sequence[float]) -> float:
    """Return the next lower of the tried rates, or one at their distance below the lowest."""
    lower = [each for each in tried if each < rate]
    return max(lower) if lower else _rounded(rate * tried[0] / tried[1])


def level(row: Mapping[str, Any]) -> float:
    """Return the loss that chooses learning rates; rows of the first protocol have one loss only."""
    loss = row.get("tune_loss", row["loss"])
    return math.inf if loss is None else loss


def at_best(rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Return those of a model's rows that have its best learning rate, with the seeds that are measured.

    The first seed chooses the rate, among rates at which no seed diverged if there are any.
    """
    by_rate: dict[float, list[AnyRow]] = {}
    for row in rows:
        by_rate.setdefault(row["lr"], []).append(row)
    first = min((row["seed"] for row in rows), default=0)

    def order(group: list[AnyRow]) -> tuple[bool, float]:
        levels = {row["seed"]: level(row) for row in group}
        return math.inf in levels.values(), levels.get(first, math.inf)

    return min(by_rate.values(), key=order, default=[])


def edge(tried: Mapping[float, Score]) -> str:
    """Return where the best of the tried learning rates lies: "inside", "lowest", "highest" or "only"."""
    return place(min(sorted(tried), key=lambda rate: tried[rate]), tried) if tried else "only"


def place(rate: float, tried: Iterable[float]) -> str:
    """Return where a learning rate lies among those tried: "inside", "lowest", "highest" or "only"."""
    known = {*tried}
    if len(known) < 2:
        return "only"
    return {min(known): "lowest", max(known): "highest"}.get(rate, "inside")


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


def at_a_look(by_seed: Mapping[int, Value]) -> dict[int, Value]:
    """Return the values of the first seeds of LOOKS until all of them are there.

    Judging after each seed that is added would be more looks than SEEDS_RULE says.

    >>> list(at_a_look(dict.fromkeys(range(5)))), list(at_a_look(dict.fromkeys(range(6))))
    ([0, 1, 2], [0, 1, 2, 3, 4, 5])
    """
    first, last = LOOKS
    wanted = sorted(by_seed)
    return {seed: by_seed[seed] for seed in (wanted if len(wanted) >= last else wanted[:first])}


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
