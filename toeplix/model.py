"""The language model: one shell in which the mixer is a slot.

    encode(tokens)         features of all positions
    forward(tokens)        logits of all positions
    step(tokens, state)    logits of the positions after those the state has seen

A model knows no loss, data or device, and every row of `tokens` starts a sequence. Padding and
packing are undone before it runs (`mask`, `offsets`; see documents.py), so they cannot change a result.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.mixers.channel import ChannelMixer
from toeplix.mixers.filter import FilterBank
from toeplix.mixers.initialisation import RULES, Layers
from toeplix.mixers.ragged import RowState
from toeplix.ops import documents

# settings of `Model` that every architecture reads, and those that every model of our blocks reads too
COMMON_FIELDS = ("arch", "vocab", "context", "dim", "depth", "tie_embeddings")
BLOCK_FIELDS = ("mlp_ratio", "block_order", "norm", "final_norm", "activation", "dropout", "init")


class DecodingState(ABC):
    """What a model keeps of the positions it has seen, for those that follow.

    A state starts in prefill mode, in which any number of positions may be read at once. After
    `begin_decoding` positions are decoded one by one, as cheaply as the architecture can.
    """

    @abstractmethod
    def begin_decoding(self, max_new_tokens: int | None = None) -> None:
        """Switch from prefill to decoding. A bound on the number of decode steps saves memory."""


class RaggedState(DecodingState):
    """A state whose rows may have different positions, join and leave: that of a ragged batch."""

    @abstractmethod
    def begin_ragged(self, rows: int, max_new_tokens: int) -> None:
        """Switch a prefilled state of `rows` rows to decoding as a ragged batch.

        No row takes more than `max_new_tokens` decode steps.
        """

    @abstractmethod
    def append(self, other: Any, rows: int) -> None:
        """Append the rows, `rows` of them, of another prefilled state."""

    @abstractmethod
    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep these rows, in this order."""


