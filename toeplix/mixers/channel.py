"""Mixing channels: the two-layer perceptron of a block, position by position."""

from collections.abc import Callable

from torch import nn

from toeplix.config import Model

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"silu": nn.SiLU, "gelu": nn.GELU}


class ChannelMixer(nn.Sequential):
    """`W_2 act(W_1 x)`, expanded in between."""

    def __init__(self, config: Model) -> None:
        hidden = config.expansion * config.dim
        super().__init__(
            nn.Linear(config.dim, hidden),
            ACTIVATIONS[config.activation](),
            nn.Dropout(config.dropout),
            nn.Linear(hidden, config.dim),
        )
