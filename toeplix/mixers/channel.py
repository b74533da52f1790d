"""The channel mixer: the two-layer MLP of a block, applied to each position."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from toeplix.config import Model

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"silu": nn.SiLU, "gelu": nn.GELU}
CHUNK_POSITIONS = 2048  # without gradients, to bound the memory of the hidden layer in prefill


class ChannelMixer(nn.Sequential):
    """`W_2 act(W_1 x)`, with a hidden width of `mlp_ratio * dim`."""

    def __init__(self, config: Model) -> None:
        hidden = config.mlp_ratio * config.dim
        super().__init__(
            nn.Linear(config.dim, hidden),
            ACTIVATIONS[config.activation](),
            nn.Dropout(config.dropout),
            nn.Linear(hidden, config.dim),
        )

    @property
    def output(self) -> nn.Linear:
        """The layer that writes to the residual stream."""
        layer = self[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        if torch.is_grad_enabled() or x.shape[1] <= CHUNK_POSITIONS:
            return super().forward(x)
        return torch.cat(
            [super(ChannelMixer, self).forward(part) for part in x.split(CHUNK_POSITIONS, 1)], 1
        )