class LanguageModel(nn.Module, ABC):
    """What every architecture is seen through."""

    ragged: ClassVar[bool] = False  # whether its states are `RaggedState`
    config: Model
    head: nn.Linear  # from features to logits

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        *,
        mask: Bool[Tensor, "b t"] | Int[Tensor, "b t"] | None = None,
        offsets: Int[Tensor, " n"] | list[int] | None = None,
    ) -> Float[Tensor, "b t v"]:
        """Logits. `mask` marks real positions of padded rows, `offsets` documents packed in one row."""
        return self.logits(self.encode(tokens, mask=mask, offsets=offsets))

    def encode(
        self,
        tokens: Int[Tensor, "b t"],
        *,
        mask: Bool[Tensor, "b t"] | Int[Tensor, "b t"] | None = None,
        offsets: Int[Tensor, " n"] | list[int] | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Features after the last layer, and after the final norm if there is one."""
        _check_tokens(tokens)
        if mask is None and offsets is None:
            return self.features(tokens)
        return documents.apart(self.features_of, tokens, mask, offsets)

    @torch.no_grad()
    def step(
        self, tokens: Int[Tensor, "b k"], state: Any = None
    ) -> tuple[Float[Tensor, "b k v"], Any]:
        """Logits of the next k positions, and the state after them. The first state is None.

        For inference: no gradients, and the state is changed in place (`copy.deepcopy` it to branch).
        Read a prompt in large chunks, then call `state.begin_decoding()` before the single steps.
        """
        _check_tokens(tokens)
        features, state = self.advance(tokens, state)
        return self.logits(features), state

    @abstractmethod
    def start(self) -> DecodingState:
        """Return a state before the first position, in prefill mode."""

    def features(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        """Features of rows that each start at their first position."""
        return self.layers(self.embed(tokens))

    @abstractmethod
    def embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        """What the first layer reads."""

    @abstractmethod
    def layers(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """All layers, and the final norm if there is one."""

    def features_of(self, batches: list[Tensor]) -> list[Tensor]:
        """The same of several batches of rows."""
        return [self.features(tokens) for tokens in batches]

    @abstractmethod
    def advance(self, tokens: Int[Tensor, "b k"], state: Any) -> tuple[Float[Tensor, "b k d"], Any]:
        """Return the features of the next positions, and the state after them; None: the first."""

    @abstractmethod
    def logits(self, features: Float[Tensor, "b t d"]) -> Float[Tensor, "b t v"]: ...

    @abstractmethod
    def input_embedding(self) -> nn.Embedding: ...

    @abstractmethod
    def remove_embedding(self) -> None:
        """Let `embed` pass vectors through: for a decoder that reads no tokens."""

    @abstractmethod
    def trunk(self) -> list[nn.Module]:
        """Return the parts between embedding and output that are compiled one by one."""

    def sharded(self) -> list["Block"]:
        """Return the blocks that several processes may divide among them one by one."""
        return []

    @abstractmethod
    def enable_gradient_checkpointing(self) -> None:
        """Recompute activations in the backward pass, part by part."""


def _check_tokens(tokens: Tensor) -> None:
    if tokens.ndim != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must be (b, t) with t at least 1, got {tuple(tokens.shape)}")


NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


class Block(nn.Module):
    """Two residual sublayers, each behind a norm: mixing tokens and mixing channels."""

    def __init__(self, config: Model, mixer: TokenMixer) -> None:
        super().__init__()
        self.token_norm = NORMS[config.norm](config.dim)
        self.token_mixer = mixer
        self.channel_norm = NORMS[config.norm](config.dim)
        self.channel_mixer = ChannelMixer(config)
        self.mixer_first = config.block_order == "mixer_first"

    def forward(self, x: Float[Tensor, "b t d"], state: Any = None) -> Float[Tensor, "b t d"]:
        if not self.mixer_first:
            x = x + self.channel_mixer(self.channel_norm(x))
        normed = self.token_norm(x)
        mixer = self.token_mixer
        x = x + (mixer(normed) if state is None else mixer.extend(normed, state))
        if self.mixer_first:
            x = x + self.channel_mixer(self.channel_norm(x))
        return x

    def each(self, batches: list[Tensor]) -> list[Tensor]:
        """The same of several batches: weights that have to be gathered (distributed.py) are so once."""
        return [self(x) for x in batches]


class MixerLM(LanguageModel):
    """Embedding, blocks, final norm or none, output."""

    ragged = True

    def __init__(self, mixer: type[TokenMixer], config: Model) -> None:
        super().__init__()
        self.config, self.mixer = config, mixer
        self.embedding = nn.Embedding(config.vocab, config.dim)
        self.blocks: Collection[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, mixer(config)) for _ in range(config.depth)
        )
        self.norm = NORMS[config.norm](config.dim) if config.final_norm else nn.Identity()
        self.head = nn.Linear(config.dim, config.vocab, bias=False)
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight
        self.reset()

    def reset(self) -> None:
        """Initialise all weights, by the rule that the mixer names for `config.init`."""
        rule = RULES[self.mixer.INITIALISATION[self.config.init]]
        outputs = [
            layer
            for block in self.blocks
            for layer in (block.channel_mixer.output, *block.token_mixer.residual_outputs())
        ]
        rule(Layers(self, self.embedding, self.head, outputs, self.config.depth))
        for block in self.blocks:
            block.token_mixer.reset(self.config.init)

    def embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        return self.embedding(tokens)

    def input_embedding(self) -> nn.Embedding:
        return self.embedding

    def remove_embedding(self) -> None:
        self.embedding = nn.Identity()  # type: ignore[assignment]

    def trunk(self) -> list[nn.Module]:
        return list(self.blocks)

    def sharded(self) -> list[Block]:
        return list(self.blocks)

    def enable_gradient_checkpointing(self) -> None:
        for block in self.blocks:  # in place: a wrapping module would rename the weights
            recomputed = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = recomputed  # type: ignore[method-assign]

    def layers(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def features_of(self, batches: list[Tensor]) -> list[Tensor]:
        """Block by block, all batches through each."""
        parts = [self.embedding(tokens) for tokens in batches]
        for block in self.blocks:
            parts = block.each(parts)
        return [self.norm(x) for x in parts]

    def start(self) -> "MixerState":
        bank = FilterBank()
        return MixerState(bank, [block.token_mixer.start(bank) for block in self.blocks])

    def advance(
        self, tokens: Int[Tensor, "b k"], state: "MixerState | None"
    ) -> tuple[Float[Tensor, "b k d"], "MixerState"]:
        state = self.start() if state is None else state
        if not state.bank.decoding:
            return self._extend(tokens, state.parts), state
        features = []
        for token in tokens.split(1, dim=1):
            state.bank.open()
            features.append(self._extend(token, state.parts))
            state.bank.close()
        return torch.cat(features, 1), state

    def _extend(self, tokens: Int[Tensor, "b k"], parts: list[Any]) -> Float[Tensor, "b k d"]:
        x = self.embedding(tokens)
        for block, part in zip(self.blocks, parts, strict=True):
            x = block(x, part)
        return self.norm(x)

    def logits(self, features: Float[Tensor, "b t d"]) -> Float[Tensor, "b t v"]:
        return self.head(features)


class MixerState(RaggedState):
    """The state of a whole model: the bank that its long filters share, and a part for each block."""

    def __init__(self, bank: FilterBank, parts: list[Any]) -> None:
        self.bank, self.parts = bank, parts

    def begin_decoding(self, max_new_tokens: int | None = None) -> None:
        self.bank.begin_decoding(max_new_tokens)

    def begin_ragged(self, rows: int, max_new_tokens: int) -> None:
        self.bank.begin_ragged(max_new_tokens)
        for state in self._states():
            state.begin_ragged(rows)

    def append(self, other: "MixerState", rows: int) -> None:
        self.bank.append(other.bank)
        for mine, theirs in zip(self._states(), other._states(), strict=True):
            theirs.begin_ragged(rows)
            mine.append(theirs)

    def select(self, rows: Int[Tensor, " r"]) -> None:
        self.bank.select(rows)
        for state in self._states():
            state.select(rows)

    def _states(self) -> list[RowState]:
        lists = [part if isinstance(part, list) else [part] for part in self.parts]
        return [state for states in lists for state in states]


class Architecture(ABC):
    """What is known about an architecture before a model of it is built."""

    fields: frozenset[str]  # settings of `Model` that it reads
    sharded_by_block = False  # under fsdp a device gathers one block after the other
    extends_state = True  # reads many positions after a state as fast as from the start

    @abstractmethod
    def build(self, config: Model) -> LanguageModel:
        """Return the module, with fresh weights."""

    @abstractmethod
    def check(self, config: Model) -> None:
        """Raise a ValueError if the configuration makes no sense for this architecture."""

    @abstractmethod
    def parameters(self, config: Model) -> int: ...

    def stored_numbers(self, config: Model) -> int:
        """Return how many numbers a checkpoint holds: parameters and buffers."""
        return self.parameters(config)

    @abstractmethod
    def forward_flops(self, config: Model, time: int) -> float: ...

    @abstractmethod
    def state_bytes(self, config: Model, time: int) -> int: ...

    def saved_activations(self, config: Model) -> int | None:
        """Return the numbers that autograd keeps of one position in `encode`, if a formula is known."""
        return None

    def filter_heads(self, config: Model) -> int:
        """Return how many long filters one layer has; 0 if the architecture has none."""
        return 0


class MixerArchitecture(Architecture):
    """A `MixerLM` with this mixer in its slot."""

    sharded_by_block = True

    def __init__(self, mixer: type[TokenMixer]) -> None:
        self.mixer = mixer
        self.fields = frozenset({*COMMON_FIELDS, *BLOCK_FIELDS, *mixer.FIELDS})

    def build(self, config: Model) -> "MixerLM":
        return MixerLM(self.mixer, config)

    def check(self, config: Model) -> None:
        self.mixer.check(config)

    def parameters(self, config: Model) -> int:
        d, norm = config.dim, {"layer": 2, "rms": 1}[config.norm] * config.dim
        mlp = 2 * config.mlp_ratio * d * d + (config.mlp_ratio + 1) * d
        block = self.mixer.parameter_count(config) + mlp + 2 * norm
        ends = d * config.vocab * (1 if config.tie_embeddings else 2)
        return config.depth * block + (norm if config.final_norm else 0) + ends

    def stored_numbers(self, config: Model) -> int:
        return self.parameters(config) + config.depth * self.mixer.buffer_count(config)

    def forward_flops(self, config: Model, time: int) -> float:
        mlp = 4.0 * time * config.mlp_ratio * config.dim**2
        block = self.mixer.flops(config, time) + mlp
        return config.depth * block + 2.0 * time * config.dim * config.vocab

    def state_bytes(self, config: Model, time: int) -> int:
        return config.depth * self.mixer.state_bytes(config, time)

    def saved_activations(self, config: Model) -> int | None:
        """A block keeps the inputs of both norms and of both sublayers (4 dim), and the MLP's hidden
        layer before and after its activation; RMSNorm keeps its result too.
        """
        mixer = self.mixer.saved_activations(config)
        if mixer is None:
            return None
        norm = {"layer": 2, "rms": 1 + config.dim}[config.norm]  # beside its input
        block = (4 + 2 * config.mlp_ratio + mixer) * config.dim + 2 * norm
        return config.depth * block + (config.dim + norm if config.final_norm else 0)

    def filter_heads(self, config: Model) -> int:
        return self.mixer.filter_heads(config)
