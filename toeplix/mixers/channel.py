"""The channel mixer: the two-layer MLP of a block, applied to each position."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from toeplix.config import Model

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"silu": nn.SiLU, "gelu": nn.GELU}
# what the activations are without gradients: in the memory of a hidden layer that nobody else holds
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": partial(nn.functional.silu, inplace=True),
    "gelu": torch.ops.aten.gelu_.default,
}
# Without gradients, to bound the memory of the hidden layer in prefill: 8 MiB at the default width, which
# the C library hands out again at the next chunk and does not return to the operating system.
CHUNK_POSITIONS = 1024


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
        self.activate_ = IN_PLACE[config.activation]

    @property
    def output(self) -> nn.Linear:
        """The layer that writes to the residual stream."""
        layer = self[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        if torch.is_grad_enabled():
            return super().forward(x)
        if x.shape[1] <= CHUNK_POSITIONS:
            return self._without_gradients(x)
        y = torch.empty_like(x)
        for first in range(0, x.shape[1], CHUNK_POSITIONS):
            chunk = slice(first, first + CHUNK_POSITIONS)
            y[:, chunk] = self._without_gradients(x[:, chunk])
        return y

    def _without_gradients(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        first, _, dropout, last = self
        return last(dropout(self.activate_(first(x))))
