"""The training objective, with precision, gradient checkpointing and compilation."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from toeplix.model import LanguageModel
from toeplix.training.loss import vocabulary_loss
from toeplix.training.run import Run

PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Objective(nn.Module):
    """Maps a batch to the sum of its losses in nats. It is a module so that DDP and FSDP can wrap it."""

    def __init__(self, model: LanguageModel, precision: str = "float32") -> None:
        super().__init__()
        self.model, self.precision = model, precision

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        labels: Int[Tensor, "b t"],
        mask: Bool[Tensor, "b t"] | None = None,
        offsets: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        low = PRECISIONS.get(self.precision)
        with torch.autocast(tokens.device.type, dtype=low, enabled=low is not None):
            features = self.model.encode(tokens, mask=mask, offsets=offsets)
            return vocabulary_loss(features, self.model.head, labels)[0]


def prepare(model: LanguageModel, run: Run) -> None:
    """Checkpointing and compilation, block by block; names of weights stay as they are."""
    if run.gradient_checkpointing:
        model.enable_gradient_checkpointing()
    if run.compile:
        for part in model.trunk():
            part.forward = torch.compile(part.forward, dynamic=True)
