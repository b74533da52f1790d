"""The models that experiments compare, by the names in figures and tables.

Settings are the fields of `Model` that differ from its defaults; sizes come from the case. "toeplitz" is
the default model of this library, "paper ..." are the published models.
"""

from typing import Any

from toeplix.architectures import ARCHITECTURES
from toeplix.config import PAPER, Model

Settings = dict[str, Any]  # fields of `Model`, each of its own type

PAPER_FLAT: Settings = PAPER["toeplitz"] | {"heads": 0}
PAPER_HEADS: Settings = PAPER["toeplitz"] | {"heads": 4}
LINEAR: Settings = {
    "arch": "linear",
    "feature_map": "elu",
    "activation": "gelu",
}  # stable feature map
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
SLOW = ("llama", "window", "mamba2", "linear")  # learning rate 2e-4 in the paper, others 5e-4


def published_rate(settings: Settings) -> float:
    return 2e-4 if settings.get("arch") in SLOW else 5e-4


def model(settings: Settings, *, dim: int, depth: int, context: int, vocab: int) -> Model:
    """Return a model's record; by default its state size is dim/2 and its window half the context."""
    sizes: Settings = {"dim": dim, "depth": depth, "context": context, "vocab": vocab}
    ratios: Settings = {"state_size": max(1, dim // 2), "window": max(1, context // 2)}
    used = ARCHITECTURES[settings.get("arch", Model.arch)].fields
    return Model(**({name: ratios[name] for name in used & set(ratios)} | settings | sizes))
