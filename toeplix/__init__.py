"""Language models without attention: causal Toeplitz mixers, exact and fast.

    from toeplix import Model, build, toeplitz

Start reading at `toeplix.architectures`, or at `toeplix.ops`, the operation that everything rests on.
"""

__version__ = "0.2.0"

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
