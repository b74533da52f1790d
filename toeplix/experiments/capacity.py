"""Capacity (Figures 4b, d and S2, right): the longest text that one trained hidden state can represent.

Encoder and decoder have the same architecture and are trained together to reconstruct natural text from
the hidden state of its last token, at increasing lengths. All hidden states are normalised to the same
size before they are unrolled, and all learning rates are tuned on one grid. The part "as published" does
not normalise the states and trains Mamba 2 at half the learning rate. Parts: equal width; equal compute
(each model at the width at which it needs Hyena's FLOPs); longer training, which separates capacity from
slow learning. The last two parts are measured at the middle length and at the longest length that all
models have.

Two layers of attention with a window of half the text do not cover its first token. Their low accuracy is
a limit of the receptive field, not of capacity.
"""

import statistics
from typing import Any

from toeplix.experiments.engine import accuracies, equal_cost, intervals, style, task_training
from toeplix.experiments.engine.accuracies import gap
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import (
    LINEAR,
    MODELS,
    PAPER_FLAT,
    PAPER_HEADS,
    Settings,
    model,
)
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.task_training import Case, TaskRow, best_rate, groups, tuned

CLAIMS, MEASURES_TIME = ("C10", "C11"), False
COST = "45 minutes on two cores with --jobs 2"
RATES = (1e-2, 4e-3)
LENGTH_MULTIPLES = (1, 2, 4)  # of the first length; then doubled while a model reaches MIN_ACCURACY
LONGER_TRAINING = 4  # steps of longer training as a multiple of the other parts' steps
MIN_ACCURACY = 0.9  # accuracy below which a length is too long
COMPARED: dict[str, Settings] = {
    **{name: MODELS[name] for name in ("toeplitz", "paper flat", "paper 4 heads")},
    **{name: MODELS[name] for name in ("masked", "hyena", "mamba2", "llama", "window")},
    "linear elu": LINEAR,
}
FROZEN: dict[str, Settings] = {
    f"{how} {kind}": settings | {"frozen": frozen}
    for how, frozen in (("frozen", "random"), ("ones", "ones"))
    for kind, settings in (("flat", PAPER_FLAT), ("4 heads", PAPER_HEADS))
}
ANCHOR = "hyena"
SLOW_ON_CPU = ("mamba2",)  # on a CPU: equal compute at the middle length only
LONGER_AT_BOTH_LENGTHS = ("paper flat", "paper 4 heads", "hyena")
LONGER_AT_MIDDLE_LENGTH = (*LONGER_AT_BOTH_LENGTHS, "toeplitz", "frozen flat")
CLAIMED_FLOPS_RATIO = 0.5  # TMM over other models: the paper claims at most this
PUBLISHED = {"paper flat": 1.0, "hyena": 1.0, "mamba2": 0.5}  # learning rates over the grid's first
TMM = ("paper flat", "paper 4 heads")
SIZES: task_training.Sizes = {
    "paper": {
        "vocab": 8000, "dim": 512, "depth": 16, "context": 128, "batch": 128, "steps": 200_000,
        "warmup": 500, "eval_sequences": 50_000,
    },
    "laptop": {
        "vocab": 500, "dim": 64, "depth": 2, "context": 2, "batch": 32, "steps": 600,
        "warmup": 20, "eval_sequences": 256,
    },
    "smoke": {
        "vocab": 500, "dim": 16, "depth": 1, "context": 2, "batch": 2, "steps": 2,
        "warmup": 1, "eval_sequences": 2,
    },
}  # fmt: skip


