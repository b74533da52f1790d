"""Llama, Mistral with a sliding window, and Mamba 2: Hugging Face's own classes behind our methods.

Sized as in the paper: SwiGLU of 4 dim for the Transformers, RoPE base 10000, untied; Mamba 2 with
8 heads and groups, expansion 2 and a biased output.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaModel,
    Mamba2Config,
    Mamba2Model,
    MistralConfig,
    MistralModel,
)

from toeplix.backbones.mamba2 import CpuMixer
from toeplix.backbones.sizes import MAMBA_CONVOLUTION, MAMBA_HEADS
from toeplix.config import Model
from toeplix.mixers.initialisation import Layers, scaled
from toeplix.model import DecodingState, LanguageModel

MIN_ROTARY_POSITIONS = 2048  # positions that rotary embeddings are prepared for, at least
CHUNK = 64  # of the scan where Hugging Face's classes read the configuration: see `mamba2.CpuMixer`


class CacheState(DecodingState):
    """A cache of Hugging Face, which the first positions create."""

    def __init__(self) -> None:
        self.cache: Any = None

    def begin_decoding(self, max_new_tokens: int | None = None) -> None:
        """Do nothing: these caches read prompts and decode alike."""


class HuggingFaceModel(LanguageModel):
    """A Hugging Face backbone and our output layer."""

    # by the `model_type` of the backbone: that of a checkpoint, and the class that reads it
    CLASSES: ClassVar = {
        "llama": ("llama", "LlamaForCausalLM"),
        "mistral": ("mistral", "MistralForCausalLM"),
        "mamba2": ("toeplix_mamba2", "ToeplixMamba2ForCausalLM"),  # its output has a bias
    }

    def __init__(self, config: Model, backbone: Any, bias: bool) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.head = nn.Linear(config.dim, config.vocab, bias=bias)
        nn.init.normal_(self.head.weight, std=0.02)
        if config.tie_embeddings:
            self.head.weight = self.backbone.get_input_embeddings().weight

    def embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        return self.backbone.get_input_embeddings()(tokens)

    def layers(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self.backbone(inputs_embeds=x, use_cache=False).last_hidden_state

    def input_embedding(self) -> nn.Embedding:
        return self.backbone.get_input_embeddings()

    def remove_embedding(self) -> None:
        self.backbone.set_input_embeddings(nn.Identity())

    def trunk(self) -> list[nn.Module]:
        return [self.backbone]

    def start(self) -> CacheState:
        return CacheState()

    def enable_gradient_checkpointing(self) -> None:
        self.backbone.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False}
        )

    def logits(self, features: Float[Tensor, "b t d"]) -> Float[Tensor, "b t v"]:
        return self.head(features)

    def pretrained_config(self) -> dict[str, Any]:
        """Return the configuration of Hugging Face's own class, which reads the weights."""
        model_type, name = self.CLASSES[self.backbone.config.model_type]
        found = self.backbone.config.to_diff_dict()
        for key in ("transformers_version", "dtype", "_name_or_path"):
            found.pop(key, None)
        tied = {"tie_word_embeddings": self.config.tie_embeddings}
        return found | tied | {"model_type": model_type, "architectures": [name]}


class Attention(HuggingFaceModel):
    """A Transformer, its state the keys and values of the past."""

    def advance(
        self, tokens: Int[Tensor, "b k"], state: CacheState | None, *, last: bool = False
    ) -> tuple[Float[Tensor, "b p d"], CacheState]:
        state = state or self.start()
        if state.cache is None:
            state.cache = DynamicCache(config=self.backbone.config)
        out = self.backbone(tokens, past_key_values=state.cache, use_cache=True)
        state.cache = out.past_key_values
        return _chosen(out.last_hidden_state, last), state


class StateSpace(HuggingFaceModel):
    """Mamba 2, its state that of the recurrence and of the short convolution."""

    def advance(
        self, tokens: Int[Tensor, "b k"], state: CacheState | None, *, last: bool = False
    ) -> tuple[Float[Tensor, "b p d"], CacheState]:
        state = state or self.start()
        if state.cache is None:
            out = self.backbone(tokens, use_cache=True)
            state.cache = out.cache_params
            return _chosen(out.last_hidden_state, last), state
        # with a state, the scan in chunks would start from nothing: one position at a time
        parts = []
        for token in tokens.split(1, dim=1):
            out = self.backbone(token, cache_params=state.cache, use_cache=True)
            parts.append(out.last_hidden_state)
        return parts[-1] if last else torch.cat(parts, 1), state


def _chosen(features: Float[Tensor, "b k d"], last: bool) -> Float[Tensor, "b p d"]:
    return features[:, -1:] if last else features


def llama(config: Model) -> LanguageModel:
    return _started(Attention(config, LlamaModel(LlamaConfig(**_transformer(config))), bias=False))


def window(config: Model) -> LanguageModel:
    """Full attention up to `config.window` positions back, itself included."""
    sizes = MistralConfig(**_transformer(config), sliding_window=config.window)
    return _started(Attention(config, MistralModel(sizes), bias=False))


def _started(model: Attention) -> Attention:
    """Initialise by `config.init`: Hugging Face's N(0, 0.02^2), or matrices N(0, 1/fan_in) as ours.

    With matrices by fan_in, blocks write numbers of order 1 to the residual stream, and embeddings are
    N(0, 1), unless they are the output's weights too.
    """
    if model.config.init == "fan_in":
        outputs = [
            module
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and name.endswith(("o_proj", "down_proj"))
        ]
        embedding = model.input_embedding()
        scaled(Layers(model, embedding, model.head, outputs, model.config.depth))
        if not model.config.tie_embeddings:
            nn.init.normal_(embedding.weight)
    return model


def mamba2(config: Model) -> LanguageModel:
    sizes = Mamba2Config(
        hidden_size=config.dim,
        num_hidden_layers=config.depth,
        vocab_size=config.vocab,
        state_size=config.state_size,
        num_heads=MAMBA_HEADS,
        head_dim=2 * config.dim // MAMBA_HEADS,
        n_groups=MAMBA_HEADS,
        expand=2,
        conv_kernel=MAMBA_CONVOLUTION,
        chunk_size=min(config.context, CHUNK),
        initializer_range=0.02,
        tie_word_embeddings=False,
    )
    backbone = Mamba2Model(sizes)
    for layer in backbone.layers:
        layer.mixer.__class__ = CpuMixer  # the same weights, drawn by the same random numbers
    return StateSpace(config, backbone, bias=True)


def _transformer(config: Model) -> dict[str, Any]:
    return {
        "hidden_size": config.dim,
        "intermediate_size": config.mlp_ratio * config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.attention_heads,
        "num_key_value_heads": config.attention_heads,
        "vocab_size": config.vocab,
        "max_position_embeddings": max(config.context, MIN_ROTARY_POSITIONS),
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "attention_dropout": config.dropout,
        "tie_word_embeddings": False,
    }


BACKBONES: dict[str, Callable[[Model], LanguageModel]] = {
    "llama": llama,
    "window": window,
    "mamba2": mamba2,
}
