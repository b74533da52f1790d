"""What the rows of `frontier` say: the best runs of each budget, losses at a time, the law of scaling."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toeplix.experiments.engine import curves, scaling_fit, text_rows, tuning
from toeplix.experiments.engine.text_rows import TextRow, losses

COMPARED = ("paper flat", "paper 4 heads", "toeplitz", "hybrid", "hyena", "llama", "mamba2")
TMM = ("paper flat", "paper 4 heads")
OTHERS = ("hyena", "mamba2")
MIN_CELLS = 6  # budgets and widths from which a law of scaling, which has five constants, is fitted


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


def frontier(rows: Sequence[FrontierRow]) -> Frontier:
    """Return the rows of each model and budget at the best width and learning rate.

    All are of one setting, that with most models and rows.
    """
    rows = text_rows.fullest(rows, setting)
    groups: dict[tuple[str, float], dict[tuple[int, float], list[FrontierRow]]] = {}
    for row in rows:
        by_size = groups.setdefault((row["model"], row["budget"]), {})
        by_size.setdefault((row["dim"], row["lr"]), []).append(row)
    found: Frontier = {}
    for name in COMPARED:
        for (which, budget), by_size in sorted(groups.items()):
            if which == name:
                most = max(map(len, by_size.values()))
                full = [group for group in by_size.values() if len(group) == most]
                best = min(full, key=lambda group: statistics.fmean(map(tuning.level, group)))
                found.setdefault(name, {})[budget] = best
    return found


def law(
    rows: Sequence[FrontierRow], name: str, budgets: Mapping[float, Sequence[FrontierRow]]
) -> dict[str, str]:
    """Return the constants of a model's law of scaling, empty while there are few runs."""
    like = next(iter(budgets.values()))[0]
    mine = [row for row in rows if row["model"] == name and setting(row) == setting(like)]
    cells: dict[tuple[float, int], list[FrontierRow]] = {}
    for row in mine:
        cells.setdefault((row["budget"], row["dim"]), []).append(row)
    known = [row for cell in cells.values() for row in tuning.at_best(cell) if row["loss"]]
    if len({row["budget"] for row in known}) < 3 or len(cells) < MIN_CELLS:
        return dict.fromkeys(("E", "a", "b"), "")
    return scaling_fit.constants(known)


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
