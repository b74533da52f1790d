"""Language models without attention: causal Toeplitz mixers, exact and fast.

    from toeplix import toeplitz

Start reading at `toeplix.ops`, the operation that everything rests on.
"""

from toeplix.ops import (
    decoder,
    toeplitz,
    toeplitz_continued,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_windowed,
)

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "decoder",
    "toeplitz",
    "toeplitz_continued",
    "toeplitz_packed",
    "toeplitz_padded",
    "toeplitz_windowed",
]
