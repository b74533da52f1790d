"""Leave-one-out ablation of the default model: what each of its parts is worth.

Every line changes one setting of the default model and keeps the others: without lookup blocks, with free
filters instead of recurrent ones, without the gate, without the short convolution before queries, keys
and values, with one free tap or one decay in the filters, without the norm of embeddings or the final
norm, with the MLP before the mixer, with GELU, with RMSNorm. The only line with two changes initialises
free filters with noise, as the paper does: recurrent ones have no such initialisation. Learning rates are
tuned for every line. At scale desk the runs are as long as those of `frozen` and `variants`, with three
seeds.
"""

from dataclasses import replace
from typing import Any

from toeplix.config import LOOKUP_BLOCKS
from toeplix.experiments.engine import curves, intervals, style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, Settings
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale, for_ablations
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best, losses
from toeplix.experiments.engine.text_training import Pair

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "25 minutes on two cores with --jobs 2; at scale desk an hour"
BASE = "hybrid"
ONLY_TOEPLITZ = {"blocks": ["toeplitz"] * len(LOOKUP_BLOCKS)}
CHANGES: dict[str, Settings] = {
    "no lookup": ONLY_TOEPLITZ,
    "free filters": {"filter": "free"},
    "no gate": {"gate": False},
    "no short convolution": {"short_conv": 1},
    "one free tap": {"free_taps": 1},
    "one decay": {"decays": 1},
    "free filters, Kaiming": {"filter": "free", "filter_init": "kaiming"},
    "no embedding norm": {"embedding_norm": 0.0},
    "no final norm": {"final_norm": False},
    "MLP first": {"block_order": "mlp_first"},
    "GELU": {"activation": "gelu"},
    "RMSNorm": {"norm": "rms"},
}
COMPARED: dict[str, Settings] = {BASE: MODELS[BASE]} | {
    name: MODELS[BASE] | change for name, change in CHANGES.items()
}
PAIRS = tuple(Pair(name, BASE, decides=False) for name in CHANGES)

SIZES: dict[str, dict[str, Any]] = {"desk": {"max_seeds": 3}}


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    here = replace(for_ablations(scale), **SIZES.get(scale.name, {}))
    return text_training.tuned(here, COMPARED, rows, pairs=PAIRS)


measure = text_training.measure


def table(rows: list[TextRow]) -> Table:
    """Return final losses, and their difference to the default model."""
    lines = curves.table(rows)
    for line in lines:
        change = curves.gap(rows, str(line["model"]), BASE)
        line["minus default"] = str(change) if line["model"] != BASE and change else ""
    return lines


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    """Plot final losses, and differences to the default model, paired by seed."""
    drawing, axes = style.panels(2, width=4.4, height=3.6)
    groups = at_best(rows)
    curves.ends(axes[0], groups, title="final loss")
    base = losses(groups.get(BASE, []))
    names = [name for name in groups if name != BASE]
    for place, name in enumerate(names):
        here = losses(groups[name])
        if not set(here) & set(base):
            continue
        change = intervals.difference(here, base)
        axes[1].plot(change.value, place, "o", color="#0072b2", markersize=5)
        if change.dof >= style.MIN_SEEDS - 1:
            axes[1].plot([change.low, change.high], [place] * 2, color="#0072b2", linewidth=1.4)
    axes[1].set_yticks(range(len(names)), names)
    axes[1].set_ylim(len(names) - 0.4, -1.6)  # room for the name of the line
    axes[1].locator_params(axis="x", nbins=6)
    style.finish(axes[1], x="loss minus that of the default (nats)", y="", title="one change each")
    style.level(axes[1], 0.0, "default", vertical=True)
    return curves.compose(drawing, more=["Differences in (b) are paired by seed."])


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about this model."""
    return {}
