"""Small models of every architecture, for tests that run over all of them."""

from toeplix import Model
from toeplix.architectures import ARCHITECTURES
from toeplix.model import MixerArchitecture

OURS = tuple(name for name, each in ARCHITECTURES.items() if isinstance(each, MixerArchitecture))


def used(arch: str, **settings):
    """Return the settings that an architecture reads: of the others it would complain."""
    return {name: value for name, value in settings.items() if name in ARCHITECTURES[arch].fields}


def small(arch: str = "toeplitz", **settings) -> Model:
    """Return a model of these settings, without those that the architecture does not read."""
    return Model(arch=arch, **used(arch, **settings))
