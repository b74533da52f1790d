"""Capacity (Figures 4b, d and S2, right): the longest text that one trained hidden state can represent.

Encoder and decoder have the same architecture and are trained together to reconstruct natural text from
the hidden state of its last token, at increasing lengths. All hidden states are normalised to the same
size before they are unrolled, and all learning rates are tuned on one grid. The part "as published" does
not normalise the states and trains Mamba 2 at half the learning rate. Parts: equal width; equal compute
(each model at the width at which it needs Hyena's FLOPs); longer training, which separates capacity from
slow learning. The last two parts are measured at the middle length and at the longest length that all
models have. Learning rates are tuned at each of these lengths, and again where the width differs; longer
texts have the rate of the longest. Frozen and trained filters are compared at lengths at which not all
models make no errors. Frozen filters are ones in the paper's autoencoders, so ones decide; noise is
measured beside them. Every number is an accuracy after a fixed number of steps, not a limit.

A model that does not even learn the shortest texts is not trained, and the other is not compared with it.
At scale desk only the models that decide claims are measured, at equal width. They have six seeds, except
Mamba 2, a step of which takes four times as long there: it has three, at the shortest and the longest of
the lengths. Other models and parts are measured at other scales only.

Two layers of attention with a window of half the text do not cover its first token. Their low accuracy is
a limit of the receptive field, not of capacity.
"""

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from toeplix.experiments.engine import (
    accuracies,
    capacity_verdicts,
    equal_cost,
    style,
    task_training,
    task_tuning,
    tuning,
)
from toeplix.experiments.engine.capacity_verdicts import (
    FROZEN_PAIRS,
    RIVALS,
    TMM,
    breaks,
    ceiling,
)
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
from toeplix.experiments.engine.thresholds import TARGET_ACCURACY

