"""Initialisation: from the paper's model to this library's free filters, one change at a time.

Each row adds one change to the row before: the mixer before the channel layer; scaled weights and a final
norm; filters that decay with the lag instead of noise; a gate; a gate that starts open.
"""

from toeplix.experiments.engine import curves, style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import PAPER_FLAT, Settings
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "5 minutes on two cores with --jobs 2"


def compared() -> dict[str, Settings]:
    changes: dict[str, Settings] = {
        "paper flat": {},
        "+ mixer first": {"block_order": "mixer_first"},
        "+ scaled, final norm": {"init": "scaled", "final_norm": True},
        "+ falling filters": {"filter_init": "decay"},
        "+ gate": {"gate": True, "gate_bias": 0.0},
        "+ open gate": {"gate_bias": 1.0},
    }
    found, settings = {}, PAPER_FLAT
    for name, change in changes.items():
        settings = settings | change
        found[name] = settings
    return found


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    return text_training.tuned(scale, compared(), rows)


measure = text_training.measure
table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    drawing, axes = style.panels(2, width=4.2)
    curves.draw(axes[0], rows, "steps", title="during training")
    curves.ends(axes[1], at_best(rows), title="each line adds one change")
    return curves.compose(drawing)


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    return {}