def cases(scale: Scale, rows: list[TaskRow]) -> list[Case]:
    """Return the cases; learning rates are tuned at the middle length and kept at the others."""
    first = SIZES[scale.name]["context"]
    middle, last = (
        first * LENGTH_MULTIPLES[len(LENGTH_MULTIPLES) // 2],
        first * LENGTH_MULTIPLES[-1],
    )
    found, rates = [], {}
    for name, settings in (COMPARED | FROZEN).items():
        case = _case(scale, name, settings, part="equal width", context=middle)
        found += tuned([case], scale, rows, RATES)
        rates[name] = best_rate(case, scale, rows, RATES)
    for name, rate in rates.items():
        if rate is None:
            continue
        settings = (COMPARED | FROZEN)[name]
        others = [] if name in FROZEN else lengths(rows, name, first)
        sizes = [{"part": "equal width", "context": n} for n in others if n != middle]
        if name not in (*FROZEN, ANCHOR):
            sizes += [
                {"part": "equal compute", "context": n, "dim": _width(scale, name, n)}
                for n in (
                    [middle] if name in SLOW_ON_CPU and scale.name != "paper" else [middle, last]
                )
            ]
        steps = LONGER_TRAINING * SIZES[scale.name]["steps"]
        sizes += [
            {"part": "longer training", "context": n, "steps": steps}
            for n, several in ((middle, LONGER_AT_MIDDLE_LENGTH), (last, LONGER_AT_BOTH_LENGTHS))
            if name in several
        ]
        found += [
            _case(scale, name, settings, lr=rate, seed=seed, **each)
            for each in sizes
            for seed in scale.seeds
        ]
    for name, share in PUBLISHED.items():
        fields = {"part": "as published", "context": middle, "options": {"norm": False}}
        lr = task_training.grid_of(_case(scale, name, COMPARED[name]), scale, RATES)[0] * share
        found += [
            _case(scale, name, COMPARED[name], lr=lr, seed=seed, **fields) for seed in scale.seeds
        ]
    return found


def lengths(rows: list[TaskRow], name: str, first: int) -> list[int]:
    """Return the lengths of a model: those of all models, doubled while it reaches MIN_ACCURACY."""
    found = [first * times for times in LENGTH_MULTIPLES]
    while held(rows, name, found[-1]):
        found.append(2 * found[-1])
    return found


def held(rows: list[TaskRow], name: str, length: int) -> bool:
    several = groups(rows, part="equal width", model=name, context=length)
    accuracies = [row["accuracy"] for group in several for row in group]
    return bool(accuracies) and statistics.fmean(accuracies) >= MIN_ACCURACY


def _case(scale: Scale, name: str, settings: Settings, **other: Any) -> Case:
    fields = {"task": "autoencode", "options": {"norm": True}}
    return Case.at(scale, SIZES, name, settings, **(fields | other))


def _width(scale: Scale, name: str, context: int) -> int:
    """Return the width at which a model needs as many FLOPs as Hyena."""
    sizes = {key: SIZES[scale.name][key] for key in ("depth", "vocab")} | {"context": context}
    anchor = model(COMPARED[ANCHOR], dim=SIZES[scale.name]["dim"], **sizes)
    return equal_cost.width(COMPARED[name], anchor, equal_cost.compute, SIZES[scale.name]["batch"])


measure = task_training.measure


def figure(rows: list[TaskRow], published: list[Row]) -> Figure:
    drawing = style.canvas(3, 2)
    axes = drawing.subplots(2, 3)
    width = groups(rows, part="equal width")
    free = [group for group in width if group[0]["model"] in COMPARED]
    accuracies.along(axes[0][0], free, "context", x="length", title="equal width")
    axes[0][0].axhline(MIN_ACCURACY, color="0.6", linewidth=0.8, linestyle=":")
    middle = {group[0]["context"] for group in width if group[0]["model"] in FROZEN}
    fixed = [group for group in width if group[0]["context"] in middle]
    accuracies.draw(
        axes[0][1], [group for group in fixed if group[0]["model"] in COMPARED], title="one length"
    )
    frozen = [group for group in fixed if group[0]["model"] in FROZEN or group[0]["model"] in TMM]
    accuracies.draw(axes[0][2], frozen, title="trained and frozen filters")
    anchor = [group for group in width if group[0]["model"] == ANCHOR]
    equal = groups(rows, part="equal compute") + anchor
    accuracies.along(axes[1][0], equal, "context", x="length", title="equal compute")
    late = groups(rows, part="longer training")
    longest = max((group[0]["context"] for group in late), default=0)
    late = [group for group in late if group[0]["context"] == longest]
    accuracies.draw(axes[1][1], late, title=f"longer training, length {longest}")
    accuracies.draw(axes[1][2], groups(rows, part="as published"), title="the paper's protocol")
    return drawing


def table(rows: list[TaskRow]) -> Table:
    """Return the accuracy of every model, and the first length at which it is below MIN_ACCURACY."""
    found = []
    for line in accuracies.table(rows):
        wide = line["part"] == "equal width" and line["model"] in COMPARED
        name = str(line["model"])
        found.append({**line, **({"breaks at": breaks(rows, name)} if wide else {})})
    return found


def breaks(rows: list[TaskRow], name: str) -> str:
    """Return the shortest length at which the mean accuracy is below MIN_ACCURACY, as text."""
    found = {
        group[0]["context"]: statistics.fmean(row["accuracy"] for row in group)
        for group in groups(rows, part="equal width", model=name)
    }
    below = sorted(length for length, accuracy in found.items() if accuracy < MIN_ACCURACY)
    return str(below[0]) if below else f"above {max(found)}"


def kept(rows: list[TaskRow], name: str) -> dict[int, float]:
    """Return the mean accuracy over the lengths that all models have, by seed."""
    shared = set.intersection(
        *(
            {group[0]["context"] for group in groups(rows, part="equal width", model=each)}
            for each in COMPARED
        )
    )
    several = [
        group for n in shared for group in groups(rows, part="equal width", model=name, context=n)
    ]
    seeds = set.intersection(*({row["seed"] for row in group} for group in several))
    return {
        seed: statistics.fmean(
            row["accuracy"] for group in several for row in group if row["seed"] == seed
        )
        for seed in seeds
    }


def holds(rows: list[TaskRow]) -> dict[str, Verdict]:
    found = {}
    if all(len(groups(rows, part="equal width", model=name)) > 1 for name in COMPARED):
        found["C10"] = _above(rows)
    if all(groups(rows, part="equal width", model=name) for name in (*FROZEN, *TMM)):
        found["C11"] = _trainable(rows)
    return found


def _above(rows: list[TaskRow]) -> Verdict:
    scores = {name: kept(rows, name) for name in COMPARED}
    best = max(TMM, key=lambda name: statistics.fmean(scores[name].values()))
    answers: list[bool | None] = []
    words = []
    for other in ("hyena", "mamba2"):
        more = intervals.difference(scores[other], scores[best])
        share = _share(rows, best, other)
        answers += [intervals.below(more), share <= CLAIMED_FLOPS_RATIO]
        words.append(f"{other} minus {best}: {more} ({best} needs {share:.2f} of its FLOPs)")
    late = groups(rows, part="longer training")
    longest = max((group[0]["context"] for group in late), default=0)
    words += [
        f"{group[0]['model']} at {longest} with {LONGER_TRAINING} times the steps: "
        f"{intervals.mean([row['accuracy'] for row in group])}"
        for group in late
        if group[0]["context"] == longest
    ]
    limits = ", ".join(f"{name} {breaks(rows, name)}" for name in COMPARED)
    return Verdict(
        holds=intervals.every(*answers),
        ours=f"mean accuracy over lengths, {'; '.join(words)}; "
        f"below {MIN_ACCURACY:.0%} at length: {limits}",
    )


def _share(rows: list[TaskRow], name: str, other: str) -> float:
    here, there = (groups(rows, part="equal width", model=each)[0][0] for each in (name, other))
    return here["flops_per_step"] / there["flops_per_step"]


def _trainable(rows: list[TaskRow]) -> Verdict:
    """Judge C11 at the one length at which all frozen and trained models are measured."""
    at = groups(rows, model="ones flat")[0][0]["context"]

    def of(name: str) -> list[TaskRow]:
        return groups(rows, part="equal width", model=name, context=at)[0]

    asked = {
        f"{frozen} minus {free}": gap(of(frozen), of(free), "accuracy")
        for how in ("frozen", "ones")
        for frozen, free in ((f"{how} flat", TMM[0]), (f"{how} 4 heads", TMM[1]))
    }
    for how in ("frozen", "ones"):
        asked[f"{how} flat minus {how} 4 heads"] = gap(
            of(f"{how} flat"), of(f"{how} 4 heads"), "accuracy"
        )
    answers = [None if each is None else intervals.below(each) for each in asked.values()]
    words = "; ".join(f"{name} {each}" for name, each in asked.items())
    return Verdict(holds=intervals.every(*answers), ours=f"accuracy at length {at}: {words}")
