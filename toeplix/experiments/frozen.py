"""Frozen filters (Figure S2, left): the cost of not training filters, without and with heads.

The paper's model with trained filters, with filters frozen at their initialisation (Kaiming noise), and
with filters frozen at ones (a running sum), each flat and with 4 heads. The paper's frozen language
models have noise, so noise decides the claim; ones are measured beside it, except at scale desk. The
control is the trained model: frozen models may be bad because they are frozen.
"""

from dataclasses import replace

from toeplix.experiments.engine import curves, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import PAPER_FLAT, PAPER_HEADS, Settings
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale, for_ablations
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best
from toeplix.experiments.engine.text_training import Pair
from toeplix.experiments.engine.verdicts import Comparison, decide

CLAIMS, MEASURES_TIME = ("C6",), False
COST = "10 minutes on two cores with --jobs 2; at scale desk 35 minutes"
COMPARED: dict[str, Settings] = {
    "paper flat": PAPER_FLAT,
    "paper 4 heads": PAPER_HEADS,
    "frozen flat": PAPER_FLAT | {"frozen": "random"},
    "frozen 4 heads": PAPER_HEADS | {"frozen": "random"},
    "ones flat": PAPER_FLAT | {"frozen": "ones"},
    "ones 4 heads": PAPER_HEADS | {"frozen": "ones"},
}
PAIRS = (
    Pair("frozen flat", "paper flat"),
    Pair("frozen 4 heads", "paper 4 heads"),
    Pair("frozen 4 heads", "frozen flat"),
)


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    deciding = {name for pair in PAIRS for name in (pair.first, pair.second)}
    wanted = {
        name: settings
        for name, settings in COMPARED.items()
        if scale.name != "desk" or name in deciding
    }
    return text_training.tuned(for_ablations(scale), wanted, rows, pairs=PAIRS)


measure = text_training.measure
table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    order = list(COMPARED)
    ordered = sorted(rows, key=lambda row: order.index(row["model"]))
    return curves.pair(ordered, published, "trained and frozen filters")


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    price = [
        curves.compare(rows, f"frozen {kind}", f"paper {kind}", above=True)
        for kind in ("flat", "4 heads")
    ]
    parts = {"C6a": price, "C6b": [_heads(rows)]}
    return decide(
        {
            name: [each for each in several if each is not None] if all(several) else []
            for name, several in parts.items()
        }
    )


def _heads(rows: list[TextRow]) -> Comparison | None:
    """Compare heads with flat, both frozen; the models with trained filters are the control."""
    found, groups = curves.compare(rows, "frozen 4 heads", "frozen flat"), at_best(rows)
    trained = ("paper flat", "paper 4 heads")
    if found is None or not all(name in groups for name in trained):
        return None
    reasons = [curves.untrained(name, groups[name]) for name in trained]
    return replace(found, control=next(filter(None, reasons), ""))
