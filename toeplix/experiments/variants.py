"""Ablations of the mixer (Figure S1): sequential layers, heads, kernels; by steps and by time.

Each model is the paper's (channel layer first, Kaiming filters, no gate) with one change: one or two
Toeplitz layers in sequence, flat and with 4 heads; 1 to 16 heads; 1 to 16 kernels.
"""

import statistics
from typing import Any

from toeplix.experiments.engine import curves, intervals, style, text_rows, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import PAPER_FLAT, PAPER_HEADS, Settings
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale, for_ablations
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best
from toeplix.experiments.engine.text_training import Pair
from toeplix.experiments.engine.thresholds import EARLY
from toeplix.experiments.engine.verdicts import Comparison, decide

CLAIMS, MEASURES_TIME = ("C4", "C5"), False
COST = "20 minutes on two cores with --jobs 2; at scale desk an hour after `frozen`"
NUMBERS = (1, 2, 4, 8, 16)
BASE = "flat"
# no part of C4 or C5 compares them
NOT_AT_DESK = ("1 heads", "2 heads", "8 heads", "2 kernels", "8 kernels")
KINDS: dict[str, dict[str, Any]] = {  # how they are drawn
    "heads": {"color": "#0072b2", "marker": "o", "markersize": 4, "linewidth": 1.1},
    "kernels": {"color": "#d55e00", "marker": "^", "markersize": 4, "linewidth": 1.1},
}
SHIFT = 0.08  # of their points, in powers of 2
PAIRS = (
    Pair(BASE, "two layers"),
    Pair("4 heads", "two layers, 4 heads"),
    *(Pair(f"4 {kind}", BASE) for kind in ("heads", "kernels")),
    *(Pair(f"{NUMBERS[-1]} {kind}", f"4 {kind}") for kind in ("heads", "kernels")),
)


def compared() -> dict[str, Settings]:
    found: dict[str, Settings] = {BASE: PAPER_FLAT}
    found |= {f"{number} heads": PAPER_FLAT | {"heads": number} for number in NUMBERS}
    found |= {f"{number} kernels": PAPER_FLAT | {"kernels": number} for number in NUMBERS[1:]}
    found["two layers"] = PAPER_FLAT | {"sequential": 2}
    found["two layers, 4 heads"] = PAPER_HEADS | {"sequential": 2}
    return found


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    wanted = {
        name: settings
        for name, settings in compared().items()
        if scale.name != "desk" or name not in NOT_AT_DESK
    }
    return text_training.tuned(for_ablations(scale), wanted, rows, pairs=PAIRS)


measure = text_training.measure
table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    drawing, axes = style.panels(3)
    groups = at_best(rows)
    for shift, (kind, own) in zip((-SHIFT, SHIFT), KINDS.items(), strict=True):
        known = {n: groups[_name(kind, n)] for n in NUMBERS if _name(kind, n) in groups}
        if not known:
            continue
        means = [intervals.mean(list(text_rows.losses(each).values())) for each in known.values()]
        values = [each.value for each in means]
        axes[0].errorbar(
            [number * 2**shift for number in known],
            values,
            yerr=curves.bars(means),
            label=kind,
            elinewidth=0.8,
            **own,
        )
        times = [statistics.median(row["relative_time"] for row in each) for each in known.values()]
        axes[1].plot(times, values, **own)
        for count, point in zip(known, zip(times, values, strict=True), strict=True):
            words: dict[str, Any] = {
                "textcoords": "offset points",
                "size": style.MIN_POINTS,
                "color": own["color"],
            }
            axes[1].annotate(
                str(count), point, xytext=(4, -9), **words
            )  # above, lines would cross it
    axes[1].margins(y=0.12)
    style.plain_ticks(axes[0], NUMBERS)
    style.finish(axes[0], x="number of heads or kernels", y=curves.LOSS, title="by number")
    style.finish(axes[1], x="time of a step (flat model: 1)", y=curves.LOSS, title="by time")
    pairs = (BASE, "two layers", "4 heads", "two layers, 4 heads")
    several = {name: groups[name] for name in pairs if name in groups}
    neutral = {name: {"color": style.GREY, "marker": "s"} for name in several}
    curves.ends(axes[2], several, title="one and two layers", looks=neutral)
    more = "Points of one number are side by side in (a); numbers in (b) count heads or kernels."
    return curves.compose(drawing, more=[more])


def _name(kind: str, number: int) -> str:
    return BASE if kind == "kernels" and number == 1 else f"{number} {kind}"


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    one_or_two = _known(
        _worse(rows, "two layers", BASE, name="flat, two layers minus one"),
        _worse(rows, "two layers, 4 heads", "4 heads", name="4 heads, two layers minus one"),
    )
    several = {}
    for kind, (helps, rises) in {"heads": ("C5a", "C5b"), "kernels": ("C5c", "C5d")}.items():
        four, most = _name(kind, 4), _name(kind, NUMBERS[-1])
        several[helps] = _known(curves.compare(rows, four, BASE))
        several[rises] = _known(_worse(rows, most, four))
    several["C5e"] = _known(_late(rows))
    return decide({"C4": one_or_two if len(one_or_two) == 2 else []}) | decide(several)


def _worse(rows: list[TextRow], first: str, second: str, name: str = "") -> Comparison | None:
    """Return the comparison of a model that should be worse with its control."""
    return curves.compare(rows, first, second, above=True, name=name)


def _known(*several: Comparison | None) -> list[Comparison]:
    return [each for each in several if each is not None]


def _late(rows: list[TextRow]) -> Comparison | None:
    """Compare the advantage of four heads over the flat model at the end with that early in training."""
    groups = at_best(rows)
    changes: dict[str, dict[int, float]] = {}
    for name in ("4 heads", BASE):
        changes[name] = {
            row["seed"]: row["curve"][-1][1] - early
            for row in groups.get(name, [])
            if row["loss"] is not None and (early := _early(row)) is not None
        }
    if not set(changes[BASE]) & set(changes["4 heads"]):
        return None
    return Comparison(
        name=f"4 heads minus flat at the end, minus the same at {EARLY:.0%} of the steps",
        interval=intervals.difference(changes["4 heads"], changes[BASE]),
        unit="nats",
        control=curves.untrained(BASE, groups[BASE])
        or curves.some_diverged("4 heads", groups["4 heads"]),
    )


def _early(row: TextRow) -> float | None:
    """Return the loss at the first evaluation after the fraction EARLY of the steps."""
    last = row["curve"][-1][0]
    return next((loss for step, loss in row["curve"] if EARLY * last <= step < last), None)
