"""Ablations of the mixer (Figure S1): sequential layers, heads, kernels; by steps and by time.

Each model is the paper's (channel layer first, Kaiming filters, no gate) with one change: one or two
Toeplitz layers in sequence, flat and with 4 heads; 1 to 16 heads; 1 to 16 kernels.
"""

import statistics

from toeplix.experiments.engine import curves, intervals, style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import PAPER_FLAT, PAPER_HEADS, Settings
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_training import Case, TextRow, at_best

CLAIMS, MEASURES_TIME = ("C4", "C5"), False
COST = "20 minutes on two cores with --jobs 2"
NUMBERS = (1, 2, 4, 8, 16)
BASE = "flat"


def compared() -> dict[str, Settings]:
    found: dict[str, Settings] = {BASE: PAPER_FLAT}
    found |= {f"{number} heads": PAPER_FLAT | {"heads": number} for number in NUMBERS}
    found |= {f"{number} kernels": PAPER_FLAT | {"kernels": number} for number in NUMBERS[1:]}
    found["two layers"] = PAPER_FLAT | {"sequential": 2}
    found["two layers, 4 heads"] = PAPER_HEADS | {"sequential": 2}
    return found


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    return text_training.tuned(scale, compared(), rows)


measure = text_training.measure
table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    drawing = style.canvas(3)
    axes = drawing.subplots(1, 3)
    groups = at_best(rows)
    for kind, colour in (("heads", style.OTHERS[0]), ("kernels", style.OTHERS[1])):
        known = {n: groups[_name(kind, n)] for n in NUMBERS if _name(kind, n) in groups}
        if not known:
            continue
        line_style = {"color": colour, "marker": "o", "markersize": 3, "alpha": 0.8}
        for seed in range(max(map(len, known.values()))):
            points = [(n, row["loss"]) for n, group in known.items() for row in group[seed:][:1]]
            axes[0].plot(*zip(*points, strict=True), label=None if seed else kind, **line_style)
        middle = [
            (statistics.median(row["relative_time"] for row in group), _mean_loss(group))
            for group in known.values()
        ]
        axes[1].plot(*zip(*middle, strict=True), label=kind, **line_style)
        for number, point in zip(known, middle, strict=True):
            axes[1].annotate(str(number), point, xytext=(3, 3), textcoords="offset points", size=7)
    axes[0].set_xscale("log", base=2)
    style.finish(axes[0], x="number of heads or kernels", y=curves.LOSS)
    style.finish(axes[1], x="time of a step (the flat model's = 1)", y="its mean")
    pairs = (BASE, "two layers", "4 heads", "two layers, 4 heads")
    curves.ends(axes[2], {name: groups[name] for name in pairs if name in groups})
    return drawing


def _mean_loss(rows: list[TextRow]) -> float:
    return statistics.fmean(text_training.losses(rows).values())


def _name(kind: str, number: int) -> str:
    return BASE if kind == "kernels" and number == 1 else f"{number} {kind}"


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
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
