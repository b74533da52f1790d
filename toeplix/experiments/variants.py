"""Variants of the mixer (Figure S1): sequential layers, heads, kernels; by steps and by time.

All are the paper's model (channel layer first, Kaiming filters, no gate) with one thing changed: one or
two Toeplitz layers in sequence, flat and with 4 heads; 1 to 16 heads; 1 to 16 kernels.
"""

from typing import Any

from toeplix.experiments import curves, intervals, learning, style
from toeplix.experiments.claims import Verdict
from toeplix.experiments.learning import Case, at_best
from toeplix.experiments.models import PAPER_FLAT, PAPER_HEADS
from toeplix.experiments.rows import Row
from toeplix.experiments.scale import Scale

CLAIMS, ALONE = ("C4", "C5"), False
COST = "about 20 minutes on two cores with --jobs 2"
NUMBERS = (1, 2, 4, 8, 16)
BASE = "flat"


def compared() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {BASE: PAPER_FLAT}
    found |= {f"{number} heads": PAPER_FLAT | {"heads": number} for number in NUMBERS}
    found |= {f"{number} kernels": PAPER_FLAT | {"kernels": number} for number in NUMBERS[1:]}
    found["two layers"] = PAPER_FLAT | {"sequential": 2}
    found["two layers, 4 heads"] = PAPER_HEADS | {"sequential": 2}
    return found


def cases(scale: Scale, rows: list[Row]) -> list[Case]:
    return learning.tuned(scale, compared(), rows)


measure = learning.measure
table = curves.table


def figure(rows: list[Row], published: list[Row]) -> Any:
    drawing = style.canvas(3)
    axes = drawing.subplots(1, 3)
    groups = at_best(rows)
    for kind, colour in (("heads", style.OTHERS[0]), ("kernels", style.OTHERS[1])):
        known = [n for n in NUMBERS if _name(kind, n) in groups]
        for place, per_time in zip(axes, (False, True), strict=False):
            for seed in range(max((len(groups[_name(kind, n)]) for n in known), default=0)):
                points = [
                    (row["relative_time"] if per_time else n, row["loss"])
                    for n in known
                    for row in groups[_name(kind, n)][seed : seed + 1]
                ]
                shown = {"color": colour, "marker": "o", "markersize": 3, "alpha": 0.8}
                place.plot(*zip(*points, strict=True), label=None if seed else kind, **shown)
    axes[0].set_xscale("log", base=2)
    style.finish(axes[0], x="number of heads or kernels", y=curves.LOSS)
    style.finish(axes[1], x="time of a step (the flat model's = 1)", y=curves.LOSS)
    pairs = (BASE, "two layers", "4 heads", "two layers, 4 heads")
    curves.ends(axes[2], {name: groups[name] for name in pairs if name in groups})
    return drawing


def _name(kind: str, number: int) -> str:
    return BASE if kind == "kernels" and number == 1 else f"{number} {kind}"


def holds(rows: list[Row]) -> dict[str, Verdict]:
    found = {}
    gaps = {
        "flat": curves.gap(rows, BASE, "two layers"),
        "4 heads": curves.gap(rows, "4 heads", "two layers, 4 heads"),
    }
    known = {name: gap for name, gap in gaps.items() if gap is not None}
    if len(known) == len(gaps):
        words = "; ".join(f"{name}, one layer minus two: {gap}" for name, gap in known.items())
        answer = intervals.every(*(intervals.below(gap) for gap in known.values()))
        found["C4"] = Verdict(holds=answer, ours=words)
    answers, sentences = [], []
    for kind in ("heads", "kernels"):
        helps = curves.gap(rows, _name(kind, 4), BASE)
        rises = curves.gap(rows, _name(kind, NUMBERS[-1]), _name(kind, 4))
        if helps is None or rises is None:
            return found
        answers += [intervals.below(helps), intervals.below(rises.flipped)]
        sentences.append(f"4 {kind} minus flat: {helps}, {NUMBERS[-1]} minus 4 {kind}: {rises}")
    found["C5"] = Verdict(holds=intervals.every(*answers), ours="; ".join(sentences))
    return found
