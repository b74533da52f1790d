"""The models of modeling_toeplix.py with toeplix's own Toeplitz product and decoding cache.

Checkpoints carry the plain classes: `ToeplixConfig` names them in config.json and copies their file
(`AUTO_MAP`). These subclasses have the same names and weights, and the Auto classes of transformers
prefer them wherever `toeplix.hub` is imported.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
)

from toeplix.hub import modeling_toeplix
from toeplix.hub.adapters import register_adapters
from toeplix.hub.cache import NearLinearCache
from toeplix.hub.modeling_toeplix import ToeplixConfig
from toeplix.hub.modeling_toeplix_mamba2 import (
    ToeplixMamba2Config,
    ToeplixMamba2ForCausalLM,
    ToeplixMamba2Model,
)
from toeplix.mixers.quantized import SCHEMES
from toeplix.ops import toeplitz_windowed
from toeplix.pretrained_files import quantized_notice

FORWARD_ONLY = ("greedy_search", "sample", "beam_search", "beam_sample")  # no token is taken back


class WithToeplix:
    """The Toeplitz product of `toeplix.ops`, which chooses the fastest way, and defaults for PEFT."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        register_adapters()
        super().__init__(*args, **kwargs)

    def product(
        self, x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h n"]
    ) -> Float[Tensor, "b t h c"]:
        return toeplitz_windowed(x, kernel)


class ToeplixModel(WithToeplix, modeling_toeplix.ToeplixModel):
    """The backbone, from tokens to features."""


class ToeplixForSequenceClassification(
    WithToeplix, modeling_toeplix.ToeplixForSequenceClassification
):
    """The classifier of texts."""


class ToeplixForCausalLM(WithToeplix, modeling_toeplix.ToeplixForCausalLM):
    """The language model."""

    def _prepare_cache_for_generation(
        self,
        generation_config: Any,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        *sizes: int,
    ) -> Any:
        """Choose a `NearLinearCache`, unless another is asked for or a method takes tokens back."""
        given = model_kwargs.get("past_key_values") is not None
        named = generation_config.cache_implementation is not None
        unused = generation_config.use_cache is False
        takes_back = generation_config.is_assistant or generation_mode not in FORWARD_ONLY
        if given or named or unused or takes_back:
            return super()._prepare_cache_for_generation(  # type: ignore[misc]
                generation_config, model_kwargs, generation_mode, *sizes
            )
        model_kwargs["past_key_values"] = NearLinearCache()
        return True


def _quantized_config(scheme: str) -> type[PreTrainedConfig]:
    """Return a configuration whose only use is its error: transformers cannot read these weights."""

    class QuantizedConfig(PreTrainedConfig):
        model_type = f"toeplix-{scheme}"

        def __init__(self, **settings: Any) -> None:
            if settings:  # transformers also makes an empty one, to compare
                raise ValueError(quantized_notice(scheme))
            super().__init__()

    return QuantizedConfig


def register() -> None:
    """Let the Auto classes of transformers find the models, and checkpoints carry the plain file."""
    AutoConfig.register("toeplix", ToeplixConfig)
    AutoModel.register(ToeplixConfig, ToeplixModel)
    AutoModelForCausalLM.register(ToeplixConfig, ToeplixForCausalLM)
    AutoModelForSequenceClassification.register(ToeplixConfig, ToeplixForSequenceClassification)
    AutoConfig.register("toeplix_mamba2", ToeplixMamba2Config)
    AutoModel.register(ToeplixMamba2Config, ToeplixMamba2Model)
    AutoModelForCausalLM.register(ToeplixMamba2Config, ToeplixMamba2ForCausalLM)
    for scheme in SCHEMES:
        AutoConfig.register(f"toeplix-{scheme}", _quantized_config(scheme))
    ToeplixConfig.register_for_auto_class()
    ToeplixMamba2Config.register_for_auto_class()
