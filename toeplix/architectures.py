"""Every architecture by name: read this first.

Ours are one shell with a mixer in its slot; llama, window and mamba2 are Hugging Face's own
behind the same methods.
"""

from collections.abc import Callable
from functools import partial

from toeplix.config import Model
from toeplix.mixers.hyena import HyenaMixer
from toeplix.mixers.linear import LinearMixer
from toeplix.mixers.masked import MaskedMixer
from toeplix.mixers.toeplitz import ToeplitzMixer
from toeplix.model import LanguageModel, MixerLM


def _borrowed(config: Model) -> LanguageModel:
    try:  # Hugging Face is imported only when it is used
        from toeplix.backbones.huggingface import borrow
    except ModuleNotFoundError as problem:
        raise ValueError(
            f"arch={config.arch!r} is Hugging Face's own: pip install 'toeplix[hf]' ({problem})"
        ) from problem
    return borrow(config)


ARCHITECTURES: dict[str, Callable[[Model], LanguageModel]] = {
    "toeplitz": partial(MixerLM, ToeplitzMixer),
    "masked": partial(MixerLM, MaskedMixer),
    "hyena": partial(MixerLM, HyenaMixer),
    "linear": partial(MixerLM, LinearMixer),
    "llama": _borrowed,
    "window": _borrowed,
    "mamba2": _borrowed,
}


def build(config: Model) -> LanguageModel:
    """The module of a configuration, with fresh weights."""
    return ARCHITECTURES[config.arch](config)
