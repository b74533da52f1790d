"""Initialisation: from the paper's model to this library's default, one change at a time.

Each row adds one change to the row before: the mixer first in a block; scaled weights and a final norm;
filters that fall with the lag instead of noise; a gate.
"""

from typing import Any

from toeplix.experiments import curves, learning, style
from toeplix.experiments.claims import Verdict
from toeplix.experiments.learning import Case, at_best
from toeplix.experiments.models import PAPER_FLAT
from toeplix.experiments.rows import Row
from toeplix.experiments.scale import Scale

CLAIMS: tuple[str, ...] = ()
ALONE = False
COST = "about 8 minutes on two cores with --jobs 2"


def compared() -> dict[str, dict[str, Any]]:
    changes: dict[str, dict[str, Any]] = {
        "paper flat": {},
        "+ mixer first": {"first": "mixer"},
        "+ scaled, final norm": {"init": "scaled", "final_norm": True},
        "+ falling filters": {"filters": "decay"},
        "+ gate (the default)": {"gate": True},
    }
    found, settings = {}, PAPER_FLAT
    for name, change in changes.items():
        settings = settings | change
        found[name] = settings
    return found


def cases(scale: Scale, rows: list[Row]) -> list[Case]:
    return learning.tuned(scale, compared(), rows)


measure = learning.measure
table = curves.table


def figure(rows: list[Row], published: list[Row]) -> Any:
    drawing = style.canvas(2)
    axes = drawing.subplots(1, 2)
    curves.draw(axes[0], rows, "steps")
    curves.ends(axes[1], at_best(rows), title="each row adds one change")
    return drawing


def holds(rows: list[Row]) -> dict[str, Verdict]:
    return {}
