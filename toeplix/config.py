"""What function is learned: the record `Model`, small, frozen, varied only by `replace`."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from toeplix.records import check_fields

OWN = ("toeplitz", "masked", "hyena", "linear")  # built here, one shell with the mixer as a slot
HEADED = ("toeplitz", "masked", "linear", "llama", "window")  # where heads divide the channels
ATTENTION = ("linear", "llama", "window")  # where there is no model without heads
BORROWED = ("llama", "window", "mamba2")  # Hugging Face's own
MAX_LAYERS = 2**14  # modules take time to build, however small they are

CHOICES: dict[str, tuple[str, ...]] = {
    "arch": (*OWN, *BORROWED),
    "frozen": ("no", "random", "ones"),
    "first": ("mixer", "channel"),
    "norm": ("layer", "rms"),
    "init": ("scaled", "paper"),
    "filters": ("decay", "kaiming"),
    "activation": ("silu", "gelu"),
    "feature": ("elu", "exp"),
}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A language model from tokens to logits. `Model.paper(...)` rebuilds the paper's.

    Fields that an architecture does not use are ignored by it.
    """

    arch: str = "toeplitz"
    vocab: int = 8000
    context: int = 512  # taps of a filter: how far back a position reads
    dim: int = 512
    depth: int = 16
    heads: int = 0  # 0: toeplitz and masked are flat (one filter, no projections), attention has 4
    expansion: int = 4  # width of the channel layer over dim
    first: str = "mixer"  # which comes first in a block
    norm: str = "layer"
    final_norm: bool = True
    activation: str = "silu"
    tied: bool = False  # one matrix for embedding and output
    dropout: float = 0.0
    init: str = "scaled"  # "scaled" starts at a loss of ln(vocab), the paper's toeplitz at 30 to 50
    # toeplitz
    kernels: int = 1  # filters reading as many neighbouring channels
    sequential: int = 1  # Toeplitz layers in one mixer, a nonlinearity between them
    frozen: str = "no"  # filters that are not trained, drawn at random or all ones
    filters: str = "decay"  # how filters start: falling with the lag, or Kaiming noise
    gate: bool = True  # multiply the mixer's output by a gate of its input
    # hyena
    order: int = 64  # width of the network that makes the filters
    features: int = 9  # of the position that it sees; the paper: 3, Hyena's authors: 33
    frequency: float = 1.0  # of its sines; the authors: 14
    # linear
    feature: str = "elu"  # map of queries and keys; "exp" is the paper's, which diverges
    # window, mamba2
    window: int = 128  # positions that attention sees
    state: int = 256  # numbers per channel that the state space keeps

    def __post_init__(self) -> None:
        check_fields(self, CHOICES, {"heads": 0, "features": 3})
        heads = self.attention_heads if self.arch in ATTENTION else self.heads
        if self.arch in HEADED and heads and self.dim % heads:
            raise ValueError(f"dim={self.dim} is not a multiple of heads={heads}")
        if self.depth * self.sequential > MAX_LAYERS:
            layers = f"depth={self.depth}, sequential={self.sequential}"
            raise ValueError(f"{layers} must be at most {MAX_LAYERS} layers together")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1)")
        if self.features % 2 == 0:
            raise ValueError(f"features={self.features} must be odd: the time, and pairs of waves")

    @classmethod
    def paper(
        cls,
        *,
        arch: str = "toeplitz",
        heads: int | None = None,
        dim: int = 512,
        depth: int = 16,
        context: int = 512,
        vocab: int = 8000,
        **other: Any,
    ) -> "Model":
        """The paper's configuration of an architecture, initialisation included.

        Heads: 4 unless given, and none for the Masked Mixer. `heads=0` is the flat Toeplitz model.
        """
        sizes = {"arch": arch, "dim": dim, "depth": depth, "context": context, "vocab": vocab}
        chosen = {} if heads is None else {"heads": heads}
        published = {"state": max(1, dim // 2)} | PAPER.get(arch, {})
        return cls(**(published | sizes | chosen | other))

    @property
    def attention_heads(self) -> int:
        """Of an architecture that cannot be flat."""
        return self.heads or 4

    @property
    def digest(self) -> str:
        """Sixteen letters that name this record."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# What distinguishes the paper's models from our defaults, by architecture.
PAPER: dict[str, dict[str, Any]] = {
    "toeplitz": {
        "heads": 4,
        "gate": False,
        "first": "channel",
        "final_norm": False,
        "init": "paper",
        "filters": "kaiming",
    },
    "masked": {"heads": 0, "final_norm": False, "init": "paper", "activation": "gelu"},
    "hyena": {
        "final_norm": False,
        "init": "paper",
        "activation": "gelu",
        "features": 3,
        "frequency": 1.0,
    },
    "linear": {"feature": "exp", "activation": "gelu"},
}
