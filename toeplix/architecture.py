"""An architecture: what is known about its models before one is built.

Sizes, FLOPs and bytes follow from the configuration alone, so that `toeplix plan` can count a model that
fits no machine.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.model import LanguageModel

# settings of `Model` that every architecture reads
COMMON_FIELDS = ("arch", "vocab", "context", "dim", "depth", "tie_embeddings")


class Architecture(ABC):
    """What is known about an architecture before a model of it is built."""

    fields: frozenset[str]  # settings of `Model` that it reads
    extends_state = True  # reads many positions after a state as fast as from the start
    # how the names of weights begin, and what stands for that in a file, for Hugging Face's classes
    stored_prefixes: ClassVar[dict[str, str]] = {}

    def fields_read(self, config: Model) -> frozenset[str]:
        """Return the settings of `Model` that a model of this configuration reads."""
        return self.fields

    @abstractmethod
    def build(self, config: Model) -> LanguageModel:
        """Return the module, with fresh weights."""

    @abstractmethod
    def check(self, config: Model) -> None:
        """Raise a ValueError if the configuration makes no sense for this architecture."""

    @abstractmethod
    def parameters(self, config: Model) -> int: ...

    def gathered_parameters(self, config: Model) -> int:
        """Return how many parameters a device holds at once under fsdp, which divides them by block."""
        return self.parameters(config)

    def stored_numbers(self, config: Model) -> int:
        """Return how many numbers a checkpoint holds: parameters and buffers."""
        return self.parameters(config)

    @abstractmethod
    def forward_flops(self, config: Model, time: int) -> float:
        """Return the FLOPs of one sequence of `time` positions, without those of `shared_flops`."""

    def shared_flops(self, config: Model, time: int) -> float:
        """Return the FLOPs of a forward pass that do not grow with the number of its sequences."""
        return 0.0

    @abstractmethod
    def state_bytes(self, config: Model, time: int) -> int: ...

    def saved_activations(self, config: Model) -> int | None:
        """Return the numbers that autograd keeps of one position in `encode`, if a formula is known."""
        return None

    def exchanged_numbers(self, config: Model, time: int, processes: int) -> float | None:
        """Return how many numbers `processes` send that divide a sequence of `time` positions, forward.

        It is the sum over all processes and layers. None: the architecture cannot divide a sequence.
        """
        return None

    def filter_mixers(self, config: Model) -> dict[str, type[TokenMixer]]:
        """Return the mixers with long filters by name; none for an architecture without them."""
        return {}
