"""Scaling: loss against parameters and tokens on a grid, with the fit L = E + A / N^a + B / D^b.

`engine/scaling_fit.py` says what is fitted. Tokens are less than one epoch, and learning rates are tuned
at every width. `frontier`, whose runs also differ in width and length, has the same fit in its table.
"""

import math
import statistics
from dataclasses import replace
from typing import Any

from toeplix.experiments.engine import style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.curves import LOSS
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.scaling_fit import constants, sizes_of
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, of_one_text
from toeplix.experiments.engine.text_training import best_rate, settled

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "15 minutes on two cores with --jobs 2; at scale desk 90 minutes"
COMPARED = ("toeplitz", "hybrid", "hyena", "llama")
WIDTHS = (0.5, 1, 1.5)  # multiples of the scale's width
LENGTHS = (0.25, 0.5, 1)  # multiples of the scale's steps
# two thirds of the scale's steps
SIZES: dict[str, dict[str, Any]] = {"desk": {"steps": 2000, "warmup": 400}}


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    scale = replace(scale, **SIZES.get(scale.name, {}))
    compared = {name: MODELS[name] for name in COMPARED}
    found = [
        case for case in text_training.tuned(scale, compared, rows) if case.seed == scale.seeds[0]
    ]
    for name, settings in compared.items():
        near = best_rate(rows, name, settings, scale)
        for width in WIDTHS:
            dim = max(8, int(scale.dim * width) // 8 * 8)
            part = f"width {dim}"
            tuning_runs = text_training.tuned(
                scale, {name: settings}, rows, near={name: near}, dim=dim, part=part
            )
            found += [case for case in tuning_runs if case.seed == scale.seeds[0]]
            rate = None
            if near is not None:
                rate = settled(rows, name, settings, scale, near, part=part, dim=dim).rate
            for length in LENGTHS if rate is not None else ():
                steps = max(2, int(scale.steps * length))
                warmup = max(1, round(scale.warmup * steps / scale.steps))
                sizes = {"dim": dim, "steps": steps, "warmup": warmup}
                for seed in scale.seeds[:2]:
                    found.append(
                        Case.of(scale, name, settings, part="grid", lr=rate, seed=seed, **sizes)
                    )
    return found


measure = text_training.measure


def grid(rows: list[TextRow], name: str) -> list[TextRow]:
    full = of_one_text([row for row in rows if row["part"] == "grid"])
    return [row for row in full if row["model"] == name and row["loss"]]


def table(rows: list[TextRow]) -> Table:
    found = []
    for name in COMPARED:
        cells = {(row["dim"], row["steps"]) for row in grid(rows, name)}
        if len(cells) < len(WIDTHS) * len(LENGTHS):
            continue
        known = grid(rows, name)
        found.append({"model": name, "runs": len(known), **constants(known)})
    return found


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    """Plot the loss against each size, one line for each value of the other, with the fit of L."""
    drawing, axes = style.panels(2, width=4.4)
    looks = style.looks(COMPARED)
    for name in COMPARED:
        known = grid(rows, name)
        if not known:
            continue
        for index, place in enumerate(axes):
            lines: dict[float, dict[float, list[float]]] = {}
            for row in known:
                size, other = sizes_of(row)[index], sizes_of(row)[1 - index]
                lines.setdefault(other, {}).setdefault(size, []).append(row["loss"] or math.nan)
            for number, other in enumerate(sorted(lines)):
                points = sorted(lines[other].items())
                means = [statistics.fmean(values) for _, values in points]
                strength = (number + 1) / len(lines)
                label = name if number + 1 == len(lines) else None
                own: dict[str, Any] = looks[name] | {
                    "alpha": 0.35 + 0.65 * strength,
                    "markersize": 3 + number,
                }
                place.plot([size for size, _ in points], means, label=label, **own)
    titles = ("weights of the blocks", "training tokens")
    for place, along, held in zip(axes, titles, ("tokens", "weights"), strict=True):
        style.log_ticks(place)
        style.finish(place, x=along, y=LOSS, title=f"each line has a number of {held}")
    caption = (
        "Mean validation loss over seeds, each model at the best learning rate of its width; "
        "stronger lines and larger markers have more tokens (a) or weights (b). The table has the "
        "fit with intervals of a bootstrap over runs."
    )
    return style.compose(drawing, caption)


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    return {}
