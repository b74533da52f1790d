"""What function is learned: the record `Model`, small, frozen, varied only by `replace`."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toeplix.records import check_fields

IGNORED = -100  # the label of a position that is not scored, as in PyTorch's cross_entropy
HYBRID = "hybrid"  # the architecture whose blocks have different mixers
LOOKUP_BLOCKS = ("toeplitz", "lookup", "toeplitz", "toeplitz")  # of the default model
MAX_LAYERS = 2**14  # modules take time to build, however small they are

CHOICES: dict[str, tuple[str, ...]] = {
    "frozen": ("no", "random", "ones"),
    "block_order": ("mixer_first", "mlp_first"),
    "norm": ("layer", "rms"),
    "init": ("scaled", "paper", "fan_in"),
    "filter": ("free", "recurrent"),
    "filter_init": ("decay", "kaiming"),
    "activation": ("silu", "gelu"),
    "feature_map": ("elu", "exp"),
}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A language model from tokens to logits. `Model.paper(...)` rebuilds the paper's.

    A field that the architecture does not use must keep its default (`toeplix.architectures`).
    """

    arch: str = HYBRID  # or the mixer of all blocks, or a model of Hugging Face
    blocks: Sequence[str] = LOOKUP_BLOCKS  # mixers of a hybrid, repeated over the depth
    vocab: int = 8000
    context: int = 512  # taps of a free filter; half the slowest time constant of a recurrent one
    dim: int = 512
    depth: int = 16
    heads: int = 0  # 0: toeplitz and masked are flat (one filter, no projections), attention has 4
    mlp_ratio: int = 4  # hidden width of the MLP, in multiples of dim
    block_order: str = "mixer_first"  # or "mlp_first": which sublayer comes first in a block
    norm: str = "layer"
    final_norm: bool = True
    activation: str = "silu"
    tie_embeddings: bool = False  # one matrix for embedding and output
    dropout: float = 0.0
    # "scaled" starts at a loss of ln(vocab), the paper's toeplitz at 30 to 50; llama and window are
    # N(0, 0.02^2) if "scaled", and N(0, 1/fan_in) with embeddings N(0, 1) if "fan_in", which no other
    # architecture has
    init: str = "scaled"
    # toeplitz and lookup
    # initial weight of a norm after the embedding; 0: none. Models with tied embeddings have none, as the
    # logit of the current token would start large
    embedding_norm: float = 10.0
    filter: str = "recurrent"  # some taps and decays; or "free": a weight for every lag
    decays: int = 8  # of a recurrent filter
    # toeplitz
    free_taps: int = 16  # first taps of a recurrent filter, which are independent of its decays
    groups: int = 1  # filters of a flat mixer, each for an equal share of the channels
    kernels: int = 1  # filters reading as many neighbouring channels
    sequential: int = 1  # Toeplitz layers in one mixer, a nonlinearity between them
    frozen: str = "no"  # filters that are not trained, random or all ones
    filter_init: str = "decay"  # initial filters: decaying with the lag, or Kaiming noise
    gate: bool = True  # multiply the mixer's output by a gate of its input
    gate_bias: float = 1.0  # initial bias of the gate, and so its initial mean
    # lookup
    keys: int = 8  # channels of queries and keys in each head
    short_conv: int = 3  # taps of the convolution before queries, keys and values
    # hyena
    filter_hidden: int = 64  # hidden width of the network that computes the filters
    filter_features: int = 9  # position features it reads; the paper: 3, Hyena's authors: 33
    filter_frequency: float = 1.0  # of its sine activations; the authors: 14
    # linear
    feature_map: str = "elu"  # of queries and keys; "exp" is the paper's, which diverges
    # attention, window
    window: int = 128  # positions that attention sees
    # mamba2
    state_size: int = 256  # state of the SSM per channel

    def __post_init__(self) -> None:
        # late: architectures know their own settings, and they are built from this record
        from toeplix.architectures import ARCHITECTURES, MIXERS

        self._name_blocks(tuple(MIXERS))
        check_fields(self, {"arch": tuple(ARCHITECTURES)} | CHOICES, {"heads": 0})
        if self.depth * self.sequential > MAX_LAYERS:
            layers = f"depth={self.depth}, sequential={self.sequential}"
            raise ValueError(f"{layers} must be at most {MAX_LAYERS} layers together")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1)")
        if self.embedding_norm < 0:
            raise ValueError(f"embedding_norm={self.embedding_norm} must be at least 0")
        architecture = ARCHITECTURES[self.arch]
        read = architecture.fields_read(self) | {"blocks"}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in read and value != field.default:
                raise ValueError(
                    f"{field.name}={value!r} has no effect on arch={self.arch!r}: leave it out"
                )
        architecture.check(self)

    def _name_blocks(self, mixers: tuple[str, ...]) -> None:
        """Let `blocks` and `arch` agree: one mixer is an architecture, several are a hybrid."""
        if isinstance(self.blocks, str) or not isinstance(self.blocks, list | tuple):
            raise TypeError(f"blocks={self.blocks!r:.60} must be a tuple of the names of mixers")
        blocks = tuple(self.blocks)
        if self.arch != HYBRID and blocks == LOOKUP_BLOCKS:  # the default of hybrids
            blocks = ()
        if not all(isinstance(name, str) for name in blocks):
            raise TypeError(f"blocks={blocks!r:.60} must be a tuple of the names of mixers")
        if blocks and self.arch not in (HYBRID, *blocks[: len(blocks) == 1]):
            raise ValueError(f"blocks={blocks} name the mixers: leave arch={self.arch!r:.60} out")
        if not set(blocks) <= set(mixers):
            known = ", ".join(mixers)
            raise ValueError(f"blocks={blocks!r:.60} must be names of mixers, each one of {known}")
        if len(set(blocks)) == 1:
            object.__setattr__(self, "arch", blocks[0])
            blocks = ()
        elif blocks:
            object.__setattr__(self, "arch", HYBRID)
        object.__setattr__(self, "blocks", blocks)

    @property
    def mixers(self) -> tuple[str, ...]:
        """The name of the mixer of every block, from the first to the last."""
        cycle = self.blocks or (self.arch,)
        return tuple(cycle[number % len(cycle)] for number in range(self.depth))

    @property
    def norms_embeddings(self) -> bool:
        """Whether a norm follows the embedding: with toeplitz or lookup blocks and an untied output."""
        cycle = self.blocks or (self.arch,)
        reads = "toeplitz" in cycle or "lookup" in cycle
        return reads and self.embedding_norm > 0 and not self.tie_embeddings

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
        none = {"embedding_norm": 0.0} if arch == "toeplitz" else {}
        return cls(**(none | PAPER.get(arch, {}) | _ratios(arch, dim) | sizes | chosen | other))

    @property
    def attention_heads(self) -> int:
        """The heads of an architecture that cannot be flat: 4 unless given."""
        return self.heads or 4

    @property
    def digest(self) -> str:
        """Sixteen letters that name this record."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _ratios(arch: str, dim: int) -> dict[str, int]:
    """Return settings of the paper that follow from the width."""
    return {"state_size": max(1, dim // 2)} if arch == "mamba2" else {}


# What distinguishes the paper's models from our defaults, by architecture.
PAPER: dict[str, dict[str, Any]] = {
    "toeplitz": {
        "heads": 4,
        "filter": "free",
        "gate": False,
        "block_order": "mlp_first",
        "final_norm": False,
        "init": "paper",
        "filter_init": "kaiming",
    },
    "masked": {"heads": 0, "final_norm": False, "init": "paper", "activation": "gelu"},
    "hyena": {
        "final_norm": False,
        "init": "paper",
        "activation": "gelu",
        "filter_features": 3,
        "filter_frequency": 1.0,
    },
    "linear": {"feature_map": "exp", "activation": "gelu"},
}
