"""Models for Hugging Face: `import toeplix.hub`, and transformers knows them.

    AutoModelForCausalLM.from_pretrained(directory)   written by `toeplix.save` or `save_pretrained`
    from_core(model), to_core(model)                  the same weights on the other side, copied
    NearLinearCache                                   what `generate()` decodes with, by default

`save_pretrained` puts modeling_toeplix.py beside the weights: whoever has no toeplix loads them with
`trust_remote_code=True`, and decodes with the stock caches. Here the classes are known, and the code
in a checkpoint is never run.
"""

import dataclasses
from typing import Any

from toeplix import __version__
from toeplix.architectures import build
from toeplix.checkpoint import fill, own
from toeplix.config import Model
from toeplix.hub.cache import NearLinearCache
from toeplix.hub.modeling_toeplix import ToeplixConfig
from toeplix.hub.models import ToeplixForCausalLM, ToeplixModel, register
from toeplix.model import LanguageModel, MixerLM

__all__ = [
    "NearLinearCache",
    "ToeplixConfig",
    "ToeplixForCausalLM",
    "ToeplixModel",
    "from_core",
    "to_core",
]

register()


def from_core(model: LanguageModel) -> ToeplixForCausalLM:
    """The model as transformers knows it. Weights are copied: training one leaves the other alone."""
    if not isinstance(model, MixerLM):
        raise ValueError(
            f"arch={model.config.arch!r} is Hugging Face's own: its backbone is a transformers model"
        )
    config = ToeplixConfig(model=dataclasses.asdict(model.config), toeplix_version=__version__)
    copy: Any = ToeplixForCausalLM(config)
    fill(copy, own(model), "the model")
    return copy.to(next(model.parameters()).device).train(model.training)


def to_core(model: ToeplixForCausalLM) -> LanguageModel:
    """The model as `toeplix.build` makes it, with `encode` and `step`. Weights are copied."""
    copy = build(Model(**(model.config.model or {})))
    fill(copy, own(model), "the model")
    return copy.to(next(model.parameters()).device).train(model.training)
