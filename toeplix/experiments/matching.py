"""Widths at which models cost the same: compute, or memory in training.

    wide = width(settings, anchor=..., cost=compute)

gives the width at which a model costs as much as `anchor`, to the nearest multiple of 8.
"""

from collections.abc import Callable
from typing import Any

from toeplix.config import Model
from toeplix.counting import forward_flops
from toeplix.experiments.learning import training_bytes
from toeplix.experiments.models import model

STEP = 8  # widths that divide by four heads and suit the machine

Cost = Callable[[Model, int], float]


def compute(config: Model, batch: int) -> float:
    """Operations of a forward pass."""
    return batch * forward_flops(config, config.context)


def memory(config: Model, batch: int) -> float:
    """Bytes in training."""
    return float(training_bytes(config, batch))


def width(settings: dict[str, Any], anchor: Model, cost: Cost, batch: int) -> int:
    """Where the cost of a model crosses that of `anchor`, by bisection: costs grow with the width.

    Some costs are counted on a built model, so the search doubles its way up and never goes far beyond.
    """
    wanted = cost(anchor, batch)

    def at(dim: int) -> float:
        sizes = {"depth": anchor.depth, "context": anchor.context, "vocab": anchor.vocab}
        return cost(model(settings, dim=dim, **sizes), batch)

    low, high = 1, 2
    while at(high * STEP) <= wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle * STEP) <= wanted else (low, middle)
    return min(low * STEP, high * STEP, key=lambda dim: abs(at(dim) - wanted))
