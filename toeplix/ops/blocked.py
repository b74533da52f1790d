"""Matmul tiles that skip the zero half of the Toeplitz matrix: the fastest path for short sequences.

Time is divided into block rows of m positions. Since the matrix is Toeplitz, all block rows read one
panel, each only the part of it below the diagonal (time is padded to T, a multiple of m):

    panel[h, a, j]  = kernel[h, T - m + a - j]        (0 where the lag is negative)
    y[i-th m rows]  = panel[:, :, T - (i+1) m :] @ x[: (i+1) m]

The transpose reads `mirror[h, a, j] = kernel[h, j - a]` in the same way. Causality is exact: later
positions are multiplied by zeros only, so their finite values cannot change an earlier output.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import contraction
from toeplix.ops.contraction import Gradient

TILE = 64
MAX_UNDIVIDED_LENGTH = 128  # length up to which one whole matrix is as fast as tiles
# elements of x below which calls cost more than the FLOPs that tiles save
MIN_TILED_ELEMENTS = 2**18


def product(x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h t"]) -> Float[Tensor, "b t h c"]:
    time, tile = x.shape[1], tile_size(x.shape[1])
    panel, stacked = _panel(kernel, tile), contraction.stack(x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    for first, last in block_rows(time, tile):
        columns = panel[:, : last - first, panel.shape[-1] - first - tile :][..., :last]
        contraction.apply(columns, stacked[:, :last], y[:, first:last])
    return y


def gradient(
    g: Float[Tensor, "b t h c"],
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h t"],
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    time, tile = g.shape[1], tile_size(g.shape[1])
    stacked = contraction.stack(g)
    dx = dkernel = None
    if need_x:
        mirror = _mirror(kernel, tile)
        dx = torch.empty_like(g, memory_format=torch.contiguous_format)
        for first, last in block_rows(time, tile):
            columns = mirror[:, : last - first, : time - first]
            contraction.apply(columns, stacked[:, first:], dx[:, first:last])
    if need_kernel:
        dkernel = _correlation(stacked, contraction.stack(x), kernel)
    return dx, dkernel


def _correlation(g: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
    """Return `dkernel[l] = sum g[t] x[t - l]`: the gradient of the panel, summed along diagonals."""
    heads, time = kernel.shape
    tile = tile_size(time) if x.numel() < MIN_TILED_ELEMENTS else TILE
    if tile == time:
        dpanel = contraction.correlate(g, x, heads)
    else:
        padded = -(-time // tile) * tile
        dpanel = kernel.new_zeros(heads, tile, padded)
        for first, last in block_rows(time, tile):
            window = dpanel[:, : last - first, padded - first - tile :][..., :last]
            window += contraction.correlate(g[:, first:last], x[:, :last], heads)
    # panel[a, j] has lag T - m + a - j, so lag 0 is the diagonal with a - j = m - T
    return contraction.diagonal_sums(dpanel)[:, tile - 1 : tile - 1 + time]


def tile_size(time: int) -> int:
    return time if time <= MAX_UNDIVIDED_LENGTH else TILE


def block_rows(time: int, tile: int) -> list[tuple[int, int]]:
    return [(first, min(first + tile, time)) for first in range(0, time, tile)]


def _panel(kernel: Tensor, tile: int) -> Tensor:
    """Return `panel[h, a, j] = kernel[h, T - m + a - j]`."""
    time = kernel.shape[1]
    padded = -(-time // tile) * tile
    # lags from 1-m to T-1; a row is a window of T of them, reversed
    rising = torch.nn.functional.pad(kernel, (tile - 1, padded - time))
    return rising.unfold(-1, padded, 1).flip(-1)


def _mirror(kernel: Tensor, tile: int) -> Tensor:
    """Return `mirror[h, a, j] = kernel[h, j - a]`."""
    rising = torch.nn.functional.pad(kernel, (tile - 1, 0))
    return rising.unfold(-1, kernel.shape[1], 1).flip(1)
