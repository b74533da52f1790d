"""Language models without attention: causal Toeplitz mixers, exact and fast.

    from toeplix import Model, build, toeplitz

Start reading at `toeplix.architectures`, or at `toeplix.ops`, the operation that everything rests on.

Names are imported when they are first used: PyTorch takes seconds to import, in which the command line
could not yet handle Ctrl-C, and `toeplix --version` needs none of it.
"""

from typing import TYPE_CHECKING

__version__ = "0.2.0"

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
else:
    _MODULES = {
        "Model": "toeplix.config",
        "build": "toeplix.architectures",
        "load": "toeplix.checkpoint",
        "save": "toeplix.checkpoint",
    }
    _SUBMODULES = ("architectures", "checkpoint", "config", "ops")

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used: torch takes seconds, and `--help` needs none."""
        from importlib import import_module

        if name in _SUBMODULES:
            return import_module(f"toeplix.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'toeplix' has no attribute {name!r}")
        found = getattr(import_module(_MODULES.get(name, "toeplix.ops")), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_SUBMODULES})
