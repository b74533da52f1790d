"""The fit of a law of scaling to runs: L = E + A / N^a + B / D^b.

N is the number of parameters of the blocks (without embedding and head, which are most of the parameters
of small models) and D the number of training tokens. Constants are fitted by least squares on the
logarithm of the loss; intervals come from a bootstrap over runs. "Open" marks a value at a bound of the
search: the runs do not determine it.
"""

import math
import random
from collections.abc import Sequence
from typing import Any

from toeplix.experiments.engine.text_rows import TextRow

RESAMPLES = 200
OUTLIER = 0.02  # residual of the logarithm beyond which its cost grows linearly (soft L1)
# bounds of the search: logarithms of E and of both terms at the mean sizes; both exponents
BOUNDS = {"E": (-5, 3), "A": (-8, 3), "a": (0, 2), "B": (-8, 3), "b": (0, 2)}


def constants(rows: Sequence[TextRow]) -> dict[str, str]:
    """Return E, a and b of the rows of one model with their intervals, as text."""
    fitted, spread = fit(rows), bootstrap(rows)
    return {
        key: f"{said(key, fitted[key])} ({' to '.join(said(key, end) for end in spread[key])})"
        for key in fitted
    }


def sizes_of(row: TextRow) -> tuple[float, float]:
    """Return the number of parameters of the blocks and the number of training tokens."""
    outside = 2 * row["dim"] * row["vocab"]
    return row["parameters"] - outside, row["steps"] * row["batch"] * row["context"]


def fit(rows: Sequence[TextRow]) -> dict[str, float]:
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


def bootstrap(rows: Sequence[TextRow]) -> dict[str, tuple[float, float]]:
    """Return the 2.5% and 97.5% percentiles of each constant over resampled runs."""
    import numpy as np

    dice = random.Random(0)
    fits = [fit(dice.choices(rows, k=len(rows))) for _ in range(RESAMPLES)]
    return {
        name: tuple(np.percentile([each[name] for each in fits], [2.5, 97.5]))
        for name in ("E", "a", "b")
    }
