"""FLOPs of the causal Toeplitz product, by a convention that no machine or user changes.

A multiply-add counts as two FLOPs. Short products are counted as the tiles of matmuls that `blocked.py`
computes, long ones as the transforms of `fft.py`.
"""

import math

from toeplix.ops import blocked, fft

# The longest sequence whose product is counted as tiles and not as transforms, for few columns and for
# many. This is a convention, apart from the rule by which paths are chosen (dispatch.py): that rule is
# measured on every machine, and "equal compute" must mean the same widths on all of them.
FEW_COLUMNS, TILED_LENGTH_FEW_COLUMNS, TILED_LENGTH_MANY_COLUMNS = 16, 128, 384


def product_flops(time: int, heads: int, channels: int, batch: int = 1) -> float:
    """FLOPs of one causal Toeplitz product of `(batch, time, heads, channels)`."""
    columns = heads * channels * batch
    if time > (
        TILED_LENGTH_FEW_COLUMNS if batch * channels <= FEW_COLUMNS else TILED_LENGTH_MANY_COLUMNS
    ):
        length = fft.good_length(2 * time - 1)
        lanes = columns / 2 if channels % 2 == 0 else columns
        transforms = 2 * 5.0 * length * math.log2(length) * (1 if channels % 2 == 0 else 0.5)
        return lanes * (transforms + 6.0 * length)
    rows = blocked.block_rows(time, blocked.tile_size(time))
    return 2.0 * columns * sum((last - first) * last for first, last in rows)


def recurrent_flops(time: int, channels: int, free_taps: int, decays: int) -> float:
    """FLOPs of one product with recurrent filters: the recurrence, a decay and two products a sum.

    Tiles compute the same numbers with more FLOPs; the count is that of the definition, as for scans.
    """
    return 2.0 * time * channels * (free_taps + 2 * decays)
