"""The language model: one shell in which the mixer is a slot.

    encode(tokens)         features of all positions
    forward(tokens)        logits of all positions
    step(tokens, state)    logits of the positions after those the state has seen

A model knows no loss, data or device, and every row of `tokens` starts a sequence. Padding and
packing are undone before it runs (`mask`, `offsets`; see documents.py), so they cannot change a result.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.mixers.channel import ChannelMixer
from toeplix.mixers.filter_bank import FilterBank
from toeplix.mixers.initialisation import RULES, Layers
from toeplix.mixers.ragged import RowState
from toeplix.ops import documents
from toeplix.ops.sequence_parallel import SequenceLayout


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
    """The interface of every language model."""

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
        self, tokens: Int[Tensor, "b k"], state: Any = None, *, last: bool = False
    ) -> tuple[Float[Tensor, "b p v"], Any]:
        """Logits of the next k positions, and the state after them. The first state is None.

        With `last` the logits are those of the last of the k positions only, `(b, 1, v)`: what a prompt
        needs. Those of all positions of a long prompt take more memory than everything else.

        For inference: no gradients, and the state is changed in place (`copy.deepcopy` it to branch).
        Read a prompt in large chunks, then call `state.begin_decoding()` before the single steps.
        """
        _check_tokens(tokens)
        features, state = self.advance(tokens, state, last=last)
        return self.logits(features), state

    @abstractmethod
    def start(self) -> DecodingState:
        """Return a state before the first position, in prefill mode."""

    def features(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        """Features of rows that each start at their first position."""
        return self.layers(self.embed(tokens))

    @abstractmethod
    def embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        """Return what the first layer reads: the embeddings of the tokens."""

    @abstractmethod
    def layers(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """All layers, and the final norm if there is one."""

    def features_of(self, batches: list[Tensor]) -> list[Tensor]:
        """Return the features of several batches of rows."""
        return [self.features(tokens) for tokens in batches]

    @abstractmethod
    def advance(
        self, tokens: Int[Tensor, "b k"], state: Any, *, last: bool = False
    ) -> tuple[Float[Tensor, "b p d"], Any]:
        """Return the features of the next k positions, and the state after them; None: the first.

        With `last` the features are those of the last position only, `(b, 1, d)`.
        """

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

    def divide(self, layout: SequenceLayout) -> None:
        """Let `features` read the positions of a sequence that one process holds."""
        raise ValueError(f"arch={self.config.arch!r} cannot divide a sequence among processes")

    def sharded(self) -> list["Block"]:
        """Return the blocks that several processes may divide among them one by one."""
        return []

    @abstractmethod
    def enable_gradient_checkpointing(self) -> None:
        """Recompute activations in the backward pass, part by part."""

    def pretrained_config(self) -> dict[str, Any]:
        """Return what config.json tells transformers about the class that reads the weights."""
        return {"model_type": "toeplix", "architectures": ["ToeplixForCausalLM"]}


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

    def forward(
        self, x: Float[Tensor, "b t d"], state: Any = None, last: bool = False
    ) -> Float[Tensor, "b p d"]:
        """Return the outputs; with `last` those of the last position only, `(b, 1, d)`."""
        if not self.mixer_first:
            x = _added(x, self.channel_mixer(self.channel_norm(x)))
        normed = self.token_norm(x)
        mixer = self.token_mixer
        y = mixer(normed) if state is None else mixer.extend(normed, state)
        if last and x.shape[1] > 1:
            x, y = x[:, -1:], y[:, -1:].clone()  # a view would keep all positions in memory
        x = _added(x, y)
        if self.mixer_first:
            x = _added(x, self.channel_mixer(self.channel_norm(x)))
        return x

    def each(self, batches: list[Tensor]) -> list[Tensor]:
        """Return the outputs of several batches; sharded weights (distributed.py) are gathered once."""
        return [self(x) for x in batches]


def _added(x: Float[Tensor, "b t d"], y: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
    """Return x + y; without gradients in the memory of y, a result that nobody else holds."""
    if torch.is_grad_enabled() or x.dtype != y.dtype:
        return x + y
    return y.add_(x)


class MixerLM(LanguageModel):
    """Embedding and its norm or none, blocks, final norm or none, output."""

    ragged = True

    def __init__(self, mixers: Sequence[type[TokenMixer]], config: Model) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.dim)
        norm = NORMS[config.norm] if config.norms_embeddings else nn.Identity
        self.embedding_norm = norm(config.dim)
        self.blocks: Collection[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, mixer(config)) for mixer in mixers
        )
        self.norm = NORMS[config.norm](config.dim) if config.final_norm else nn.Identity()
        self.head = nn.Linear(config.dim, config.vocab, bias=False)
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight
        self.reset()

    def reset(self) -> None:
        """Initialise all weights, by the rule that the mixers name for `config.init`.

        Where the mixers of a hybrid name different rules, it is the first block's.
        """
        first = next(iter(self.blocks)).token_mixer
        rule = RULES[first.INITIALISATION[self.config.init]]
        outputs = [
            layer
            for block in self.blocks
            for layer in (block.channel_mixer.output, *block.token_mixer.residual_outputs())
        ]
        rule(Layers(self, self.embedding, self.head, outputs, self.config.depth))
        for block in self.blocks:
            block.token_mixer.reset(self.config.init)
        if isinstance(self.embedding_norm, nn.LayerNorm | nn.RMSNorm):
            nn.init.constant_(self.embedding_norm.weight, self.config.embedding_norm)

    def embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        return self.embedding_norm(self.embedding(tokens))

    def input_embedding(self) -> nn.Embedding:
        return self.embedding

    def remove_embedding(self) -> None:
        self.embedding = nn.Identity()  # type: ignore[assignment]
        self.embedding_norm = nn.Identity()

    def trunk(self) -> list[nn.Module]:
        return list(self.blocks)

    def divide(self, layout: SequenceLayout) -> None:
        for block in self.blocks:
            block.token_mixer.divide(layout)

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
        parts = [self.embed(tokens) for tokens in batches]
        for block in self.blocks:
            parts = block.each(parts)
        return [self.norm(x) for x in parts]

    def start(self) -> "MixerState":
        bank = FilterBank()
        return MixerState(bank, [block.token_mixer.start(bank) for block in self.blocks])

    def advance(
        self, tokens: Int[Tensor, "b k"], state: "MixerState | None", *, last: bool = False
    ) -> tuple[Float[Tensor, "b p d"], "MixerState"]:
        state = self.start() if state is None else state
        if not state.bank.decoding:
            return self._extend(tokens, state.parts, last), state
        features = []
        for token in tokens.split(1, dim=1):
            state.bank.open()
            features.append(self._extend(token, state.parts, last))
            state.bank.close()
        return features[-1] if last or len(features) == 1 else torch.cat(features, 1), state

    def _extend(
        self, tokens: Int[Tensor, "b k"], parts: list[Any], last: bool
    ) -> Float[Tensor, "b p d"]:
        """Advance all blocks. Only the last may leave positions out, as the others are read by states."""
        x = self.embed(tokens)
        final = len(parts) - 1
        for number, (block, part) in enumerate(zip(self.blocks, parts, strict=True)):
            x = block(x, part, last and number == final)
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
