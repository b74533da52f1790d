"""Controls: what the optimisation of Llama gains from other settings, and who else profits.

A control that is not trained decides nothing, and at small widths Llama learns late. Each change is made
alone, with learning rates tuned again: matrices initialised as N(0, 1/fan_in) instead of N(0, 0.02^2);
AdamW with beta2 of 0.95 and 0.98 instead of 0.999; four times the warmup; four times the batch for the
same number of tokens. "all" has the initialisation, beta2 of 0.98 and the warmup together. Other models
get the changes that are not Llama's own.
"""

from typing import Any

from toeplix.experiments.engine import curves, style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, Settings
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best
from toeplix.experiments.engine.text_training import Pair

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "40 minutes on two cores with --jobs 2"
OTHERS = ("toeplitz", "hyena")
TIMES = 4  # longer warmup and larger batches
FAN_IN: Settings = {"init": "fan_in"}


def compared(scale: Scale) -> dict[str, tuple[Settings, dict[str, Any]]]:
    """Return settings of the model, and fields of the case, by the name of the change."""
    warmup = {"warmup": min(TIMES * scale.warmup, scale.steps // 2)}
    batch = {
        "batch": TIMES * scale.batch,
        "steps": max(2, scale.steps // TIMES),
        "warmup": max(1, scale.warmup // TIMES),
    }
    changes: dict[str, dict[str, Any]] = {
        "beta2 0.95": {"recipe": {"beta2": 0.95}},
        "beta2 0.98": {"recipe": {"beta2": 0.98}},
        "warmup": warmup,
        "batch": batch,
    }
    found: dict[str, tuple[Settings, dict[str, Any]]] = {}
    for name in ("llama", *OTHERS):
        found[name] = MODELS[name], {}
        found |= {f"{name} + {change}": (MODELS[name], each) for change, each in changes.items()}
    llama = MODELS["llama"] | FAN_IN
    found["llama + init"] = llama, {}
    found["llama + all"] = llama, {"recipe": {"beta2": 0.98}, **warmup}
    return found


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    found, changed = [], compared(scale)
    for name, (settings, fields) in changed.items():
        base = name.split(" + ")[0]
        pairs = [
            Pair(each, base, decides=False)
            for each in changed
            if base == each.split(" + ")[0] != each
        ]
        found += text_training.tuned(scale, {name: settings}, rows, pairs=pairs, **fields)
    return found


measure = text_training.measure


def table(rows: list[TextRow]) -> list[dict[str, object]]:
    """Return final losses, and the difference to the same model without the change."""
    lines = curves.table(rows)
    for line in lines:
        name = str(line["model"])
        change = curves.gap(rows, name, name.split(" + ")[0])
        line["minus without it"] = str(change) if " + " in name and change else ""
    return lines


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    drawing, axes = style.panels(1, width=6.4, height=4.6)
    curves.ends(axes[0], dict(sorted(at_best(rows).items())))
    return curves.compose(drawing)


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about controls."""
    return {}
