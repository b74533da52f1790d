"""What the rows of `frontier` say: the best runs of each budget, losses at a time, and how losses fall.

loss ~ FLOPs^-exponent between the budgets, at the best width and learning rate of each
"""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from toeplix.experiments.engine import curves, intervals, text_rows, tuning
from toeplix.experiments.engine.size_search import Point
from toeplix.experiments.engine.style import MIN_SEEDS
from toeplix.experiments.engine.text_rows import TextRow, losses

COMPARED = ("paper flat", "paper 4 heads", "toeplitz", "hybrid", "hyena", "llama", "mamba2")
TMM = ("paper flat", "paper 4 heads")
RIVALS = {"C1a": "hyena", "C1b": "mamba2", "C1c": "hyena"}  # the model that a part names
OTHERS = tuple(dict.fromkeys(RIVALS.values()))


class FrontierRow(TextRow):
    """Fields of a `Case` and the measurements of its run."""

    budget: float


# fields that all runs of a frontier have in common; widths and steps follow from the budgets
SETTING = (*text_rows.SETTING, "depth", "context", "batch")
Frontier = dict[str, dict[float, list[FrontierRow]]]  # model -> budget -> rows of all seeds


def setting(row: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a row must have in common with others to be compared with them."""
    return tuple(row.get(name) for name in SETTING)


COSTS: dict[str, Callable[[FrontierRow], float]] = {
    "training FLOPs": lambda row: row["steps"] * row["flops_per_step"],
    curves.TIME: lambda row: row["steps"] * row["relative_time"],
    "training tokens": lambda row: row["steps"] * row["batch"] * row["context"],
}


def point_of(row: FrontierRow) -> Point:
    return Point(row["dim"], row["lr"])


def point_levels(rows: Iterable[FrontierRow], seed: int) -> dict[Point, float]:
    """Return the tuning losses of one seed by width and rate, infinite where any seed diverged."""
    known = list(rows)
    diverged = {point_of(row) for row in known if tuning.level(row) == math.inf}
    levels = {point_of(row): tuning.level(row) for row in known if row["seed"] == seed}
    return {point: math.inf if point in diverged else each for point, each in levels.items()}


def frontier(rows: Sequence[FrontierRow]) -> Frontier:
    """Return the rows of each model and budget at the best width and learning rate, of all seeds.

    The first seed chooses them, among those at which no seed diverged. All are of one setting, that
    with most models and rows. A best that is not yet repeated is left out (`_repeated`).
    """
    rows = text_rows.fullest(rows, setting)
    groups: dict[tuple[str, float], list[FrontierRow]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["budget"]), []).append(row)
    found: Frontier = {}
    for name in COMPARED:
        for (which, budget), mine in sorted(groups.items()):
            if which == name:
                levels = point_levels(mine, min(row["seed"] for row in mine))
                best = min(levels, key=lambda point: levels[point])
                found.setdefault(name, {})[budget] = [row for row in mine if point_of(row) == best]
    return _repeated(found)


def _repeated(found: Frontier) -> Frontier:
    """Return the budgets whose best has MIN_SEEDS seeds, if any has: before, its search may go on."""
    most = max((len(group) for several in found.values() for group in several.values()), default=0)
    wanted = min(MIN_SEEDS, most)
    ended = {
        name: {budget: group for budget, group in budgets.items() if len(group) >= wanted}
        for name, budgets in found.items()
    }
    return {name: budgets for name, budgets in ended.items() if budgets}


def tried_beside(rows: Sequence[FrontierRow], group: Sequence[FrontierRow]) -> dict[Point, float]:
    """Return what was tried for the model and budget of a group, with the first of its seeds."""
    row = group[0]
    alike = [
        each
        for each in rows
        if (each["model"], each["budget"], setting(each))
        == (row["model"], row["budget"], setting(row))
    ]
    return point_levels(alike, min(each["seed"] for each in group))


def edge(rows: Sequence[FrontierRow], group: Sequence[FrontierRow]) -> str:
    """Return where a group's learning rate lies among those tried at its width."""
    tried, here = tried_beside(rows, group), point_of(group[0])
    return tuning.place(here.rate, (point.rate for point in tried if point.width == here.width))


def width_edge(rows: Sequence[FrontierRow], group: Sequence[FrontierRow]) -> str:
    """Return where a group's width lies among those tried: a ladder may end where the best is."""
    return tuning.place(group[0]["dim"], (point.width for point in tried_beside(rows, group)))


def with_seeds(best: Frontier, seeds: Collection[int]) -> Frontier:
    """Return the rows of some seeds; budgets without all of them are left out."""
    found: Frontier = {}
    for name, budgets in best.items():
        for budget, group in budgets.items():
            some = [row for row in group if row["seed"] in seeds]
            if {row["seed"] for row in some} == set(seeds):
                found.setdefault(name, {})[budget] = some
    return found


def best_tmm(best: Frontier, budget: float) -> str | None:
    """Return the better of the paper's two models at a budget, None until both are measured there.

    They are compared by the tuning losses of the seeds that both have.
    """
    levels = [
        {row["seed"]: tuning.level(row) for row in best.get(name, {}).get(budget, [])}
        for name in TMM
    ]
    shared = set.intersection(*map(set, levels))
    if not shared:
        return None
    means = [statistics.fmean(known[seed] for seed in shared) for known in levels]
    return TMM[means.index(min(means))]


def equal_time(best: Frontier, *names: str) -> tuple[float, list[dict[int, float]]]:
    """Return a time, and the losses of models at it by seed.

    It is that of the shortest run of the largest budget, so that no seed is extrapolated.
    """
    time = min(COSTS[curves.TIME](row) for name in names for row in best[name][max(best[name])])
    return time, [at_time(best[name], time) for name in names]


def minus(best: Frontier, name: str, other: str, budget: float) -> str:
    """Return the loss of a model minus that of another at a budget, paired by seed, as text."""
    if name == other:
        return ""
    here, there = (losses(best.get(each, {}).get(budget, [])) for each in (name, other))
    return str(intervals.difference(here, there)) if set(here) & set(there) else ""


def minus_at_equal_time(best: Frontier, name: str, other: str) -> str:
    """Return the loss of a model minus that of another at the time of `equal_time`, as text.

    Mamba 2 has none: without its CUDA kernels its time says nothing of the model.
    """
    measured = all(len(best.get(each, {})) > 1 for each in (name, other))
    if name in (other, "mamba2") or not measured:
        return ""
    _, (here, there) = equal_time(best, name, other)
    return str(intervals.difference(here, there)) if set(here) & set(there) else ""


def exponent(budgets: Mapping[float, Sequence[FrontierRow]]) -> str:
    """Return the exponent with which a model's loss falls from budget to budget, as text.

    It is fitted to the logarithms of each seed by itself; the interval is over seeds.
    """
    by_seed = [losses(group) for group in budgets.values()]
    seeds = set.intersection(*map(set, by_seed))
    if len(budgets) < 3 or not seeds:
        return ""
    slopes = [
        -np.polyfit(np.log(list(budgets)), np.log([known[seed] for known in by_seed]), 1)[0]
        for seed in sorted(seeds)
    ]
    return str(intervals.mean([float(slope) for slope in slopes]))


def at_time(budgets: dict[float, list[FrontierRow]], time: float) -> dict[int, float]:
    """Return losses by seed at a time, interpolated linearly in its logarithm between budgets.

    Every seed has the times that were measured in its own runs, so that their spread is part of the
    spread of the losses.
    """
    times = [{row["seed"]: COSTS[curves.TIME](row) for row in group} for group in budgets.values()]
    by_seed = [losses(group) for group in budgets.values()]
    seeds = set.intersection(*map(set, by_seed))
    return {
        seed: float(
            np.interp(
                np.log(time),
                np.log([each[seed] for each in times]),
                [each[seed] for each in by_seed],
            )
        )
        for seed in seeds
    }
