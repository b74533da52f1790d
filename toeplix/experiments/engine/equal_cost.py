"""Widths at which models cost the same: compute, or memory in training.

    wide = width(settings, anchor=..., cost=compute)

gives the width at which a model costs as much as `anchor`, to the nearest multiple of 8.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from toeplix.architectures import forward_flops
from toeplix.config import Model
from toeplix.experiments.engine.models import model
from toeplix.experiments.engine.text_training import training_bytes

NARROW = (16, 64, 128)
STEP = 8  # widths that divide by four heads and suit the machine

Cost = Callable[[Model, int], float]


def compute(config: Model, batch: int) -> float:
    """Operations of a forward pass."""
    return batch * forward_flops(config, config.context)


def memory(config: Model, batch: int) -> float:
    """Bytes in training."""
    return float(training_bytes(config, batch))


def width(settings: dict[str, Any], anchor: Model, cost: Cost, batch: int) -> int:
    """Where the cost of a model comes nearest to that of `anchor`.

    Costs are quadratic in the width. Some are counted on built models, so three narrow ones are looked
    at, and the parabola through them tells the rest.
    """
    sizes = {"depth": anchor.depth, "context": anchor.context, "vocab": anchor.vocab}
    known = [cost(model(settings, dim=dim, **sizes), batch) for dim in NARROW]
    parabola = np.polyfit(NARROW, known, 2)
    wanted = cost(anchor, batch)
    dims = np.arange(STEP, 8 * anchor.dim + STEP, STEP)
    return int(dims[np.argmin(np.abs(np.polyval(parabola, dims) - wanted))])
