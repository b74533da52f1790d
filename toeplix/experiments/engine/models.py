"""The models that experiments compare, by the names that figures and tables show.

Settings are those of `Model` that differ from its defaults; sizes come from the case. "toeplitz" is the
default of this library, "paper ..." what was published.
"""

from typing import Any

from toeplix.architectures import ARCHITECTURES
from toeplix.config import PAPER, Model

Settings = dict[str, Any]

PAPER_FLAT: Settings = PAPER["toeplitz"] | {"heads": 0}
PAPER_HEADS: Settings = PAPER["toeplitz"] | {"heads": 4}
LINEAR: Settings = {"arch": "linear", "feature_map": "elu", "activation": "gelu"}  # the stable form
MODELS: dict[str, Settings] = {
    "toeplitz": {},
    "toeplitz 4 heads": {"heads": 4},
    "paper flat": PAPER_FLAT,
    "paper 4 heads": PAPER_HEADS,
    "masked": PAPER["masked"] | {"arch": "masked"},
    "hyena": PAPER["hyena"] | {"arch": "hyena", "filter_features": 9},
    "mamba2": {"arch": "mamba2"},
    "llama": {"arch": "llama"},
    "window": {"arch": "window"},
}
SLOW = ("llama", "window", "mamba2", "linear")  # trained at 2e-4 in the paper, the others at 5e-4


def published_rate(settings: Settings) -> float:
    return 2e-4 if settings.get("arch") in SLOW else 5e-4


def model(settings: Settings, *, dim: int, depth: int, context: int, vocab: int) -> Model:
    """The record of a model; a state space keeps dim/2 numbers a channel, a window half the context."""
    sizes: Settings = {"dim": dim, "depth": depth, "context": context, "vocab": vocab}
    ratios: Settings = {"state_size": max(1, dim // 2), "window": max(1, context // 2)}
    used = ARCHITECTURES[settings.get("arch", Model.arch)].fields
    return Model(**({name: ratios[name] for name in used & set(ratios)} | settings | sizes))
