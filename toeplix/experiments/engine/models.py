"""The models that experiments compare, by the names in figures and tables.

Settings are fields of `Model`; sizes come from the case. "toeplitz" is the default model of version 0.1,
with free filters and a gate of initial mean 0, "hybrid" that of this version, and "paper ..." are the
published models. Attention learns better with matrices by fan_in and embeddings N(0, 1) (`controls`); the
scale of the paper has Hugging Face's initialisation, which is the published one (`published`).
"""

from typing import Any

from toeplix.architectures import ARCHITECTURES
from toeplix.config import LOOKUP_BLOCKS, PAPER, Model

Settings = dict[str, Any]  # fields of `Model`, each of its own type

FREE: Settings = {"arch": "toeplitz", "filter": "free"}
FIRST: Settings = FREE | {"gate_bias": 0.0}  # the default of version 0.1
PAPER_FLAT: Settings = FREE | PAPER["toeplitz"] | {"heads": 0}
PAPER_HEADS: Settings = FREE | PAPER["toeplitz"] | {"heads": 4}
LINEAR: Settings = {  # stable feature map; with embeddings of 0.02 it hardly learns, see docs/log.md
    "arch": "linear",
    "feature_map": "elu",
    "activation": "gelu",
    "init": "paper",
}
HYBRID: Settings = {  # the default of this version; blocks are a list, as in rows
    "blocks": list(LOOKUP_BLOCKS),
    "filter": "recurrent",
    "embedding_norm": Model.embedding_norm,
}
ATTENTION: Settings = {"init": "fan_in"}
MODELS: dict[str, Settings] = {
    "toeplitz": FIRST,
    "toeplitz 4 heads": FIRST | {"heads": 4},
    "hybrid": HYBRID,
    "paper flat": PAPER_FLAT,
    "paper 4 heads": PAPER_HEADS,
    "masked": PAPER["masked"] | {"arch": "masked"},
    "hyena": PAPER["hyena"] | {"arch": "hyena", "filter_features": 9},
    "mamba2": {"arch": "mamba2"},
    "llama": ATTENTION | {"arch": "llama"},
    "window": ATTENTION | {"arch": "window"},
}
SLOW = ("llama", "window", "mamba2", "linear")  # learning rate 2e-4 in the paper, others 5e-4


def published(settings: Settings) -> Settings:
    """Return settings without init="fan_in": the paper's attention has Hugging Face's initialisation."""
    return {name: value for name, value in settings.items() if (name, value) != ("init", "fan_in")}


def published_rate(settings: Settings) -> float:
    return 2e-4 if settings.get("arch") in SLOW else 5e-4


def model(settings: Settings, *, dim: int, depth: int, context: int, vocab: int) -> Model:
    """Return a model's record.

    By default its embeddings have no norm, its state size is dim/2 and its window half the context.
    """
    sizes: Settings = {"dim": dim, "depth": depth, "context": context, "vocab": vocab}
    ratios: Settings = {"state_size": max(1, dim // 2), "window": max(1, context // 2)}
    ratios["embedding_norm"] = 0.0
    kind = Model(**{name: settings[name] for name in ("arch", "blocks") if name in settings})
    used = ARCHITECTURES[kind.arch].fields_read(kind)
    return Model(**({name: ratios[name] for name in used & set(ratios)} | settings | sizes))
