"""Capacity (Figures 4b, d and S2, right): the longest text that one trained hidden state can represent.

Encoder and decoder have the same architecture and are trained together to reconstruct natural text from
the hidden state of its last token, at increasing lengths. All hidden states are normalised to the same
size before they are unrolled, and all learning rates are tuned on one grid. The part "as published" does
not normalise the states and trains Mamba 2 at half the learning rate. Parts: equal width; equal compute
(each model at the width at which it needs Hyena's FLOPs); longer training, which separates capacity from
slow learning. The last two parts are measured at the middle length and at the longest length that all
models have. Learning rates are tuned at the middle length and again where the width differs. Frozen and
trained filters are compared at lengths at which not all models make no errors.

Two layers of attention with a window of half the text do not cover its first token. Their low accuracy is
a limit of the receptive field, not of capacity.
"""

import statistics
from typing import Any

from toeplix.experiments.engine import (
    accuracies,
    equal_cost,
    intervals,
    style,
    task_training,
    task_tuning,
    tuning,
)
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
from toeplix.experiments.engine.task_training import Case, TaskRow
from toeplix.experiments.engine.task_tuning import best_rate, groups, tuned, unsettled
from toeplix.experiments.engine.thresholds import (
    CLAIMED_FLOPS_RATIO,
    PERFECT_ACCURACY,
    TARGET_ACCURACY,
)
from toeplix.experiments.engine.verdicts import Comparison, decide, not_testable

