"""Associative recall: retrieving the value of a key from the context.

The paper has no such task, and its copying task does not depend on content. Measured are multi-query
associative recall (as in zoology) for several numbers of pairs and widths, with noise between the pairs,
and with keys and values of several tokens; a phone book; and induction. A mixer whose weights do not
depend on its input has the same weights for every text: it can learn positions, but it can select a key
only through gates and channel layers.

The Transformer is the positive control: a task that it does not learn supports no conclusion about the
others. It learns such tasks suddenly, after a plateau, and only with large batches; sizes are chosen so
that it learns pairs. To separate slow learning from inability, the middle number of pairs and induction
are also trained for longer, with all seeds. Learning rates are tuned at the middle number of pairs, and
again at every other width and length.
"""

from dataclasses import replace
from typing import Any

from toeplix.experiments.engine import accuracies, style, task_training, task_tuning, tuning
from toeplix.experiments.engine.chance import guessing
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.task_training import Case, TaskRow
from toeplix.experiments.engine.task_tuning import best_rate, groups, tuned

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
LENGTH_MULTIPLES = (2,)  # of the context, with the middle number of pairs
SIZES: task_training.Sizes = {
    "paper": {
        "vocab": 8192, "dim": 128, "depth": 2, "context": 256, "batch": 64, "steps": 100_000,
        "warmup": 1000, "eval_sequences": 1000,
    },
    "desk": {
        "vocab": 129, "dim": 64, "depth": 2, "context": 64, "batch": 64, "steps": 3000,
        "warmup": 100, "eval_sequences": 256,
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
    """Return the cases; other numbers of pairs and other tasks keep the rate of the middle number."""
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
        resized = [replace(case, dim=case.dim // times) for times in WIDTH_DIVISORS]
        resized += [
            replace(case, context=case.context * times, part=f"pairs, {times} times the length")
            for times in LENGTH_MULTIPLES
        ]
        grid = tuning.around(rate, task_tuning.grid_of(case, scale, RATES))
        found += tuned(resized, scale, rows, grid)
        sizes = [pairs | {"options": {"pairs": many}} for many in several if many != middle]
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
    here = groups(rows, part="pairs")
    context = max(group[0]["context"] for group in here)
    widest = max(group[0]["dim"] for group in here)
    pairs = numbers(context)[1]
    middle = [group for group in here if group[0]["options"]["pairs"] == pairs]
    wide = [group for group in here if group[0]["dim"] == widest]
    shown = {f"{pairs} pairs": [group for group in middle if group[0]["dim"] == widest]}
    parts = ["pairs" + LONGER_SUFFIX, *others(context), "induction" + LONGER_SUFFIX]
    shown |= {part: groups(rows, part=part) for part in parts}
    shown = {title: some for title, some in shown.items() if some}
    drawing, axes = style.panels(3, -(-(len(shown) + 2) // 3), used=len(shown) + 2)
    for place, (title, some) in zip(axes, shown.items(), strict=False):
        accuracies.draw(place, some, title=title)
        accuracies.reference(place, some)
    accuracies.along(axes[-2], wide, "pairs", x="pairs", title=f"width {widest}")
    accuracies.along(axes[-1], middle, "dim", x="width", title=f"{pairs} pairs")
    text = "Accuracy of recall, each model at its best learning rate; guesses look nothing up."
    return style.compose(drawing, f"{text} {style.INTERVALS}")


def holds(rows: list[TaskRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about recall."""
    return {}
