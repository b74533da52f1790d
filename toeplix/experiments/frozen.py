"""Frozen filters (Figure S2, left): the cost of not training filters, without and with heads.

The paper's model with trained filters, with filters frozen at their initialisation (Kaiming noise), and
with filters frozen at ones (a running sum), each flat and with 4 heads.
"""

from toeplix.experiments.engine import curves, intervals, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import PAPER_FLAT, PAPER_HEADS, Settings
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_training import Case, TextRow, at_best, losses

CLAIMS, MEASURES_TIME = ("C6",), False
COST = "10 minutes on two cores with --jobs 2"
COMPARED: dict[str, Settings] = {
    "paper flat": PAPER_FLAT,
    "paper 4 heads": PAPER_HEADS,
    "frozen flat": PAPER_FLAT | {"frozen": "random"},
    "frozen 4 heads": PAPER_HEADS | {"frozen": "random"},
    "ones flat": PAPER_FLAT | {"frozen": "ones"},
    "ones 4 heads": PAPER_HEADS | {"frozen": "ones"},
}


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    return text_training.tuned(scale, COMPARED, rows)


measure = text_training.measure
table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    return curves.pair(rows, published, "trained and frozen filters")


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    groups = at_best(rows)
    prices = {}  # loss with frozen filters minus loss with trained filters, by seed
    for kind in ("flat", "4 heads"):
        free, fixed = (losses(groups.get(f"{how} {kind}", [])) for how in ("paper", "frozen"))
        if not set(free) & set(fixed):
            return {}
        prices[kind] = {seed: fixed[seed] - free[seed] for seed in set(free) & set(fixed)}
    flat, heads = (intervals.mean(list(price.values())) for price in prices.values())
    softer = intervals.difference(prices["4 heads"], prices["flat"])
    words = (
        f"frozen minus trained, flat: {flat}; with 4 heads: {heads}; 4 heads minus flat: {softer}"
    )
    answer = intervals.every(
        intervals.below(flat.flipped), intervals.below(heads.flipped), intervals.below(softer)
    )
    return {"C6": Verdict(holds=answer, ours=words)}
