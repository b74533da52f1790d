"""Scaling: loss against parameters and tokens, with the fit L = E + A / N^a + B / D^b.

N is the number of parameters of the blocks (without embedding and head, which are most of the parameters
at these sizes). D is the number of training tokens, less than one epoch. Constants minimise the soft L1
loss of residuals of the logarithm of the loss; intervals come from a bootstrap over runs. "Open" marks a
value at a bound of the search: the runs do not determine it. Learning rates are tuned at every width.
"""

import math
import random
import statistics
from dataclasses import replace
from typing import Any

from toeplix.experiments.engine import style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.curves import LOSS
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
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
RESAMPLES = 200
OUTLIER = 0.02  # residual of the logarithm beyond which its cost grows linearly (soft L1)
# bounds of the search: logarithms of E and of both terms at the mean sizes; both exponents
BOUNDS = {"E": (-5, 3), "A": (-8, 3), "a": (0, 2), "B": (-8, 3), "b": (0, 2)}


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


def sizes_of(row: TextRow) -> tuple[float, float]:
    """Return the number of parameters of the blocks and the number of training tokens."""
    outside = 2 * row["dim"] * row["vocab"]
    return row["parameters"] - outside, row["steps"] * row["batch"] * row["context"]


def fit(rows: list[TextRow]) -> dict[str, float]:
    """Fit L = E + A / N^a + B / D^b to the rows of one model; return E, a and b."""
    import numpy as np
    from scipy.optimize import minimize

    known = [(*sizes_of(row), row["loss"]) for row in rows if row["loss"] is not None]
    sizes = np.array([sizes for *sizes, _ in known])
    loss = np.log([loss for *_, loss in known])
    scaled = np.log(sizes / sizes.mean(0))

    def cost(theta: Any) -> tuple[float, Any]:
        """Return the soft L1 loss of the residuals, and its gradient."""
        floor, first, a, second, b = theta
        terms = np.array(
            [np.full(len(loss), floor), first - a * scaled[:, 0], second - b * scaled[:, 1]]
        )
        total = np.logaddexp.reduce(terms, axis=0)
        residual = (total - loss) / OUTLIER
        root = np.sqrt(1 + residual**2)
        share = np.exp(terms - total) * residual / root / OUTLIER
        slopes = -(share[1:] * scaled.T).sum(1)
        sums = share.sum(1)
        return (root - 1).sum(), np.array([sums[0], sums[1], slopes[0], sums[2], slopes[1]])

    how: dict[str, Any] = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-12, "gtol": 1e-8}
    bounds = list(BOUNDS.values())
    start = [0.5, 0.0, 0.3, 0.0, 0.3]
    best = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options=how)
    floor, _, a, _, b = best.x
    return {"E": float(np.exp(floor)), "a": float(a), "b": float(b)}


def said(name: str, value: float) -> str:
    """Return a constant as text, "open" if the search ended at a bound."""
    searched = math.log(value) if name == "E" else value
    return "open" if min(abs(searched - end) for end in BOUNDS[name]) < 0.01 else f"{value:.2f}"


def bootstrap(rows: list[TextRow]) -> dict[str, tuple[float, float]]:
    """Return the 2.5% and 97.5% percentiles of each constant over resampled runs."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    dice = random.Random(0)
    # threads of BLAS wait for each other at every one of thousands of tiny steps: minutes on busy cores
    with threadpool_limits(1, "blas"):
        fits = [fit(dice.choices(rows, k=len(rows))) for _ in range(RESAMPLES)]
    return {
        name: tuple(np.percentile([each[name] for each in fits], [2.5, 97.5]))
        for name in ("E", "a", "b")
    }


def grid(rows: list[TextRow], name: str) -> list[TextRow]:
    full = of_one_text([row for row in rows if row["part"] == "grid"])
    return [row for row in full if row["model"] == name and row["loss"]]


def table(rows: list[TextRow]) -> Table:
    found = []
    for name in COMPARED:
        cells = {(row["dim"], row["steps"]) for row in grid(rows, name)}
        if len(cells) < len(WIDTHS) * len(LENGTHS):
            continue
        fitted, spread = fit(grid(rows, name)), bootstrap(grid(rows, name))
        words = {
            key: f"{said(key, fitted[key])} ({' to '.join(said(key, end) for end in spread[key])})"
            for key in fitted
        }
        found.append({"model": name, "runs": len(grid(rows, name))} | words)
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
