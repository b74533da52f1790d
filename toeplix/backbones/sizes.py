"""What is known about Hugging Face's architectures without importing transformers: settings and costs."""

from typing import ClassVar

from toeplix.architecture import COMMON_FIELDS, Architecture
from toeplix.config import Model
from toeplix.mixers.base import check_heads
from toeplix.model import LanguageModel

# of Mamba 2: inner channels per channel of the model, heads (and groups), taps of the short convolution
MAMBA_EXPANSION, MAMBA_HEADS, MAMBA_CONVOLUTION = 2, 8, 4


class Backbone(Architecture):
    """An architecture whose module `backbones.huggingface` builds."""

    def build(self, config: Model) -> LanguageModel:
        try:  # transformers is imported only when it is used
            from toeplix.backbones.huggingface import BACKBONES
        except ModuleNotFoundError as problem:
            raise ValueError(
                f"arch={config.arch!r} is Hugging Face's own: pip install 'toeplix[hf]' ({problem})"
            ) from problem
        return BACKBONES[config.arch](config)


class Llama(Backbone):
    """Attention over all earlier positions, SwiGLU of `mlp_ratio` dim."""

    fields = frozenset({*COMMON_FIELDS, "heads", "mlp_ratio", "dropout", "init"})
    stored_prefixes: ClassVar = {"backbone.": "model.", "head.": "lm_head."}

    def check(self, config: Model) -> None:
        if config.init == "paper":
            raise ValueError(f"init='paper' has no effect on arch={config.arch!r}: leave it out")
        check_heads(config.dim, config.attention_heads)

    def parameters(self, config: Model) -> int:
        d = config.dim
        block = 4 * d * d + 3 * config.mlp_ratio * d * d + 2 * d  # attention, SwiGLU, two RMSNorms
        head = 0 if config.tie_embeddings else d * config.vocab
        return d * config.vocab + config.depth * block + d + head

    def forward_flops(self, config: Model, time: int) -> float:
        d = config.dim
        matrices = 2.0 * time * (4 + 3 * config.mlp_ratio) * d * d
        scores = 4.0 * d * self._attended(config, time)
        return config.depth * (matrices + scores) + 2.0 * time * d * config.vocab

    def state_bytes(self, config: Model, time: int) -> int:
        """Keys and values."""
        return 4 * 2 * config.depth * self._span(config, time) * config.dim

    def _attended(self, config: Model, time: int) -> float:
        """Pairs of positions in the lower triangle."""
        return time * (time + 1) / 2

    def _span(self, config: Model, time: int) -> int:
        return time


class SlidingWindow(Llama):
    """Attention over the last `window` positions, itself included."""

    fields = frozenset({*Llama.fields, "window"})

    def _attended(self, config: Model, time: int) -> float:
        outside = max(0, time - config.window)
        return time * (time + 1) / 2 - outside * (outside + 1) / 2

    def _span(self, config: Model, time: int) -> int:
        return min(config.window, time)


class Mamba2(Backbone):
    """A selective state space model with a scalar decay per head."""

    fields = frozenset({*COMMON_FIELDS, "state_size"})
    stored_prefixes: ClassVar = {"head.": "lm_head."}
    extends_state = False  # Hugging Face's scan starts from nothing: one position at a time

    def check(self, config: Model) -> None:
        if MAMBA_EXPANSION * config.dim % MAMBA_HEADS:
            raise ValueError(
                f"mamba2 has {MAMBA_HEADS} heads over 2 dim: dim={config.dim} is no multiple of 4"
            )

    def parameters(self, config: Model) -> int:
        d, v, inner, wide = config.dim, config.vocab, _inner(config), _convolved(config)
        projection = d * (inner + wide + MAMBA_HEADS)  # gate, convolved channels, a step per head
        short = wide * (MAMBA_CONVOLUTION + 1)  # taps and a bias
        heads = 3 * MAMBA_HEADS  # per head: decay, skip and bias of the step
        block = projection + short + heads + inner + inner * d + d  # inner norm, output, norm
        head = (0 if config.tie_embeddings else d * v) + v  # with a bias
        return d * v + config.depth * block + d + head

    def forward_flops(self, config: Model, time: int) -> float:
        d, inner, wide = config.dim, _inner(config), _convolved(config)
        matrices = 2.0 * time * (d * (inner + wide + MAMBA_HEADS) + inner * d)
        short = 2.0 * time * wide * MAMBA_CONVOLUTION
        # a multiply-add each to decay, write and read every state
        recurrence = 3 * 2.0 * time * inner * config.state_size
        return config.depth * (matrices + short + recurrence) + 2.0 * time * d * config.vocab

    def state_bytes(self, config: Model, time: int) -> int:
        """The state of the recurrence, and the last inputs of the short convolution."""
        short = _convolved(config) * MAMBA_CONVOLUTION
        return 4 * config.depth * (_inner(config) * config.state_size + short)


def _inner(config: Model) -> int:
    """Return the number of channels between the input and output projections."""
    return MAMBA_EXPANSION * config.dim


def _convolved(config: Model) -> int:
    """Return the channels of the short convolution: inner ones, and B and C of every group."""
    return _inner(config) + 2 * MAMBA_HEADS * config.state_size
