"""Every architecture by name: read this first.

Ours are one model in which the token mixer is a slot (`model.MixerLM`): the same in all blocks, or those
that `Model.blocks` names (a hybrid). llama, window and mamba2 are Hugging Face's own classes behind the
same methods (`backbones`). To add a mixer, write a file in `mixers` and name it here:
docs/adding-a-mixer.md is a worked example.

    build(config)                        the module, with fresh weights
    parameters(config)                   how many parameters it has
    forward_flops(config, time, rows)    FLOPs of one forward pass
    state_bytes(config, time)            bytes of decoding state of one sequence

Counts are formulas, which tests compare with what is counted on built models. A multiply-add is two
FLOPs; norms, activations and additions, a few per cent, are left out.
"""

from toeplix.architecture import Architecture
from toeplix.backbones.sizes import Llama, Mamba2, SlidingWindow
from toeplix.config import HYBRID, Model
from toeplix.mixer_architecture import HybridArchitecture, MixerArchitecture
from toeplix.mixers.attention import AttentionMixer
from toeplix.mixers.base import TokenMixer
from toeplix.mixers.hyena import HyenaMixer
from toeplix.mixers.linear import LinearMixer
from toeplix.mixers.lookup import LookupMixer
from toeplix.mixers.masked import MaskedMixer
from toeplix.mixers.toeplitz import ToeplitzMixer
from toeplix.model import LanguageModel

MIXERS: dict[str, type[TokenMixer]] = {
    "toeplitz": ToeplitzMixer,
    "attention": AttentionMixer,
    "masked": MaskedMixer,
    "hyena": HyenaMixer,
    "linear": LinearMixer,
    "lookup": LookupMixer,
}
ARCHITECTURES: dict[str, Architecture] = {
    **{name: MixerArchitecture(mixer) for name, mixer in MIXERS.items()},
    HYBRID: HybridArchitecture(MIXERS),
    "llama": Llama(),
    "window": SlidingWindow(),
    "mamba2": Mamba2(),
}


def build(config: Model) -> LanguageModel:
    """Return the module of a configuration, with fresh weights."""
    return ARCHITECTURES[config.arch].build(config)


def parameters(config: Model) -> int:
    """Return the number of parameters, frozen ones included."""
    return ARCHITECTURES[config.arch].parameters(config)


def stored_numbers(config: Model) -> int:
    """Return how many numbers a checkpoint holds: parameters and buffers."""
    return ARCHITECTURES[config.arch].stored_numbers(config)


def forward_flops(config: Model, time: int, rows: int = 1) -> float:
    """Return the FLOPs of a forward pass over `rows` sequences of `time` positions.

    The output layer is included. Filters that a network computes count once, as all rows share them.
    Attention counts the lower triangle only, as its kernels skip the rest.
    """
    architecture = ARCHITECTURES[config.arch]
    return rows * architecture.forward_flops(config, time) + architecture.shared_flops(config, time)


def state_bytes(config: Model, time: int) -> int:
    """Return the bytes of decoding state of one sequence that has read `time` positions, in float32."""
    return ARCHITECTURES[config.arch].state_bytes(config, time)