CLAIMS, MEASURES_TIME = ("C10", "C11"), False
COST = "45 minutes on two cores with --jobs 2"
RATES = (1e-2, 4e-3)
FROZEN_MULTIPLES = (4, 8)  # of the first length: trained and frozen filters
LENGTH_MULTIPLES = (
    1,
    2,
    4,
)  # of the first length; then doubled while a model reaches TARGET_ACCURACY
LONGER_TRAINING = 4  # steps of longer training as a multiple of the other parts' steps
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
HOW, KIND = ("frozen", "ones"), ("flat", "4 heads")  # of FROZEN
ANCHOR = "hyena"
SLOW_ON_CPU = ("mamba2",)  # on a CPU: equal compute at the middle length only
LONGER_AT_BOTH_LENGTHS = ("paper flat", "paper 4 heads", "hyena")
LONGER_AT_MIDDLE_LENGTH = (*LONGER_AT_BOTH_LENGTHS, "toeplitz", "frozen flat")
PUBLISHED = {"paper flat": 1.0, "hyena": 1.0, "mamba2": 0.5}  # learning rates over the grid's first
TMM = ("paper flat", "paper 4 heads")
SIZES: task_training.Sizes = {
    "paper": {
        "vocab": 8000, "dim": 512, "depth": 16, "context": 128, "batch": 128, "steps": 200_000,
        "warmup": 500, "eval_sequences": 50_000,
    },
    "desk": {
        "vocab": 500, "dim": 64, "depth": 2, "context": 4, "batch": 32, "steps": 2000,
        "warmup": 60, "eval_sequences": 256,
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
    more = _undecided(scale, rows, middle)
    for name, settings in (COMPARED | FROZEN).items():
        case = _case(scale, name, settings, part="equal width", context=middle)
        found += tuned([case], scale, rows, RATES, undecided=more)
        rates[name] = best_rate(case, scale, rows, RATES)
    for name, rate in rates.items():
        if rate is None:
            continue
        settings = (COMPARED | FROZEN)[name]
        others = [first * times for times in FROZEN_MULTIPLES if name in (*FROZEN, *TMM)]
        others += [] if name in FROZEN else lengths(rows, name, first)
        sizes = [
            {"part": "equal width", "context": n} for n in dict.fromkeys(others) if n != middle
        ]
        if name not in (*FROZEN, ANCHOR):
            slow = name in SLOW_ON_CPU and scale.name != "paper"
            resized = [
                _case(
                    scale,
                    name,
                    settings,
                    part="equal compute",
                    context=n,
                    dim=_width(scale, name, n),
                )
                for n in ([middle] if slow else [middle, last])
            ]
            grid = tuning.around(rate, task_tuning.grid_of(resized[0], scale, RATES))
            found += tuned(resized, scale, rows, grid)
        steps = LONGER_TRAINING * SIZES[scale.name]["steps"]
        sizes += [
            {"part": "longer training", "context": n, "steps": steps}
            for n, several in ((middle, LONGER_AT_MIDDLE_LENGTH), (last, LONGER_AT_BOTH_LENGTHS))
            if name in several
        ]
        found += [
            _case(scale, name, settings, lr=rate, seed=seed, **each)
            for each in sizes
            for seed in tuning.seeds(scale, name in more)
        ]
    for name, share in PUBLISHED.items():
        fields = {"part": "as published", "context": middle, "options": {"norm": False}}
        lr = task_tuning.grid_of(_case(scale, name, COMPARED[name]), scale, RATES)[0] * share
        found += [
            _case(scale, name, COMPARED[name], lr=lr, seed=seed, **fields) for seed in scale.seeds
        ]
    return found


def _undecided(scale: Scale, rows: list[TaskRow], length: int) -> set[str]:
    """Return the models whose comparisons at one length the scale's seeds leave undecided."""
    found = groups(rows, part="equal width", context=length)
    pairs = [(other, name) for name in TMM for other in ("hyena", "mamba2")]
    return unsettled(scale, {group[0]["model"]: group for group in found}, pairs, "accuracy")


def lengths(rows: list[TaskRow], name: str, first: int) -> list[int]:
    """Return the lengths of a model: those of all models, doubled while it reaches TARGET_ACCURACY."""
    found = [first * times for times in LENGTH_MULTIPLES]
    while held(rows, name, found[-1]):
        found.append(2 * found[-1])
    return found


def held(rows: list[TaskRow], name: str, length: int) -> bool:
    several = groups(rows, part="equal width", model=name, context=length)
    accuracies = [row["accuracy"] for group in several for row in group]
    return bool(accuracies) and statistics.fmean(accuracies) >= TARGET_ACCURACY


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
    drawing, axes = style.panels(3, 2)
    width = groups(rows, part="equal width")
    free = [group for group in width if group[0]["model"] in COMPARED]
    accuracies.along(axes[0], free, "context", x="length", title="equal width")
    style.level(axes[0], TARGET_ACCURACY, f"{TARGET_ACCURACY:.0%}")
    anchor = [group for group in width if group[0]["model"] == ANCHOR]
    equal = groups(rows, part="equal compute") + anchor
    accuracies.along(axes[1], equal, "context", x="length", title="equal compute")
    lengths = {group[0]["context"] for group in width if group[0]["model"] in FROZEN}
    frozen = [group for group in width if group[0]["model"] in (*FROZEN, *TMM)]
    middle = min(lengths, default=0)
    late = groups(rows, part="longer training")
    longest = max((group[0]["context"] for group in late), default=0)
    shown = {
        f"equal width, length {middle}": [group for group in free if group[0]["context"] == middle],
        f"frozen filters, length {middle}": [
            group for group in frozen if group[0]["context"] == middle
        ],
        f"longer training, length {longest}": [
            group for group in late if group[0]["context"] == longest
        ],
        "as published": groups(rows, part="as published"),
    }
    for place, (title, some) in zip(axes[2:], shown.items(), strict=True):
        accuracies.draw(place, some, title=title)
        accuracies.reference(place, some)
    text = "Accuracy of reconstructing a text from one state, each model at its best learning rate."
    return style.compose(drawing, f"{text} {style.INTERVALS}")


def table(rows: list[TaskRow]) -> Table:
    """Return the accuracy of every model, and the first length at which it is below TARGET_ACCURACY."""
    found = []
    for line in accuracies.table(rows):
        wide = line["part"] == "equal width" and line["model"] in COMPARED
        name = str(line["model"])
        found.append({**line, **({"breaks at": breaks(rows, name)} if wide else {})})
    return found


def breaks(rows: list[TaskRow], name: str) -> str:
    """Return the shortest length at which the mean accuracy is below TARGET_ACCURACY, as text."""
    found = {
        group[0]["context"]: statistics.fmean(row["accuracy"] for row in group)
        for group in groups(rows, part="equal width", model=name)
    }
    below = sorted(length for length, accuracy in found.items() if accuracy < TARGET_ACCURACY)
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
    found: dict[str, Verdict] = {}
    if all(len(groups(rows, part="equal width", model=name)) > 1 for name in COMPARED):
        found |= decide(_above(rows))
    return found | decide(_trainable(rows))


def _above(rows: list[TaskRow]) -> dict[str, list[Comparison]]:
    scores = {name: kept(rows, name) for name in COMPARED}
    best = max(TMM, key=lambda name: statistics.fmean(scores[name].values()))
    found: dict[str, list[Comparison]] = {}
    for part, other in (("C10a", "hyena"), ("C10b", "mamba2")):
        more = intervals.difference(scores[other], scores[best])
        limits = f"(target accuracy up to length: {breaks(rows, other)} and {breaks(rows, best)})"
        name = f"mean accuracy over lengths, {other} minus {best} {limits}"
        found[part] = [Comparison(name=name, interval=more)]
        share = Comparison(
            name=f"FLOPs of {best} over those of {other}",
            interval=intervals.exact(_share(rows, best, other)),
            bound=CLAIMED_FLOPS_RATIO + 1e-9,
        )
        found.setdefault("C10c", []).append(share)
    return found


def _share(rows: list[TaskRow], name: str, other: str) -> float:
    here, there = (groups(rows, part="equal width", model=each)[0][0] for each in (name, other))
    return here["flops_per_step"] / there["flops_per_step"]


def _trainable(rows: list[TaskRow]) -> dict[str, list[Comparison] | Verdict]:
    """Judge C11 at the lengths at which all models are measured, except where both make no errors."""
    asked = {
        "C11a": [
            (f"{how} {kind}", free) for how in HOW for kind, free in zip(KIND, TMM, strict=True)
        ],
        "C11b": [(f"{how} flat", f"{how} 4 heads") for how in HOW],
    }
    names = [*FROZEN, *TMM]
    found = {
        name: {group[0]["context"]: group for group in groups(rows, part="equal width", model=name)}
        for name in names
    }
    shared = sorted(set.intersection(*(set(found[name]) for name in names)))
    answers: dict[str, list[Comparison] | Verdict] = {}
    for part, pairs in asked.items():
        several = []
        for length in shared:
            for first, second in pairs:
                here, there = found[first][length], found[second][length]
                if min(_accuracy(here), _accuracy(there)) < PERFECT_ACCURACY:
                    name = f"length {length}, {first} minus {second}"
                    several.append(accuracies.compare(here, there, name, field="accuracy"))
        answers[part] = [each for each in several if each is not None]
        if shared and not several:
            answers[part] = not_testable(f"no model makes errors at lengths up to {max(shared)}")
    return answers


def _accuracy(rows: list[TaskRow]) -> float:
    return statistics.fmean(row["accuracy"] for row in rows)
