"""Widths at which models have equal cost: FLOPs, or memory in training.

    wide = width(settings, anchor=..., cost=compute)

returns the width at which a model has the same cost as `anchor`, rounded to a multiple of 8.
"""

from collections.abc import Callable

import numpy as np

from toeplix.architectures import forward_flops
from toeplix.config import Model
from toeplix.experiments.engine.models import Settings, model
from toeplix.experiments.engine.text_training import training_bytes

FITTED_WIDTHS = (16, 64, 128)
WIDTH_STEP = 8  # divisible by four heads, and a good size for matmuls

Cost = Callable[[Model, int], float]


def compute(config: Model, batch: int) -> float:
    """Return the FLOPs of `batch` forward passes of one sequence each.

    In training, Hyena computes its filters once for a batch and costs less; the ratios of FLOPs that
    verdicts state are those of training steps.
    """
    return batch * forward_flops(config, config.context)


def memory(config: Model, batch: int) -> float:
    """Return the bytes needed in training."""
    return float(training_bytes(config, batch))


def width(settings: Settings, anchor: Model, cost: Cost, batch: int) -> int:
    """Return the width at which the cost of a model is closest to that of `anchor`.

    Costs are quadratic in the width. Some are counted on built models, so the cost is computed at three
    small widths, and a parabola is fitted through them.
    """
    sizes = {"depth": anchor.depth, "context": anchor.context, "vocab": anchor.vocab}
    known = [cost(model(settings, dim=dim, **sizes), batch) for dim in FITTED_WIDTHS]
    parabola = np.polyfit(FITTED_WIDTHS, known, 2)
    wanted = cost(anchor, batch)
    dims = np.arange(WIDTH_STEP, 8 * anchor.dim + WIDTH_STEP, WIDTH_STEP)
    return int(dims[np.argmin(np.abs(np.polyval(parabola, dims) - wanted))])
