"""The language model: one shell in which the mixer is a slot.

    encode(tokens)         features of all positions
    forward(tokens)        logits of all positions
    step(tokens, state)    logits of the positions after those the state has seen

A model knows no loss, data or device, and every row of `tokens` starts a sequence. Padding and
packing are undone before it runs (`mask`, `offsets`; see documents.py), so they cannot change a result.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.mixers.channel import ChannelMixer
from toeplix.mixers.filter import FilterBank
from toeplix.mixers.ragged import RowState
from toeplix.ops import documents


class LanguageModel(nn.Module, ABC):
    """What every architecture is seen through."""

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
        Long prompts are fastest in large chunks before the first single step.
        """
        _check_tokens(tokens)
        features, state = self.advance(tokens, state)
        return self.logits(features), state

    def start(self, horizon: int | None = None) -> Any:
        """A state before the first position. Knowing how many single steps will follow saves memory."""
        return None

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
        """Features of the next positions."""

    @abstractmethod
    def logits(self, features: Float[Tensor, "b t d"]) -> Float[Tensor, "b t v"]: ...


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

    def __init__(self, mixer: type[TokenMixer], config: Model) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.dim)
        self.blocks: Collection[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, mixer(config)) for _ in range(config.depth)
        )
        self.norm = NORMS[config.norm](config.dim) if config.final_norm else nn.Identity()
        self.head = nn.Linear(config.dim, config.vocab, bias=False)
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight
        reset(self)

    def embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        return self.embedding(tokens)

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

    def start(self, horizon: int | None = None) -> "MixerState":
        bank = FilterBank(horizon)
        return MixerState(bank, [block.token_mixer.start(bank) for block in self.blocks])

    def advance(
        self, tokens: Int[Tensor, "b k"], state: "MixerState | None"
    ) -> tuple[Float[Tensor, "b k d"], "MixerState"]:
        state = self.start() if state is None else state
        if tokens.shape[1] > 1 and state.bank.decoder is None:
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


class MixerState(NamedTuple):
    """Of a whole model: what its long filters share, and what each block keeps."""

    bank: FilterBank
    parts: list[Any]

    def share(self, rows: int, life: int) -> None:
        """After a past: from now on single positions, of rows that come, stay for `life`, and go."""
        self.bank.share(life)
        for state in self._states():
            state.share(rows)

    def admit(self, other: "MixerState", rows: int) -> None:
        """The rows, so many, of a state that has read their past, after those that are here."""
        self.bank.admit(other.bank)
        for mine, theirs in zip(self._states(), other._states(), strict=True):
            theirs.share(rows)
            mine.admit(theirs)

    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Go on with these rows, in this order."""
        self.bank.select(rows)
        for state in self._states():
            state.select(rows)

    def _states(self) -> list[RowState]:
        lists = [part if isinstance(part, list) else [part] for part in self.parts]
        return [state for states in lists for state in states]


@torch.no_grad()
def reset(model: MixerLM) -> None:
    """Draw the initial weights: by the paper's rule, or by one that starts at a loss of ln(vocab).

    `paper`: embeddings N(0, 1); for toeplitz Kaiming noise on every matrix and zero biases, for the
    others PyTorch's own. `scaled`: matrices N(0, 1/fan_in), those that write to the residual stream
    smaller by sqrt(2 depth), zero biases, embedding and output N(0, 0.02^2); Hyena learns better from
    the paper's, of which it changes the output only.
    """
    config = model.config
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if config.arch == "hyena":
        if config.init == "scaled":
            model.head.weight.normal_(std=0.02)
    elif config.init == "scaled":
        model.embedding.weight.normal_(std=0.02)
        for linear in linears:
            linear.weight.normal_(std=1 / math.sqrt(linear.in_features))
        for block in model.blocks:
            writers = [block.channel_mixer[-1], getattr(block.token_mixer, "project_out", None)]
            for writer in writers:
                if isinstance(writer, nn.Linear):
                    writer.weight /= math.sqrt(2 * config.depth)
        model.head.weight.normal_(std=0.02)
    elif config.arch == "toeplitz":
        for linear in linears:
            nn.init.kaiming_normal_(linear.weight)
    if config.arch == "toeplitz" or (config.init == "scaled" and config.arch != "hyena"):
        for linear in linears:
            if linear.bias is not None:
                linear.bias.zero_()
    for block in model.blocks:
        block.token_mixer.reset(config.init)
