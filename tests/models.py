"""Small models of every architecture, for tests that run over all of them."""

from toeplix import Model
from toeplix.architectures import ARCHITECTURES
from toeplix.mixer_architecture import MixerArchitecture
from toeplix.profiling.model_contract import OTHER, stepped

__all__ = ["FREE", "NEEDED", "OURS", "small", "stepped", "used"]

OURS = tuple(name for name, each in ARCHITECTURES.items() if isinstance(each, MixerArchitecture))


FREE = {"arch": "toeplitz", "filter": "free"}  # a weight for every lag, in every block
# settings without which a model of an architecture cannot be built, or would be too large
NEEDED = {"hybrid": OTHER["hybrid"]}


def used(arch: str, **settings):
    """Return the settings that an architecture reads: of the others it would complain."""
    kind = Model(arch=arch, **NEEDED.get(arch, {}))
    read = ARCHITECTURES[arch].fields_read(kind)
    return {name: value for name, value in settings.items() if name in read}


def small(arch: str = "toeplitz", **settings) -> Model:
    """Return a model of these settings, without those that the architecture does not read."""
    return Model(arch=arch, **(NEEDED.get(arch, {}) | used(arch, **settings)))
