"""Scaling: loss against parameters and tokens, with the fit L = E + A / N^a + B / D^b.

N counts the weights of the blocks (embedding and head are left out: at these sizes they would be most of
it), D the tokens learned from, less than one pass over the corpus. Constants are found by least
squares on the logarithm of the loss; intervals by fitting resampled rows (bootstrap over runs).
"""

import random
from typing import Any

from toeplix.experiments import learning, style
from toeplix.experiments.claims import Verdict
from toeplix.experiments.learning import Case, best_rate
from toeplix.experiments.models import MODELS
from toeplix.experiments.rows import Row
from toeplix.experiments.scale import Scale

CLAIMS: tuple[str, ...] = ()
ALONE = False
COST = "about 15 minutes on two cores with --jobs 2"
COMPARED = ("toeplitz", "llama")
WIDTHS = (0.5, 1, 1.5)  # of the scale's
LENGTHS = (0.25, 0.5, 1)  # of its steps
RESAMPLES = 200


def cases(scale: Scale, rows: list[Row]) -> list[Case]:
    compared = {name: MODELS[name] for name in COMPARED}
    found = [case for case in learning.tuned(scale, compared, rows) if case.seed == scale.seeds[0]]
    for name, settings in compared.items():
        rate = best_rate(rows, name, settings, scale)
        if rate is None:
            continue
        for width in WIDTHS:
            for length in LENGTHS:
                dim, steps = int(scale.dim * width) // 8 * 8, max(2, int(scale.steps * length))
                sizes = {"dim": dim, "steps": steps, "warmup": min(scale.warmup, steps // 2)}
                for seed in scale.seeds[:2]:
                    found.append(
                        Case.of(scale, name, settings, part="grid", lr=rate, seed=seed, **sizes)
                    )
    return found


measure = learning.measure


def sizes_of(row: Row) -> tuple[float, float]:
    """Weights of the blocks, tokens."""
    outside = 2 * row["dim"] * row["vocab"]
    return row["parameters"] - outside, row["steps"] * row["batch"] * row["context"]


def fit(rows: list[Row]) -> dict[str, float]:
    """E, A, a, B, b of one model."""
    import numpy as np
    from scipy.optimize import least_squares

    sizes = np.array([sizes_of(row) for row in rows])
    loss = np.log([row["loss"] for row in rows])
    scaled = np.log(sizes / sizes.mean(0))

    def gaps(theta: Any) -> Any:
        floor, first, a, second, b = theta
        parts = [np.full(len(loss), floor), first - a * scaled[:, 0], second - b * scaled[:, 1]]
        return np.logaddexp.reduce(parts, axis=0) - loss

    bounds = ([-5, -8, 0, -8, 0], [3, 3, 2, 3, 2])
    best = least_squares(
        gaps, [0.5, 0.0, 0.3, 0.0, 0.3], bounds=bounds, loss="soft_l1", f_scale=0.02
    )
    floor, _, a, _, b = best.x
    return {"E": float(np.exp(floor)), "a": float(a), "b": float(b)}


def bootstrap(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """2.5% and 97.5% of each constant over resampled runs."""
    import numpy as np

    dice = random.Random(0)
    drawn = [fit(dice.choices(rows, k=len(rows))) for _ in range(RESAMPLES)]
    return {
        name: tuple(np.percentile([each[name] for each in drawn], [2.5, 97.5]))
        for name in ("E", "a", "b")
    }


def grid(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row["model"] == name and row["part"] == "grid" and row["loss"]]


def table(rows: list[Row]) -> list[dict[str, Any]]:
    found = []
    for name in COMPARED:
        cells = {(row["dim"], row["steps"]) for row in grid(rows, name)}
        if len(cells) < len(WIDTHS) * len(LENGTHS):
            continue
        fitted, spread = fit(grid(rows, name)), bootstrap(grid(rows, name))
        words = {
            key: f"{fitted[key]:.2f} ({spread[key][0]:.2f} to {spread[key][1]:.2f})"
            for key in fitted
        }
        found.append({"model": name, "runs": len(grid(rows, name))} | words)
    return found


def figure(rows: list[Row], published: list[Row]) -> Any:
    drawing = style.canvas(2)
    axes = drawing.subplots(1, 2)
    for name in COMPARED:
        for index, place in enumerate(axes):
            points = sorted((sizes_of(row)[index], row["loss"]) for row in grid(rows, name))
            if points:
                place.plot(*zip(*points, strict=True), **style.look(name, label=name, linestyle=""))
    for place, label in zip(axes, ("weights of the blocks", "tokens"), strict=True):
        place.set_xscale("log")
        style.finish(place, x=label, y="held-out loss (nats per token)")
    return drawing


def holds(rows: list[Row]) -> dict[str, Verdict]:
    return {}
