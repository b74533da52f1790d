"""Where lookup breaks: multi-query associative recall over pairs, key channels and widths.

Models of lookup blocks with recurrent filters, beside hybrids, Hyena, Mamba 2 and Llama. The context is
eight positions for every pair. Learning rates are tuned for every model and setting: one that is best for
few pairs may learn nothing of many. The middle number of pairs has all seeds, other numbers of pairs,
of key channels and other widths have one. A part of its own has the default model, of four blocks, on
the smallest number of pairs. It and the models of lookup blocks are trained with all seeds at every
learning rate of the grid: one seed is too few to choose a rate.
"""

from dataclasses import replace
from statistics import fmean
from typing import Any

from toeplix.config import LOOKUP_BLOCKS
from toeplix.experiments.engine import accuracies, style, task_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, Settings
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.task_training import Case, TaskRow
from toeplix.experiments.engine.task_tuning import groups, tuned
from toeplix.experiments.recall import table as recall_table

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "an hour on two cores with --jobs 2"
RATES = (2e-3, 4e-3, 8e-3)
KEYS, DEFAULT_KEYS = (2, 4, 8, 16), 8
NORMED: Settings = {"embedding_norm": MODELS["hybrid"]["embedding_norm"]}
LOOKUP: Settings = {"arch": "lookup", "filter": "recurrent"} | NORMED
COMPARED: dict[str, Settings] = {
    "lookup": LOOKUP | {"keys": DEFAULT_KEYS},
    "lookup 1 of 2": MODELS["hybrid"] | {"blocks": ["toeplitz", "lookup"]},
    "hyena": MODELS["hyena"],
    "llama": MODELS["llama"],
    "mamba2": MODELS["mamba2"],
}
ALL_SEEDS = ("lookup", "lookup 1 of 2")  # at every learning rate of the grid
SLOW_ON_CPU = ("mamba2",)  # its scan in plain PyTorch: one number of pairs
PAIRS, MIDDLE = (4, 8, 16, 32), 8
POSITIONS_PER_PAIR = 8
DEFAULT_PART = "the default model"
DEFAULT_STEPS = {"paper": 100_000, "desk": 3000, "laptop": 1500, "smoke": 2}  # at most
SIZES: task_training.Sizes = {
    "paper": {
        "vocab": 8192, "dim": 128, "depth": 2, "batch": 64, "steps": 100_000, "warmup": 1000,
        "eval_sequences": 1000,
    },
    "desk": {
        "vocab": 129, "dim": 64, "depth": 2, "batch": 64, "steps": 3000, "warmup": 100,
        "eval_sequences": 256,
    },
    "laptop": {
        "vocab": 65, "dim": 64, "depth": 2, "batch": 64, "steps": 400, "warmup": 20,
        "eval_sequences": 128,
    },
    "smoke": {
        "vocab": 65, "dim": 16, "depth": 2, "batch": 2, "steps": 2, "warmup": 1,
        "eval_sequences": 2,
    },
}  # fmt: skip


def cases(scale: Scale, rows: list[TaskRow]) -> list[Case]:
    default, one_seed = _default_case(scale), replace(scale, seeds=scale.seeds[:1])
    found = tuned([default], scale, rows, RATES) + _with_all_seeds(default, scale)
    for name, settings in COMPARED.items():
        case = _case(scale, name, settings, MIDDLE)
        found += tuned([case], scale, rows, RATES)
        if name in ALL_SEEDS:
            found += _with_all_seeds(case, scale)
        if name not in SLOW_ON_CPU:
            found += tuned(_others(case, scale), one_seed, rows, RATES)
    return list({case.digest: case for case in found}.values())


def _others(middle: Case, scale: Scale) -> list[Case]:
    """Return other numbers of pairs, half the width and, for lookup, other numbers of key channels."""
    name, settings = middle.model, middle.settings
    found = [_case(scale, name, settings, pairs) for pairs in PAIRS if pairs != MIDDLE]
    found.append(replace(middle, dim=middle.dim // 2))
    if name == "lookup":
        found += [
            _case(scale, f"lookup, {keys} keys", LOOKUP | {"keys": keys}, pairs)
            for keys in KEYS
            if keys != DEFAULT_KEYS
            for pairs in (MIDDLE, PAIRS[-1])
        ]
    return found


def _with_all_seeds(case: Case, scale: Scale) -> list[Case]:
    """Return the case at all learning rates of the grid with all seeds."""
    return [replace(case, lr=lr, seed=seed) for lr in RATES for seed in scale.seeds]


def _default_case(scale: Scale) -> Case:
    """Return the default model with one lookup block, on the smallest number of pairs."""
    case = _case(scale, "hybrid", MODELS["hybrid"], PAIRS[0])
    return replace(
        case, part=DEFAULT_PART, depth=len(LOOKUP_BLOCKS), steps=DEFAULT_STEPS[scale.name]
    )


def _case(scale: Scale, name: str, settings: Settings, pairs: int) -> Case:
    shape: dict[str, Any] = {"context": POSITIONS_PER_PAIR * pairs, "options": {"pairs": pairs}}
    return Case.at(scale, SIZES, name, settings, data="", part="pairs", task="pairs", **shape)


measure = task_training.measure
table = recall_table


def figure(rows: list[TaskRow], published: list[Row]) -> Figure:
    drawing, axes = style.panels(3)
    several = groups(rows, part="pairs")
    widest = max((group[0]["dim"] for group in several), default=0)
    wide = [group for group in several if group[0]["dim"] == widest]
    named = [group for group in wide if group[0]["model"] in COMPARED]
    middle = [group for group in named if group[0]["options"]["pairs"] == MIDDLE]
    accuracies.draw(axes[0], middle, title=f"{MIDDLE} pairs")
    accuracies.reference(axes[0], middle)
    accuracies.along(axes[1], named, "pairs", x="pairs", title=f"width {widest}")
    keyed = [group for group in wide if _keys(group)]
    for pairs, marker in ((MIDDLE, "o-"), (PAIRS[-1], "s--")):
        here = [group for group in keyed if group[0]["options"]["pairs"] == pairs]
        points = sorted((_keys(group), fmean(row["accuracy"] for row in group)) for group in here)
        if points:
            label = f"lookup, {pairs} pairs"
            axes[2].plot(*zip(*points, strict=True), marker, label=label, color="#b2182b")
            accuracies.reference(axes[2], here)
    style.plain_ticks(axes[2], KEYS)
    axes[2].set_ylim(-0.03, 1.05)
    style.finish(axes[2], x="key channels", y=accuracies.ACCURACY, title="lookup")
    text = "Accuracy of recall, each model at its best learning rate; the guess looks nothing up."
    return style.compose(drawing, f"{text} {style.INTERVALS}")


def _keys(group: list[TaskRow]) -> int:
    """Return the number of key channels of a model of lookup blocks, and 0 for other models."""
    named = {f"lookup, {keys} keys": keys for keys in KEYS if keys != DEFAULT_KEYS}
    by_name = named | {"lookup": DEFAULT_KEYS}
    return by_name.get(group[0]["model"], 0)


def holds(rows: list[TaskRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about recall."""
    return {}
