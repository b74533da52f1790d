"""Language models without attention: causal Toeplitz mixers, exact and fast.

    from toeplix import Model, build, toeplitz

Start reading at `toeplix.architectures`, or at `toeplix.ops`, the operation that everything rests on.

Names are imported when they are first used: PyTorch takes seconds to import, in which the command line
could not yet handle Ctrl-C, and `toeplix --version` needs none of it.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from toeplix.architectures import build
    from toeplix.checkpoint import load, save
    from toeplix.config import Model
    from toeplix.ops import (
        decoder,
        toeplitz,
        toeplitz_continued,
        toeplitz_packed,
        toeplitz_padded,
        toeplitz_windowed,
    )

__all__ = [
    "Model",
    "__version__",
    "build",
    "decoder",
    "load",
    "save",
    "toeplitz",
    "toeplitz_continued",
    "toeplitz_packed",
    "toeplitz_padded",
    "toeplitz_windowed",
]

_MODULES = {
    "Model": "toeplix.config",
    "build": "toeplix.architectures",
    "load": "toeplix.checkpoint",
    "save": "toeplix.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES.get(name, "toeplix.ops")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
