"""Learning rates and seeds of training on tasks, and the rows of each model at its best rate."""

import json
import math
import statistics
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from toeplix.experiments.engine import intervals, models, tuning
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.task_batches import TASKS
from toeplix.experiments.engine.task_training import Case, LearningRow, TaskRow
from toeplix.experiments.engine.text_training import Pair

AnyCase = TypeVar("AnyCase", bound=Case)


def tuned(
    wanted: Iterable[AnyCase],
    scale: Scale,
    rows: list[TaskRow],
    rates: Sequence[float],
    *,
    undecided: Container[str] = (),
) -> list[AnyCase]:
    """Return cases of every learning rate with the first seed, then of the best with all seeds.

    Models in `undecided` (`unsettled`) get more seeds.
    """
    found: dict[str, AnyCase] = {}
    for case in wanted:
        grid = tuning.rates(grid_of(case, scale, rates), tried(case, scale, rows))
        several = [replace(case, lr=lr, seed=scale.seeds[0]) for lr in grid]
        best = best_rate(case, scale, rows, rates)
        if best is not None:
            more = tuning.seeds(scale, case.model in undecided)
            several += [replace(case, lr=best, seed=seed) for seed in more]
        found |= {each.digest: each for each in several}
    return list(found.values())


def unsettled(
    scale: Scale,
    groups: Mapping[str, Sequence[LearningRow]],
    pairs: Iterable[Pair | tuple[str, str]],
    name: str = "area",
) -> set[str]:
    """Return the models of comparisons of field `name` that need more than the scale's seeds.

    The rule is that of `text_training.unsettled`. The bound of two names is 0.
    """
    found: set[str] = set()
    for first, second, bound, decides in (Pair(*pair) for pair in pairs):
        if scale.all_seeds and decides:
            found |= {first, second}
            continue
        known = [by_seed(groups.get(each, []), name) for each in (first, second)]
        if any(set(scale.seeds) - set(each) for each in known):
            continue
        here, there = ({seed: each[seed] for seed in scale.seeds} for each in known)
        if tuning.undecided(intervals.difference(here, there), bound):
            found |= {first, second}
    return found


def grid_of(case: Case, scale: Scale, rates: Sequence[float]) -> Sequence[float]:
    """Return the learning rates to try: the published one at the paper's scale, else some of `rates`."""
    if not scale.rates:
        return (models.published_rate(case.settings),)
    return rates[: len(scale.rates)]


def tried(case: Case, scale: Scale, rows: list[TaskRow]) -> dict[float, tuple[float, float]]:
    """Return the effort with the first seed by learning rate."""
    return {
        row["lr"]: effort([row])
        for row in rows
        if identity(row) == identity(asdict(case)) and row["seed"] == scale.seeds[0]
    }


def best_rate(
    case: Case, scale: Scale, rows: list[TaskRow], rates: Sequence[float]
) -> float | None:
    """Return the best learning rate with the first seed; None until the whole grid is measured."""
    return tuning.best(grid_of(case, scale, rates), tried(case, scale, rows))


def edge(rows: list[TaskRow], group: Sequence[TaskRow]) -> str:
    """Return where the learning rate of a group lies among those tried for it (`tuning.place`)."""
    mine = [row for row in rows if identity(row) == identity(group[0])]
    return tuning.place(group[0]["lr"], {row["lr"] for row in mine})


def identity(row: Mapping[str, object]) -> str:
    """Return a key of all fields of a case except learning rate and seed."""
    names = [field.name for field in fields(Case) if field.name not in ("lr", "seed")]
    return json.dumps([row.get(name) for name in names], sort_keys=True)


def effort(rows: list[TaskRow]) -> tuple[float, float]:
    """Return mean steps to TARGET_ACCURACY, then mean loss, on the tuning batches; lower is better.

    A run that diverged, even late, is worse than all others. Autoencoders are compared by their accuracy
    at the end of training, so only the loss counts.
    """
    loss = statistics.fmean(map(tuning.level, rows))
    if TASKS[rows[0]["task"]].auto or loss == math.inf:
        return loss, loss
    steps = [row.get("tune_solved", row["solved"]) for row in rows]
    return statistics.fmean(math.inf if step is None else step for step in steps), loss


def groups(rows: list[TaskRow], **wanted: object) -> list[list[TaskRow]]:
    """Return rows with these fields, grouped so that rows of a group differ in seed only.

    Each group has the best learning rate.
    """
    found: dict[str, dict[float, list[TaskRow]]] = {}
    for row in rows:
        fields: Mapping[str, object] = row
        if all(fields[name] == value for name, value in wanted.items()):
            found.setdefault(identity(row), {}).setdefault(row["lr"], []).append(row)
    chosen = []
    for by_rate in found.values():
        most = max(len(group) for group in by_rate.values())
        full = [group for group in by_rate.values() if len(group) == most]
        chosen.append(min(full, key=effort))
    return chosen


def by_seed(rows: Sequence[LearningRow], name: str) -> dict[int, float]:
    """Return field `name` of each row by seed; rows without a value are left out."""
    several: Sequence[Mapping[str, Any]] = rows
    return {row["seed"]: row[name] for row in several if row.get(name) is not None}