CLAIMS, MEASURES_TIME = ("C10", "C11"), False
COST = "an hour on two cores with --jobs 2, at scale desk two hours"
RATES = (1e-2, 4e-3)
# lengths of trained and frozen filters over the first length
FROZEN_MULTIPLES = {"paper": (4, 8), "desk": (2, 4), "laptop": (4, 8), "smoke": (4, 8)}
# of the first length; then doubled while a model reaches TARGET_ACCURACY
LENGTH_MULTIPLES = (1, 2, 4)
MAX_LENGTH_MULTIPLE = 64
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
ANCHOR = "hyena"
SLOW_ON_CPU = ("mamba2",)  # on a CPU: equal compute at the middle length only
LONGER_AT_BOTH_LENGTHS = ("paper flat", "paper 4 heads", "hyena")
LONGER_AT_MIDDLE_LENGTH = (*LONGER_AT_BOTH_LENGTHS, "toeplitz", "frozen flat")
PUBLISHED = {"paper flat": 1.0, "hyena": 1.0, "mamba2": 0.5}  # learning rates over the grid's first
DECIDING = (*TMM, *RIVALS.values(), *FROZEN_PAIRS["C11c"])
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
    """Return the cases; learning rates are tuned at the lengths of `_tuned_lengths`."""
    base = _lengths(scale, LENGTH_MULTIPLES)
    found: list[Case] = []
    rates: dict[str, dict[int, float]] = {}
    more = _undecided(scale, rows, base[len(base) // 2])
    more |= _undecided_frozen(scale, rows, _lengths(scale, FROZEN_MULTIPLES[scale.name]))
    if scale.name == "desk":
        more -= {*SLOW_ON_CPU}
    for name in sorted(COMPARED | FROZEN, key=SLOW_ON_CPU.__contains__):
        settings = (COMPARED | FROZEN)[name]
        if scale.name == "desk" and name not in DECIDING:
            continue
        make = partial(_case, scale, name, settings, part="equal width")
        tuned_at = _tuned_lengths(scale, name)
        found += tuned([make(context=n) for n in tuned_at], scale, rows, RATES, undecided=more)
        known = {n: best_rate(make(context=n), scale, rows, RATES) for n in tuned_at}
        best = {n: rate for n, rate in known.items() if rate is not None}
        if len(best) < len(known):
            continue
        rates[name] = best
        seeds = tuning.seeds(scale, name in more)
        longer = [] if name in FROZEN else lengths(rows, name, base[0], seeds)
        found += [
            make(context=n, seed=seed, lr=best[tuned_at[-1]])
            for n in longer
            if n > tuned_at[-1]
            for seed in seeds
        ]
    if scale.name == "desk":
        return found
    return found + _other_parts(scale, rows, rates, more)


def _tuned_lengths(scale: Scale, name: str) -> list[int]:
    """Return the lengths at which the learning rates of a model are tuned."""
    base = _lengths(scale, LENGTH_MULTIPLES)
    if scale.name == "desk" and name in SLOW_ON_CPU:
        return [base[0], base[-1]]
    wanted = {base[len(base) // 2]} if name in FROZEN else {*base}
    if name in (*FROZEN, *TMM):
        wanted |= {*_lengths(scale, FROZEN_MULTIPLES[scale.name])}
    return sorted(wanted)


def _lengths(scale: Scale, multiples: Sequence[int]) -> list[int]:
    return [SIZES[scale.name]["context"] * times for times in multiples]


def _other_parts(
    scale: Scale, rows: list[TaskRow], rates: dict[str, dict[int, float]], more: set[str]
) -> list[Case]:
    """Return the cases of equal compute, of longer training and of the published protocol.

    `rates` are the best learning rates at equal width, by model and length.
    """
    base = _lengths(scale, LENGTH_MULTIPLES)
    middle, last = base[len(base) // 2], base[-1]
    steps = LONGER_TRAINING * SIZES[scale.name]["steps"]
    found = []
    for name, best in rates.items():
        settings = (COMPARED | FROZEN)[name]
        if name not in (*FROZEN, ANCHOR):
            slow = name in SLOW_ON_CPU and scale.name != "paper"
            make = partial(_case, scale, name, settings, part="equal compute")
            for n in [middle] if slow else [middle, last]:
                case = make(context=n, dim=_width(scale, name, n))
                grid = tuning.around(best[n], task_tuning.grid_of(case, scale, RATES))
                found += tuned([case], scale, rows, grid)
        make = partial(_case, scale, name, settings, part="longer training", steps=steps)
        found += [
            make(context=n, seed=seed, lr=best[n])
            for n, several in ((middle, LONGER_AT_MIDDLE_LENGTH), (last, LONGER_AT_BOTH_LENGTHS))
            if name in several
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
    pairs = [(other, name) for name in TMM for other in RIVALS.values()]
    return unsettled(scale, {group[0]["model"]: group for group in found}, pairs, "accuracy")


def _undecided_frozen(scale: Scale, rows: list[TaskRow], lengths: list[int]) -> set[str]:
    """Return the models of C11 whose comparisons the scale's seeds leave undecided at any length."""
    pairs = list(FROZEN_PAIRS.values())
    found: set[str] = set()
    for length in lengths:
        here = {
            group[0]["model"]: group for group in groups(rows, part="equal width", context=length)
        }
        open_pairs = [pair for pair in pairs if not ceiling([here.get(name, []) for name in pair])]
        found |= unsettled(scale, here, open_pairs, "accuracy")
    return found


def lengths(rows: list[TaskRow], name: str, first: int, seeds: Sequence[int]) -> list[int]:
    """Return the lengths of a model: those of all models, doubled while it reaches TARGET_ACCURACY."""
    found = [first * times for times in LENGTH_MULTIPLES]
    while found[-1] < first * MAX_LENGTH_MULTIPLE and held(rows, name, found[-1], seeds):
        found.append(2 * found[-1])
    return found


def held(rows: list[TaskRow], name: str, length: int, seeds: Sequence[int]) -> bool:
    """Return whether the mean over the seeds, once all are measured, reaches TARGET_ACCURACY."""
    several = groups(rows, part="equal width", model=name, context=length)
    known = {row["seed"]: row["accuracy"] for group in several for row in group}
    return set(seeds) <= set(known) and (
        statistics.fmean(known[seed] for seed in seeds) >= TARGET_ACCURACY
    )


def _case(scale: Scale, name: str, settings: Settings, **other: Any) -> Case:
    fields = {"task": "autoencode", "options": {"norm": True}}
    return Case.at(scale, SIZES, name, settings, **(fields | other))


def _width(scale: Scale, name: str, context: int) -> int:
    """Return the width at which a model needs as many FLOPs as Hyena."""
    sizes = {key: SIZES[scale.name][key] for key in ("depth", "vocab")} | {"context": context}
    anchor = model(COMPARED[ANCHOR], dim=SIZES[scale.name]["dim"], **sizes)
    return equal_cost.width(COMPARED[name], anchor, equal_cost.compute, SIZES[scale.name]["batch"])


measure = task_training.measure
holds = capacity_verdicts.holds


def figure(rows: list[TaskRow], published: list[Row]) -> Figure:
    width = groups(rows, part="equal width")
    free = [group for group in width if group[0]["model"] in COMPARED]
    equal = groups(rows, part="equal compute")
    by_length = {"equal width": free}
    if equal:
        anchor = [group for group in width if group[0]["model"] == ANCHOR]
        by_length["equal compute"] = equal + anchor
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
    shown = {title: some for title, some in shown.items() if some}
    used = len(by_length) + len(shown)
    drawing, axes = style.panels(3, -(-used // 3), used=used)
    for place, (title, some) in zip(axes, by_length.items(), strict=False):
        accuracies.along(place, some, "context", x="length", title=title)
    style.level(axes[0], TARGET_ACCURACY, f"{TARGET_ACCURACY:.0%}")
    for place, (title, some) in zip(axes[len(by_length) :], shown.items(), strict=True):
        accuracies.draw(place, some, title=title)
        accuracies.reference(place, some)
    text = "Accuracy of reconstructing a text from one state, each model at its best learning rate."
    kinds = {"frozen": "at noise", "ones": "at ones"}
    known = {group[0]["model"].split()[0] for group in frozen}
    words = [f'"{kind}": filters frozen {how}.' for kind, how in kinds.items() if kind in known]
    return style.compose(drawing, " ".join([text, style.INTERVALS, accuracies.SHIFTED, *words]))


def table(rows: list[TaskRow]) -> Table:
    """Return the accuracy of every model, and the first length at which it is below TARGET_ACCURACY."""
    found = []
    for line in accuracies.table(rows):
        wide = line["part"] == "equal width" and line["model"] in COMPARED
        name = str(line["model"])
        found.append({**line, **({"breaks at": breaks(rows, name)} if wide else {})})
    return found
