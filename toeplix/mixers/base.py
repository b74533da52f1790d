"""A token mixer: a causal map along time, computed for all positions at once or piece by piece.

forward(x)          y for a whole sequence
extend(x, state)    y for the positions after those that the state has seen; the state moves on

What a mixer costs is a function of the configuration alone, so `parameter_count`, `flops` and
`state_bytes` are class methods and need no built model. docs/adding-a-mixer.md is a worked example.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.filter_bank import FilterBank
from toeplix.ops.sequence_parallel import WHOLE, SequenceLayout


class TokenMixer(nn.Module, ABC):
    """The slot of a block. A mixer knows its width, heads and context; no tokens, losses or devices."""

    FIELDS: ClassVar[tuple[str, ...]] = ()  # settings of `Model` that only this mixer reads
    # how `Model.init` initialises the linear layers of the whole model, see initialisation.py
    INITIALISATION: ClassVar[dict[str, str]] = {"scaled": "scaled", "paper": "pytorch"}
    # the positions of a sequence that `forward` gets: all, or those of one process
    layout: SequenceLayout = WHOLE

    @abstractmethod
    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]: ...

    @abstractmethod
    def start(self, bank: FilterBank) -> Any:
        """Return the state before the first position; long filters join the bank."""

    @abstractmethod
    def extend(self, x: Float[Tensor, "b k d"], state: Any) -> Float[Tensor, "b k d"]:
        """Return the outputs of the next k positions; the state is changed in place.

        The result is a tensor of its own, which shares no memory with the state: the block adds to it.
        """

    @abstractmethod
    def reset(self, init: str) -> None:
        """Initialise what is not a linear layer, by the rule named in the configuration."""

    def divide(self, layout: SequenceLayout) -> None:
        """Let `forward` compute the positions of this process, if `exchanged_numbers` is not None."""
        self.layout = layout

    def residual_outputs(self) -> list[nn.Linear]:
        """Return the linear layers that write to the residual stream."""
        last = getattr(self, "project_out", None)
        return [last] if isinstance(last, nn.Linear) else []

    @classmethod
    def check(cls, config: Model) -> None:
        """Raise a ValueError if the configuration makes no sense for this mixer."""
        check_heads(config.dim, config.heads)

    @classmethod
    @abstractmethod
    def parameter_count(cls, config: Model) -> int:
        """Return the number of parameters of one mixer, frozen ones included."""

    @classmethod
    def buffer_count(cls, config: Model) -> int:
        """Return how many numbers a checkpoint holds of one mixer beside its parameters."""
        return 0

    @classmethod
    @abstractmethod
    def flops(cls, config: Model, time: int) -> float:
        """Return the FLOPs of one mixer for one sequence of `time` positions, forward."""

    @classmethod
    def shared_flops(cls, config: Model, time: int) -> float:
        """Return the FLOPs of one mixer that all sequences of a batch share, forward."""
        return 0.0

    @classmethod
    @abstractmethod
    def state_bytes(cls, config: Model, time: int) -> int:
        """Return the bytes of decoding state of one mixer and one sequence of `time` positions."""

    @classmethod
    def saved_activations(cls, config: Model) -> int | None:
        """Return what autograd keeps of one position, in multiples of dim; None: count a built model."""
        return None

    @classmethod
    def exchanged_numbers(cls, config: Model, time: int, processes: int) -> float | None:
        """Return how many numbers `processes` send that divide a sequence of `time` positions, forward.

        It is the sum over all processes, for one mixer. None: the mixer cannot divide a sequence.
        """
        return None

    @classmethod
    def filter_heads(cls, config: Model) -> int:
        """Return how many long filters one layer has; 0 if the mixer has none."""
        return 0

    @classmethod
    def operator_precision(cls, config: Model, precision: str) -> str:
        """Return the dtype of what long filters multiply, in a run whose autocast is `precision`."""
        return precision


def check_heads(dim: int, heads: int, name: str = "heads") -> None:
    if heads and dim % heads:
        raise ValueError(f"dim={dim} is not a multiple of {name}={heads}")
