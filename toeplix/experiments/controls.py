"""Controls: what the optimisation of Llama gains from other settings, and who else profits.

A control that is not trained decides nothing, and at small widths Llama learns late. Each change is made
alone, with learning rates tuned again: matrices initialised as N(0, 1/fan_in) and embeddings as N(0, 1)
instead of N(0, 0.02^2); AdamW with beta2 of 0.95 and 0.98 instead of 0.999; four times the warmup; four
times the batch for the same number of tokens. "all" has the initialisation, beta2 of 0.98 and the warmup
together. Other models get the changes that lower Llama's loss (the interval is below 0) except the
initialisation: Hyena's embeddings are N(0, 1) already, and what Toeplitz models gain by a norm of
embeddings is measured in `family`. "llama" without a change has Hugging Face's initialisation here, and
that by fan_in in all other experiments.

Hyena is used with 9 filter features everywhere; here it is compared with the paper's (3 features) and its
authors' (33 features, sines of frequency 14, filters with a learning rate of their own).
"""

from dataclasses import replace
from typing import Any

from toeplix.experiments.engine import curves, style, text_training, tuning
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, Settings
from toeplix.experiments.engine.models import published as published_init
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best, losses, of_setting
from toeplix.experiments.engine.text_training import Pair

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "30 minutes on two cores with --jobs 2; at scale desk an hour"
CONTROL = "llama"
OTHERS = ("toeplitz", "hyena")
TIMES = 4  # longer warmup and larger batches
HYENAS: dict[str, tuple[Settings, dict[str, Any]]] = {
    "hyena + 3 features": (MODELS["hyena"] | {"filter_features": 3}, {}),
    "hyena + 33 features": (
        MODELS["hyena"] | {"filter_features": 33, "filter_frequency": 14.0},
        {"recipe": {"filter_lr": 1e-3}},
    ),
}
# as runs that choose learning rates at scale desk, with the warmup that the scale had before: 5%
SIZES: dict[str, dict[str, Any]] = {
    "desk": {"steps": 600, "warmup": 30, "tuning": 1.0, "max_seeds": 3}
}
CHANGED = (
    "A number with an arrow lies beyond the panel. + init: matrices initialised as N(0, 1/fan_in) and "
    "embeddings as N(0, 1), not as N(0, 0.02^2); + beta2: of AdamW, 0.999 without; + warmup: "
    f"{TIMES} times as long; + batch: {TIMES} times as large, for the same number of tokens; + all: "
    "initialisation, beta2 of 0.98 and warmup together; + features: of Hyena's filters, 9 without."
)
Changes = dict[str, dict[str, Any]]  # fields of the case, by the name of the change


def changes(scale: Scale) -> Changes:
    """Return the changes that any model can have."""
    warmup = {"warmup": min(TIMES * scale.warmup, scale.steps // 2)}
    batch = {
        "batch": TIMES * scale.batch,
        "steps": max(2, scale.steps // TIMES),
        "warmup": max(1, scale.warmup // TIMES),
    }
    return {
        "beta2 0.95": {"recipe": {"beta2": 0.95}},
        "beta2 0.98": {"recipe": {"beta2": 0.98}},
        "warmup": warmup,
        "batch": batch,
    }


def compared(scale: Scale, others: Changes) -> dict[str, tuple[Settings, dict[str, Any]]]:
    """Return settings of the model and fields of the case by name; `others` are of other models."""
    all_changes = changes(scale)
    found: dict[str, tuple[Settings, dict[str, Any]]] = {}
    for name, some in {CONTROL: all_changes, **dict.fromkeys(OTHERS, others)}.items():
        plain = published_init(MODELS[name])
        found[name] = plain, {}
        found |= {f"{name} + {change}": (plain, each) for change, each in some.items()}
    llama = MODELS[CONTROL]
    found["llama + init"] = llama, {}
    found["llama + all"] = llama, all_changes["beta2 0.98"] | all_changes["warmup"]
    return found | HYENAS


def helpful(scale: Scale, rows: list[TextRow]) -> Changes:
    """Return the changes that lower the control's loss, over the scale's seeds.

    If the scale's maximum of seeds is measured, over these; numbers between are not looked at.
    """
    like = Case.of(scale, CONTROL, MODELS[CONTROL], lr=0.0, seed=scale.seeds[0])
    rows = of_setting(rows, like)
    known = at_best(rows)
    measured = {name: set(losses(group)) for name, group in known.items()}
    found = {}
    for change, fields in changes(scale).items():
        name = f"{CONTROL} + {change}"
        both = measured.get(name, set()) & measured.get(CONTROL, set())
        for seeds in (tuning.seeds(scale, undecided=True), scale.seeds):
            if both >= set(seeds):
                these = [row for row in rows if row["seed"] in seeds]
                gain = curves.gap(these, name, CONTROL)
                if gain is not None and gain.high < 0:
                    found[change] = fields
                break
    return found


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    here = replace(scale, **SIZES.get(scale.name, {}))
    found, changed = [], compared(here, helpful(here, rows))
    for name, (settings, fields) in changed.items():
        base = name.split(" + ")[0]
        pairs = [
            Pair(each, base, decides=False)
            for each in changed
            if base == each.split(" + ")[0] != each
        ]
        found += text_training.tuned(here, {name: settings}, rows, pairs=pairs, **fields)
    # at the paper's scale cases have the published initialisation, which one of the changes replaces
    return [replace(case, settings=changed[case.model][0]) for case in found]


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
    return curves.compose(drawing, more=[CHANGED])


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about controls."""
    return {}
