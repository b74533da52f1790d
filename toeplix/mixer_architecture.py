"""Architectures of our blocks: parameters, FLOPs and state of a `MixerLM`, known before it is built.

Counts are sums over blocks: every mixer knows its own (`TokenMixer`), the rest of a block is an MLP and
two norms.
"""

from collections.abc import Mapping

from toeplix.architecture import COMMON_FIELDS, Architecture
from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.model import MixerLM

# settings of `Model` that every model of our blocks reads
BLOCK_FIELDS = ("mlp_ratio", "block_order", "norm", "final_norm", "activation", "dropout", "init")


class MixerArchitecture(Architecture):
    """A `MixerLM` with this mixer in the slot of every block."""

    def __init__(self, mixer: type[TokenMixer]) -> None:
        self.mixer = mixer
        self.fields = frozenset({*COMMON_FIELDS, *BLOCK_FIELDS, *mixer.FIELDS})

    def mixers(self, config: Model) -> list[type[TokenMixer]]:
        """Return the mixer of every block."""
        return [self.mixer] * config.depth

    def build(self, config: Model) -> "MixerLM":
        return MixerLM(self.mixers(config), config)

    def check(self, config: Model) -> None:
        if config.init not in self.mixer.INITIALISATION:
            known = ", ".join(self.mixer.INITIALISATION)
            raise ValueError(f"init={config.init!r} is not one of arch={config.arch!r}: {known}")
        self.mixer.check(config)

    def parameters(self, config: Model) -> int:
        d, norm = config.dim, _norm_parameters(config)
        ends = d * config.vocab * (1 if config.tie_embeddings else 2)
        blocks = sum(self._block_parameters(config, mixer) for mixer in self.mixers(config))
        norms = norm * (config.final_norm + config.norms_embeddings)
        return blocks + norms + ends

    def gathered_parameters(self, config: Model) -> int:
        """Return the parameters outside the blocks and of two blocks, the largest ones."""
        blocks = [self._block_parameters(config, mixer) for mixer in self.mixers(config)]
        return self.parameters(config) - sum(sorted(blocks)[:-2])

    def _block_parameters(self, config: Model, mixer: type[TokenMixer]) -> int:
        d, ratio = config.dim, config.mlp_ratio
        mlp = 2 * ratio * d * d + (ratio + 1) * d
        return mixer.parameter_count(config) + mlp + 2 * _norm_parameters(config)

    def stored_numbers(self, config: Model) -> int:
        buffers = sum(mixer.buffer_count(config) for mixer in self.mixers(config))
        return self.parameters(config) + buffers

    def forward_flops(self, config: Model, time: int) -> float:
        mlp = 4.0 * time * config.mlp_ratio * config.dim**2
        mixers = sum(mixer.flops(config, time) for mixer in self.mixers(config))
        return mixers + config.depth * mlp + 2.0 * time * config.dim * config.vocab

    def shared_flops(self, config: Model, time: int) -> float:
        return sum(mixer.shared_flops(config, time) for mixer in self.mixers(config))

    def state_bytes(self, config: Model, time: int) -> int:
        return sum(mixer.state_bytes(config, time) for mixer in self.mixers(config))

    def saved_activations(self, config: Model) -> int | None:
        """A block keeps the inputs of both norms and of both sublayers (4 dim), and the MLP's hidden
        layer before and after its activation; RMSNorm keeps its result too.
        """
        norm = {"layer": 2, "rms": 1 + config.dim}[config.norm]  # beside its input
        total = (config.dim + norm) * (config.final_norm + config.norms_embeddings)
        for mixer in self.mixers(config):
            kept = mixer.saved_activations(config)
            if kept is None:
                return None
            total += (4 + 2 * config.mlp_ratio + kept) * config.dim + 2 * norm
        return total

    def exchanged_numbers(self, config: Model, time: int, processes: int) -> float | None:
        total = 0.0
        for mixer in self.mixers(config):
            sent = mixer.exchanged_numbers(config, time, processes)
            if sent is None:
                return None
            total += sent
        return total

    def filter_mixers(self, config: Model) -> dict[str, type[TokenMixer]]:
        named = zip(config.mixers, self.mixers(config), strict=True)
        return {name: mixer for name, mixer in named if mixer.filter_heads(config)}


class HybridArchitecture(MixerArchitecture):
    """A `MixerLM` whose blocks have the mixers that `config.blocks` names, repeated over the depth."""

    def __init__(self, known: Mapping[str, type[TokenMixer]]) -> None:
        self.known = known
        fields = {field for mixer in known.values() for field in mixer.FIELDS}
        self.fields = frozenset({*COMMON_FIELDS, *BLOCK_FIELDS, "blocks", *fields})

    def mixers(self, config: Model) -> list[type[TokenMixer]]:
        return [self.known[name] for name in config.mixers]

    def fields_read(self, config: Model) -> frozenset[str]:
        unknown = [name for name in config.blocks if name not in self.known]
        if unknown or not config.blocks:
            raise ValueError(
                f"blocks={config.blocks} must be names of mixers, each one of {', '.join(self.known)}"
            )
        fields = {field for name in config.blocks for field in self.known[name].FIELDS}
        return frozenset({*COMMON_FIELDS, *BLOCK_FIELDS, "blocks", *fields})

    def check(self, config: Model) -> None:
        if config.init != "scaled":
            raise ValueError(
                f"init={config.init!r} is not one of models with several mixers: scaled"
            )
        for name in dict.fromkeys(config.blocks):
            self.known[name].check(config)


def _norm_parameters(config: Model) -> int:
    return {"layer": 2, "rms": 1}[config.norm] * config.dim
