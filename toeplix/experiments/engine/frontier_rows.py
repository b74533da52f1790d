"""What the rows of `frontier` say: the best runs of each budget, losses at a time, and how losses fall.

loss ~ FLOPs^-exponent between the budgets, at the best width and learning rate of each
"""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NotRequired

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
    time_error: NotRequired[float]  # standard error of log `relative_time` (`with_shared_times`)


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


def with_shared_times(rows: Sequence[FrontierRow]) -> list[FrontierRow]:
    """Return rows whose step time is the median over all runs of the same model and width.

    Learning rate, seed and number of steps do not change it, so a run's own timing, of a few seconds,
    says less about it than all of them together.
    """
    logs: dict[tuple[object, ...], list[float]] = {}
    for row in rows:
        logs.setdefault(_timed(row), []).append(math.log(row["relative_time"]))
    middle = {key: math.exp(statistics.median(several)) for key, several in logs.items()}
    errors = {key: _error_of_median(several) for key, several in logs.items()}
    return [
        {**row, "relative_time": middle[_timed(row)], "time_error": errors[_timed(row)]}
        for row in rows
    ]


def _timed(row: FrontierRow) -> tuple[object, ...]:
    return row["model"], row["dim"], setting(row)


def _error_of_median(values: Sequence[float]) -> float:
    """Return the standard error of the median of normally distributed values; 0 for a single one."""
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.pi / 2) * statistics.stdev(values) / math.sqrt(len(values))


def frontier(rows: Sequence[FrontierRow]) -> Frontier:
    """Return the rows of each model and budget at the best width and learning rate, of all seeds.

    The first seed chooses them, among those at which no seed diverged. All are of one setting, that
    with most models and rows. A best that is not yet repeated is left out (`_repeated`).
    """
    rows = with_shared_times(text_rows.fullest(rows, setting))
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


def at_a_look(best: Frontier) -> Frontier:
    """Return the rows of the planned numbers of seeds only (`tuning.at_a_look`)."""
    return {
        name: {
            budget: list(tuning.at_a_look({row["seed"]: row for row in group}).values())
            for budget, group in budgets.items()
        }
        for name, budgets in best.items()
    }


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


def at_equal_time(best: Frontier, name: str, other: str) -> tuple[float, intervals.Interval] | None:
    """Return a time, and the loss of a model minus that of another at it, paired by seed.

    The time is that of the shorter of their runs of the largest budget, so that nothing is extrapolated.
    Widths are those that are best at equal FLOPs; a model that is best at another width at equal time
    has a loss that is too high here. None without two budgets and a shared seed, and where one of them
    has no run as short as that.
    """
    budgets = [best.get(each, {}) for each in (name, other)]
    if min(map(len, budgets)) < 2:
        return None
    time = min(_time(several[max(several)]) for several in budgets)
    if any(time < min(map(_time, several.values())) for several in budgets):
        return None
    here, there = (at_time(several, time) for several in budgets)
    if not set(here) & set(there):
        return None
    error = math.hypot(*(_error_of_time(several, time) for several in budgets))
    return time, intervals.widened(intervals.difference(here, there), error)


def minus(best: Frontier, name: str, other: str, budget: float) -> str:
    """Return the loss of a model minus that of another at a budget, paired by seed, as text."""
    if name == other:
        return ""
    here, there = (losses(best.get(each, {}).get(budget, [])) for each in (name, other))
    return str(intervals.difference(here, there)) if set(here) & set(there) else ""


def minus_at_equal_time(best: Frontier, name: str, other: str) -> str:
    """Return the difference of `at_equal_time` and its time, as text.

    Mamba 2 has none: without its CUDA kernels its time says nothing about the model.
    """
    found = None if name in (other, "mamba2") else at_equal_time(best, name, other)
    return "" if found is None else f"{found[1]} (at {found[0]:,.0f})"


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


def at_time(budgets: Mapping[float, Sequence[FrontierRow]], time: float) -> dict[int, float]:
    """Return losses by seed at a time, interpolated linearly in its logarithm between budgets."""
    by_seed = [losses(group) for group in budgets.values()]
    return {
        seed: _between(budgets, time, [known[seed] for known in by_seed])
        for seed in sorted(set.intersection(*map(set, by_seed)))
    }


def _between(
    budgets: Mapping[float, Sequence[FrontierRow]], time: float, values: Sequence[float]
) -> float:
    times = [math.log(_time(group)) for group in budgets.values()]
    return float(np.interp(math.log(time), times, values))


def _time(group: Sequence[FrontierRow]) -> float:
    """Return the time of the runs of a group, which all have the same."""
    return COSTS[curves.TIME](group[0])


def _error_of_time(budgets: Mapping[float, Sequence[FrontierRow]], time: float) -> float:
    """Return the standard error of a loss at a time, if losses were exact and times were not."""
    errors = [group[0].get("time_error", 0.0) for group in budgets.values()]
    error = _between(budgets, time, errors)
    now, before = (at_time(budgets, time * math.exp(shift)) for shift in (0.0, -error))
    return abs(statistics.fmean(before[seed] - now[seed] for seed in now)) if now else 0.0
