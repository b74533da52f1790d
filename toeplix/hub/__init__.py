"""Models for Hugging Face transformers. `import toeplix.hub` registers them with its Auto classes.

    AutoModelForCausalLM.from_pretrained(directory)   what `toeplix.save` or `save_pretrained` wrote;
                                                      AutoModel and AutoModelForSequenceClassification too
    from_core(model), to_core(model)                  convert between `toeplix.build` and transformers
    NearLinearCache                                   the default cache of `generate()`

Both write modeling_toeplix.py beside the weights. Without toeplix, checkpoints load from
it with `trust_remote_code=True` and decode with the caches of transformers. With toeplix, the code in a
checkpoint is never run.
"""

import dataclasses
from typing import Any

from toeplix import __version__
from toeplix.architectures import build
from toeplix.checkpoint import fill, own
from toeplix.config import Model
from toeplix.hub.cache import NearLinearCache
from toeplix.hub.modeling_toeplix import ToeplixConfig
from toeplix.hub.models import (
    ToeplixForCausalLM,
    ToeplixForSequenceClassification,
    ToeplixModel,
    register,
)
from toeplix.model import LanguageModel, MixerLM

__all__ = [
    "NearLinearCache",
    "ToeplixConfig",
    "ToeplixForCausalLM",
    "ToeplixForSequenceClassification",
    "ToeplixModel",
    "from_core",
    "to_core",
]

register()


def from_core(model: LanguageModel) -> ToeplixForCausalLM:
    """Return a transformers model with a copy of the weights."""
    if not isinstance(model, MixerLM):
        raise ValueError(
            f"arch={model.config.arch!r} is Hugging Face's own: its backbone is a transformers model"
        )
    config = ToeplixConfig(model=dataclasses.asdict(model.config), toeplix_version=__version__)
    copy: Any = ToeplixForCausalLM(config)
    fill(copy, own(model), "the model")
    return copy.to(next(model.parameters()).device).train(model.training)


def to_core(model: ToeplixForCausalLM) -> LanguageModel:
    """Return a model as `toeplix.build` makes it, with a copy of the weights."""
    copy = build(Model(**(model.config.model or {})))
    fill(copy, own(model), "the model")
    return copy.to(next(model.parameters()).device).train(model.training)
