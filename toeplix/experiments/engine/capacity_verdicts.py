"""Verdicts on C10 and C11: which models reconstruct longer texts from one hidden state, and at what cost.

Capacity is the mean accuracy over the lengths that the other model and both of the paper's have. A model
that does not learn the shortest texts is not trained, and nothing is compared with it.
"""

import math
import statistics
from dataclasses import replace

from toeplix.experiments.engine import accuracies, intervals
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.task_training import TaskRow
from toeplix.experiments.engine.task_tuning import groups
from toeplix.experiments.engine.thresholds import (
    CLAIMED_FLOPS_RATIO,
    PERFECT_ACCURACY,
    TARGET_ACCURACY,
)
from toeplix.experiments.engine.verdicts import Comparison, decide, not_testable

TMM = ("paper flat", "paper 4 heads")
# pairs of C11 by part: a model that should be below another
FROZEN_PAIRS = {
    "C11a": ("ones flat", "paper flat"),
    "C11b": ("ones 4 heads", "paper 4 heads"),
    "C11c": ("ones flat", "ones 4 heads"),
}
RIVALS = {"C10a": "hyena", "C10b": "mamba2"}
COSTS = {"C10c": "hyena", "C10d": "mamba2"}


def breaks(rows: list[TaskRow], name: str) -> str:
    """Return the shortest length at which the mean accuracy is below TARGET_ACCURACY, as text.

    If a length before it was left out, the model may break there: "between 4 and 16".
    """
    found = {
        group[0]["context"]: statistics.fmean(row["accuracy"] for row in group)
        for group in groups(rows, part="equal width", model=name)
    }
    below = sorted(length for length, accuracy in found.items() if accuracy < TARGET_ACCURACY)
    if not below:
        return f"above {max(found)}"
    before = max((length for length in found if length < below[0]), default=below[0])
    return f"between {before} and {below[0]}" if 2 * before < below[0] else str(below[0])


def kept(rows: list[TaskRow], name: str, lengths: set[int]) -> dict[int, float]:
    """Return the mean accuracy of a model over several lengths, by seed."""
    several = [
        group for n in lengths for group in groups(rows, part="equal width", model=name, context=n)
    ]
    seeds = set.intersection(*({row["seed"] for row in group} for group in several))
    return {
        seed: statistics.fmean(
            row["accuracy"] for group in several for row in group if row["seed"] == seed
        )
        for seed in seeds
    }


def shared_lengths(rows: list[TaskRow], *names: str) -> set[int]:
    """Return the lengths that all of these models have."""
    return set.intersection(
        *(
            {group[0]["context"] for group in groups(rows, part="equal width", model=name)}
            for name in names
        )
    )


def _at(rows: list[TaskRow], name: str, lengths: set[int]) -> list[TaskRow]:
    """Return the rows of a model at its best learning rate, at some lengths."""
    several = groups(rows, part="equal width", model=name)
    return [row for group in several if group[0]["context"] in lengths for row in group]


def holds(rows: list[TaskRow]) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    names = (*TMM, *RIVALS.values())
    if all(len(groups(rows, part="equal width", model=name)) > 1 for name in names):
        found |= decide(_above(rows))
    return found | decide(_trainable(rows))


def _above(rows: list[TaskRow]) -> dict[str, list[Comparison]]:
    best = best_tmm(rows)
    rest = next(name for name in TMM if name != best)
    found: dict[str, list[Comparison]] = {}
    for part, other in RIVALS.items():
        lengths = shared_lengths(rows, *TMM, other)
        theirs, ours = kept(rows, other, lengths), kept(rows, best, lengths)
        if not set(theirs) & set(ours):
            continue
        more = intervals.difference(theirs, ours)
        limits = f"{other} {breaks(rows, other)}, {best} {breaks(rows, best)}"
        below = f"lengths at which they fall below {TARGET_ACCURACY:.0%}: {limits}"
        second = f"minus {rest}: {intervals.difference(theirs, kept(rows, rest, lengths))}"
        over = ", ".join(map(str, sorted(lengths)))
        found[part] = [
            Comparison(
                name=f"mean accuracy over lengths {over}, {other} minus {best}",
                interval=more,
                control=_unlearned(rows, other),
                detail=f"{below}; {second}",
            )
        ]
    for part, other in COSTS.items():
        longest = max(shared_lengths(rows, *TMM, other))
        share = Comparison(
            name=f"FLOPs of {best} over those of {other}",
            interval=intervals.exact(_share(rows, best, other, longest)),
            bound=CLAIMED_FLOPS_RATIO + 1e-9,
        )
        found[part] = [share]
    return found


def best_tmm(rows: list[TaskRow]) -> str:
    """Return the better of the paper's two models, chosen on the batches that are not reported.

    Rows of the first protocol have none: the model with the higher reported accuracy is taken.
    """
    lengths = set.union(*(shared_lengths(rows, *TMM, other) for other in RIVALS.values()))
    tuned_on: dict[str, list[float]] = {}
    for name in TMM:
        mine = [row for row in _at(rows, name, lengths) if "tune_loss" in row]
        losses = [row.get("tune_loss") for row in mine]
        tuned_on[name] = [math.inf if loss is None else loss for loss in losses]
    if all(tuned_on.values()):
        return min(TMM, key=lambda name: statistics.fmean(tuned_on[name]))
    return max(TMM, key=lambda name: statistics.fmean(kept(rows, name, lengths).values()))


def _unlearned(rows: list[TaskRow], name: str) -> str:
    """Return why a model counts as not trained, or nothing: it must learn the shortest length."""
    several = groups(rows, part="equal width", model=name)
    reason = accuracies.untrained(min(several, key=lambda group: group[0]["context"]))
    return f"{reason}, at the shortest length" if reason else ""


def _share(rows: list[TaskRow], name: str, other: str, length: int) -> float:
    """Return the FLOPs of a model over those of another, at a length that both have."""
    here, there = (_at(rows, each, {length})[0] for each in (name, other))
    return here["flops_per_step"] / there["flops_per_step"]


def _trainable(rows: list[TaskRow]) -> dict[str, list[Comparison] | Verdict]:
    """Judge C11 at the lengths at which all models are measured, except where both make no errors.

    A model with trained filters is the control of the frozen one: it must learn the shortest texts.
    """
    names = list(dict.fromkeys(name for pair in FROZEN_PAIRS.values() for name in pair))
    found = {
        name: {group[0]["context"]: group for group in groups(rows, part="equal width", model=name)}
        for name in names
    }
    shared = sorted(set.intersection(*(set(found[name]) for name in names)))
    control = {name: _unlearned(rows, name) for name in TMM if found[name]}
    answers: dict[str, list[Comparison] | Verdict] = {}
    for part, (first, second) in FROZEN_PAIRS.items():
        pairs = {length: (found[first][length], found[second][length]) for length in shared}
        errors = {length: pair for length, pair in pairs.items() if not ceiling(list(pair))}
        several = []
        for length, (here, there) in errors.items():
            name = f"length {length}, {first} minus {second}"
            each = accuracies.compare(here, there, name, field="accuracy")
            several += [replace(each, control=control.get(second, ""))] if each else []
        answers[part] = several
        if shared and not errors:
            answers[part] = not_testable(f"no model makes errors at lengths up to {max(shared)}")
    return answers


def _accuracy(rows: list[TaskRow]) -> float:
    return statistics.fmean(row["accuracy"] for row in rows)


def ceiling(several: list[list[TaskRow]]) -> bool:
    """Return whether models make too few errors to compare, or are not measured."""
    return not all(several) or min(map(_accuracy, several)) >= PERFECT_ACCURACY
