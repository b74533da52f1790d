"""Small models of every architecture, for tests that run over all of them."""

import torch
from torch import Tensor

from toeplix import Model
from toeplix.architectures import ARCHITECTURES
from toeplix.model import LanguageModel, MixerArchitecture

OURS = tuple(name for name, each in ARCHITECTURES.items() if isinstance(each, MixerArchitecture))


def used(arch: str, **settings):
    """Return the settings that an architecture reads: of the others it would complain."""
    return {name: value for name, value in settings.items() if name in ARCHITECTURES[arch].fields}


def small(arch: str = "toeplitz", **settings) -> Model:
    """Return a model of these settings, without those that the architecture does not read."""
    return Model(arch=arch, **used(arch, **settings))


def stepped(model: LanguageModel, tokens: Tensor, pieces: list[int], prefill: int | None) -> Tensor:
    """Return the logits of pieces of a sequence: so many are prefilled, the others decoded; None: all."""
    state, parts = model.start(), []
    for number, part in enumerate(tokens.split(pieces, 1)):
        if number == prefill:
            state.begin_decoding()
        logits, state = model.step(part, state)
        parts.append(logits)
    return torch.cat(parts, 1)
