"""Divergence: what ends a run, before anything that it ruined is written.

    before an update     loss and gradient norm of the step, which the host reads in any case
    after an update      weights, and the loss of the step's batches with them; only where a checkpoint,
                         a sample or an evaluation follows, so that other steps cost nothing more
    at an evaluation     validation loss

All values are totals over the processes, so that all of them end together.
"""

import math

from toeplix.training import batches
from toeplix.training.run import Run

DIVERGED_LOSS_RATIO = 10  # times the loss of the first step


class Diverged(ValueError):
    """A loss, the gradient norm or the weights are not finite, or the loss is far above the first."""


def loss_trouble(loss: float, first_loss: float | None) -> str:
    """Return what is wrong with the loss of a step, given that of the first; empty if nothing is."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if loss > DIVERGED_LOSS_RATIO * (first_loss or loss):
        return f"the loss is {loss:.4g}, and began at {first_loss:.4g}"
    return ""


def gradient_trouble(norm: float, scaled: bool) -> str:
    """Return what is wrong with a gradient norm; a loss scaler skips the update by itself."""
    return "" if math.isfinite(norm) or scaled else f"the gradient's norm is {norm}"


def update_trouble(infinite: bool, loss: float, first_loss: float | None) -> str:
    """Return what is wrong with the weights after an update, and with a loss computed with them."""
    if infinite:
        return "the update left weights that are not finite"
    trouble = loss_trouble(loss, first_loss)
    return f"after the update {trouble}" if trouble else ""


def diverged(trouble: str, step: int, parts: list[batches.Batch], kept: str, run: Run) -> Diverged:
    """Return the error: what is wrong, at which step, on which batch, and what is left.

    Args:
        trouble: what is wrong.
        step: number of the step, counted from 1.
        parts: its batches.
        kept: a sentence about the newest checkpoint.
        run: whose learning rate is too high.
    """
    return Diverged(
        f"{trouble} at step {step} (batch {batches.digest(parts)}): {kept}; a lower lr than {run.lr:g} "
        f"or a longer warmup than {run.warmup} may help"
    )
