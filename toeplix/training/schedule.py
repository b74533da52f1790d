"""The learning rate as a function of the step, and which weights have a learning rate of their own."""

import math
from collections.abc import Callable
from typing import Any

import torch

from toeplix.mixers.hyena import ImplicitFilter
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


def weight_groups(model: torch.nn.Module, run: Run) -> list[dict[str, Any]]:
    """Return the trainable weights with the ratio of their learning rate to `run.lr`."""
    filters = {
        id(weight)
        for module in model.modules()
        if run.filter_lr and isinstance(module, ImplicitFilter)
        for weight in module.parameters()
    }
    groups: dict[float, list[torch.nn.Parameter]] = {}
    for weight in model.parameters():
        if weight.requires_grad:
            ratio = run.filter_lr / run.lr if id(weight) in filters else 1.0
            groups.setdefault(ratio, []).append(weight)
    return [{"params": weights, "lr_ratio": ratio} for ratio, weights in groups.items()]
