"""The learning rate as a function of the step."""

import math
from collections.abc import Callable

from toeplix.training.run import Run

# the share of the highest rate, from the share of the steps after warm-up
FALLS: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "constant": lambda done: 1.0,
}


def rate(run: Run, step: int) -> float:
    """Of the update after `step` others: rises from 0, then falls."""
    if step < run.warmup:
        return run.lr * step / run.warmup
    return run.lr * FALLS[run.schedule]((step - run.warmup) / max(1, run.steps - run.warmup))
