"""A token mixer: a causal map along time, in two equal forms, all positions at once or piece by piece.

forward(x)          y for a whole sequence
extend(x, state)    y for the positions after those that the state has seen, and the state moves on
"""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from toeplix.mixers.filter import FilterBank


class TokenMixer(nn.Module, ABC):
    """The slot of a block. Knows its width, heads and context; no tokens, losses or devices."""

    @abstractmethod
    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]: ...

    @abstractmethod
    def start(self, bank: FilterBank) -> Any:
        """The state before the first position; long filters join the bank."""

    @abstractmethod
    def extend(self, x: Float[Tensor, "b k d"], state: Any) -> Float[Tensor, "b k d"]:
        """Outputs of the next k positions; the state is changed in place."""

    @abstractmethod
    def reset(self, init: str) -> None:
        """Draw the initial weights, by the rule named in the configuration."""
