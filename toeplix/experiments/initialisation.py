"""Initialisation: from the paper's model to this library's default, one change at a time.

Each row adds one change to the row before: the mixer before the channel layer; scaled weights and a final
norm; filters that decay with the lag instead of noise; a gate.
"""

from typing import Any

from toeplix.experiments.engine import curves, style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import PAPER_FLAT
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.text_training import Case, at_best

CLAIMS: tuple[str, ...] = ()
ALONE = False
COST = "5 minutes on two cores with --jobs 2"


def compared() -> dict[str, dict[str, Any]]:
    changes: dict[str, dict[str, Any]] = {
        "paper flat": {},
        "+ mixer first": {"block_order": "mixer_first"},
        "+ scaled, final norm": {"init": "scaled", "final_norm": True},
        "+ falling filters": {"filter_init": "decay"},
        "+ gate (the default)": {"gate": True},
    }
    found, settings = {}, PAPER_FLAT
    for name, change in changes.items():
        settings = settings | change
        found[name] = settings
    return found


def cases(scale: Scale, rows: list[Row]) -> list[Case]:
    return text_training.tuned(scale, compared(), rows)


measure = text_training.measure
table = curves.table


def figure(rows: list[Row], published: list[Row]) -> Any:
    drawing = style.canvas(2)
    axes = drawing.subplots(1, 2)
    curves.draw(axes[0], rows, "steps")
    curves.ends(axes[1], at_best(rows), title="each row adds one change")
    return drawing


def holds(rows: list[Row]) -> dict[str, Verdict]:
    return {}
