"""Frozen filters (Figure S2, left): is learning them necessary, and do heads soften it?

The paper's model with filters trained, frozen as drawn (Kaiming noise), or frozen at ones (a running
sum), flat and with 4 heads.
"""

from typing import Any

from toeplix.experiments import curves, intervals, learning
from toeplix.experiments.claims import Verdict
from toeplix.experiments.learning import Case, at_best, losses
from toeplix.experiments.models import PAPER_FLAT, PAPER_HEADS
from toeplix.experiments.rows import Row
from toeplix.experiments.scale import Scale

CLAIMS, ALONE = ("C6",), False
COST = "8 minutes on two cores with --jobs 2"
COMPARED: dict[str, dict[str, Any]] = {
    "paper flat": PAPER_FLAT,
    "paper 4 heads": PAPER_HEADS,
    "frozen flat": PAPER_FLAT | {"frozen": "random"},
    "frozen 4 heads": PAPER_HEADS | {"frozen": "random"},
    "ones flat": PAPER_FLAT | {"frozen": "ones"},
    "ones 4 heads": PAPER_HEADS | {"frozen": "ones"},
}


def cases(scale: Scale, rows: list[Row]) -> list[Case]:
    return learning.tuned(scale, COMPARED, rows)


measure = learning.measure
table = curves.table


def figure(rows: list[Row], published: list[Row]) -> Any:
    return curves.pair(rows, published, "trained and frozen filters")


def holds(rows: list[Row]) -> dict[str, Verdict]:
    groups = at_best(rows)
    wanted = ("paper flat", "paper 4 heads", "frozen flat", "frozen 4 heads")
    if not all(losses(groups.get(name, [])) for name in wanted):
        return {}
    flat = intervals.difference(losses(groups["paper flat"]), losses(groups["frozen flat"]))
    heads = intervals.difference(losses(groups["paper 4 heads"]), losses(groups["frozen 4 heads"]))
    # the price of freezing is -gap; both have intervals of their own
    softer = None
    if abs(heads.value) < abs(flat.value) and heads.low > flat.high:
        softer = True
    elif heads.high < flat.low:
        softer = False
    words = f"trained minus frozen, flat: {flat}; with 4 heads: {heads}"
    answer = intervals.every(intervals.below(flat), intervals.below(heads), softer)
    return {"C6": Verdict(holds=answer, ours=words)}
