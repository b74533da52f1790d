"""The training objective, with precision, gradient checkpointing and compilation.

Labels, masks and offsets decide the shapes of what is computed, so the host reads them, and they stay
there (`OnHost`): a training step then never waits for the device to learn a shape.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from toeplix.model import LanguageModel
from toeplix.ops.paths import full_precision
from toeplix.training.loss import vocabulary_loss
from toeplix.training.run import Run

PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class OnHost:
    """A tensor that stays on the CPU: FSDP moves all tensors among its arguments to the device."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Objective(nn.Module):
    """Maps a batch to the sum of its losses in nats. It is a module so that DDP and FSDP can wrap it."""

    def __init__(self, model: LanguageModel, precision: str = "float32") -> None:
        super().__init__()
        self.model, self.precision = model, precision

    def take_sent_bytes(self) -> int:
        """Return the bytes that mixers sent to other processes since the last call."""
        return 0

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        labels: Int[Tensor, "b t"] | OnHost,
        mask: Bool[Tensor, "b t"] | OnHost | None = None,
        offsets: Int[Tensor, " n"] | OnHost | None = None,
    ) -> Float[Tensor, ""]:
        on_host = (_tensor(each) for each in (labels, mask, offsets))
        with self._autocast(tokens.device):
            features, scored = self.compute(tokens, *on_host)
            return vocabulary_loss(features, self.model.head, scored)[0]

    def _autocast(self, device: torch.device) -> AbstractContextManager[object]:
        low = PRECISIONS.get(self.precision)
        return full_precision(device) if low is None else torch.autocast(device.type, dtype=low)

    def compute(
        self, tokens: Tensor, labels: Tensor, mask: Tensor | None, offsets: Tensor | None
    ) -> tuple[Float[Tensor, "*n d"], Int[Tensor, "*n"]]:
        """Return the features of all positions, and their labels."""
        return self.model.encode(tokens, mask=mask, offsets=offsets), labels


def _tensor(given: Any) -> Any:
    return given.tensor if isinstance(given, OnHost) else given


def prepare(model: LanguageModel, run: Run) -> None:
    """Checkpointing and compilation, block by block; names of weights stay as they are."""
    if run.gradient_checkpointing:
        model.enable_gradient_checkpointing()
    if run.compile:
        for part in model.trunk():
            part.forward = torch.compile(part.forward, dynamic=True)
