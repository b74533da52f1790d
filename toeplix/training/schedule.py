"""The learning rate as a function of the step."""

import math
from collections.abc import Callable

from toeplix.training.run import Run

# learning rate / peak learning rate, as a function of the fraction of steps done after warmup
DECAYS: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "constant": lambda done: 1.0,
}


def rate(run: Run, step: int) -> float:
    """Return the learning rate of step `step`, counted from 0: linear warmup from 0, then decay."""
    if step < run.warmup:
        return run.lr * step / run.warmup
    return run.lr * DECAYS[run.schedule]((step - run.warmup) / max(1, run.steps - run.warmup))
