"""Associative recall: retrieving the value of a key from the context.

The paper has no such task, and its copying task does not depend on content. Measured are multi-query
associative recall (as in zoology) for several numbers of pairs and widths, with noise between the pairs,
and with keys and values of several tokens; a phone book; and induction. A mixer whose weights do not
depend on its input has the same weights for every text: it can learn positions, but it can select a key
only through gates and channel layers.

The Transformer is the positive control: a task that it does not learn supports no conclusion about the
others. It learns such tasks suddenly, after a plateau, and only with large batches; sizes are chosen so
that it learns pairs. To separate slow learning from inability, the middle number of pairs and induction
are also trained for longer, with all seeds.
"""

import functools
from typing import Any

import numpy as np

from toeplix.config import IGNORED
from toeplix.experiments.engine import accuracies, style, task_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.task_training import Case, TaskRow, best_rate, groups, tuned
from toeplix.tasks import recall as tasks

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "35 minutes on two cores with --jobs 2"
RATES = (1e-3, 4e-3)
NAMES = ("toeplitz", "paper flat", "hyena", "mamba2", "llama")
COMPARED = {name: MODELS[name] for name in NAMES}
FEWER_SEEDS = 2  # the middle number of pairs and longer training have all seeds
SLOW_ON_CPU = ("mamba2",)  # slow on a CPU, so one number of pairs only
LONGER_TRAINING = 3  # steps of longer training as a multiple of the other parts' steps
LONGER_SUFFIX = ", longer"  # suffix of a part's name
PAIR_DIVISORS = (16, 8, 4)  # divisors of the context
WIDTH_DIVISORS = (2,)  # divisors of the width
SIZES: task_training.Sizes = {
    "paper": {
        "vocab": 8192, "dim": 128, "depth": 2, "context": 256, "batch": 64, "steps": 100_000,
        "warmup": 1000, "eval_sequences": 1000,
    },
    "laptop": {
        "vocab": 65, "dim": 64, "depth": 2, "context": 32, "batch": 64, "steps": 700,
        "warmup": 20, "eval_sequences": 128,
    },
    "smoke": {
        "vocab": 33, "dim": 16, "depth": 1, "context": 32, "batch": 2, "steps": 2,
        "warmup": 1, "eval_sequences": 2,
    },
}  # fmt: skip


def numbers(context: int) -> list[int]:
    """Return the numbers of pairs that are compared; the last fills the context."""
    return [max(1, context // share) for share in PAIR_DIVISORS]


def others(context: int) -> dict[str, tuple[str, dict[str, int]]]:
    """Return the task and its options by the name of the part."""
    length = 3
    book = {"entries": (context - 2 - length) // (3 + length), "letters": max(2, context // 8)}
    return {
        "noisy": ("pairs", {"pairs": numbers(context)[1], "noise": 8}),
        "fuzzy": ("fuzzy", {"pairs": context // 12}),
        "phone book": ("phonebook", {**book, "digits": 10, "length": length}),
        "induction": ("induction", {}),
    }


def cases(scale: Scale, rows: list[TaskRow]) -> list[Case]:
    """Return the cases; learning rates are tuned at the middle number of pairs and then kept."""
    context = SIZES[scale.name]["context"]
    several, found = numbers(context), []
    middle = several[1]
    for name in COMPARED:
        case = _case(scale, name, part="pairs", task="pairs", options={"pairs": middle})
        found += tuned([case], scale, rows, RATES)
        rate = best_rate(case, scale, rows, RATES)
        if rate is None or (name in SLOW_ON_CPU and scale.name != "paper"):
            continue
        pairs: dict[str, Any] = {"part": "pairs", "task": "pairs"}
        sizes = [pairs | {"options": {"pairs": many}} for many in several if many != middle]
        sizes += [
            pairs | {"options": {"pairs": middle}, "dim": case.dim // times}
            for times in WIDTH_DIVISORS
        ]
        sizes += [
            {"part": part, "task": task, "options": options}
            for part, (task, options) in others(context).items()
        ]
        found += [
            _case(scale, name, lr=rate, seed=seed, **each)
            for each in sizes
            for seed in scale.seeds[:FEWER_SEEDS]
        ]
        found += [
            _case(scale, name, lr=rate, seed=seed, **each, steps=LONGER_TRAINING * case.steps)
            for each in (
                {"part": "pairs" + LONGER_SUFFIX, "task": "pairs", "options": {"pairs": middle}},
                {"part": "induction" + LONGER_SUFFIX, "task": "induction"},
            )
            for seed in scale.seeds
        ]
    return found


def _case(scale: Scale, name: str, **other: Any) -> Case:
    return Case.at(scale, SIZES, name, COMPARED[name], **({"data": ""} | other))


measure = task_training.measure


@functools.lru_cache
def guessing(context: int, vocab: int, pairs: int, noise: int = 0, texts: int = 4000) -> float:
    """Return the accuracy of the best guess that knows a question's position but not its key.

    The guess knows the position of a question and the number of questions before it. It answers with the
    value that such questions ask for most often, by its rank among the pairs.
    """
    counts: dict[tuple[int, int], list[int]] = {}
    for seed in (0, 1):  # seed 0 estimates the guess, seed 1 measures its accuracy
        right = asked = 0
        batch = tasks.pairs(np.random.default_rng(seed), texts, context, pairs, vocab, noise)
        kinds = 1 + (vocab - 1) // 2
        for inputs, labels in zip(*batch, strict=True):
            values = inputs[(inputs >= kinds) & (inputs < vocab)]
            for number, place in enumerate(np.flatnonzero(labels != IGNORED)):
                fits = values == labels[place]
                seen = counts.setdefault((int(place), number), [0] * pairs)
                if seed:
                    right += bool(fits[np.argmax(seen)])
                    asked += 1
                else:
                    for rank in np.flatnonzero(fits):
                        seen[rank] += 1
    return right / asked


def table(rows: list[TaskRow]) -> Table:
    """Return accuracies, and for pairs the accuracy of guessing."""
    found = []
    for group, line in accuracies.lines(rows):
        row = group[0]
        if row["task"] == "pairs":
            guess = guessing(row["context"], row["vocab"], **row["options"])
            line |= {"guessing": f"{guess:.3f}"}
        found.append(line)
    return found


def figure(rows: list[TaskRow], published: list[Row]) -> Figure:
    drawing = style.canvas(3, 3)
    axes = drawing.subplots(3, 3).flat
    here = groups(rows, part="pairs")
    widest = max(group[0]["dim"] for group in here)
    pairs = numbers(here[0][0]["context"])[1]
    middle = [group for group in here if group[0]["options"]["pairs"] == pairs]
    wide = [group for group in here if group[0]["dim"] == widest]
    both = [group for group in middle if group[0]["dim"] == widest]
    panel = next(axes)
    accuracies.draw(panel, both, title=f"{pairs} pairs")
    guess = guessing(both[0][0]["context"], both[0][0]["vocab"], pairs)
    panel.axhline(guess, color="grey", linewidth=1)
    parts = ["pairs" + LONGER_SUFFIX, *others(here[0][0]["context"]), "induction" + LONGER_SUFFIX]
    for part in parts:
        accuracies.draw(next(axes), groups(rows, part=part), title=part)
    accuracies.along(next(axes), wide, "pairs", x="pairs", title=f"width {widest}")
    accuracies.along(next(axes), middle, "dim", x="width", title=f"{pairs} pairs")
    return drawing


def holds(rows: list[TaskRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about recall."""
    return {}
