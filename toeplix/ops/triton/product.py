"""The path "triton": the causal Toeplitz product and its gradients as GPU kernels.

Half precision is multiplied on tensor cores and added in float32; a float32 filter is rounded to the
dtype of x before. float32 is multiplied as IEEE 754 says, or as TF32 where PyTorch is told so for its
own matmuls (`torch.set_float32_matmul_precision("high")`). Nothing of size t^2 is stored, the zero half
of the matrix is skipped, and gradients are the same bit for bit in every run.

float64, and more heads than a grid has, are computed by `blocked.py`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from toeplix.ops import blocked, triton
from toeplix.ops.contraction import Gradient
from toeplix.ops.segments import Segments


class ProductTile(NamedTuple):
    """Positions of y, positions of x and columns of one tile, and how a program runs."""

    block_t: int
    block_s: int
    block_n: int
    num_warps: int
    num_stages: int


class CorrelationTile(NamedTuple):
    """Positions and columns of one tile, and how a program runs."""

    block_l: int
    block_n: int
    num_warps: int
    num_stages: int


# By bytes of a number. The first tile is for many columns, the second for few. Chosen such that no
# target spills registers (tests/ops/triton/test_targets.py); their speed was not measured.
PRODUCT_TILES: dict[int, tuple[ProductTile, ProductTile]] = {
    2: (ProductTile(128, 64, 128, 8, 3), ProductTile(128, 64, 32, 4, 3)),
    4: (ProductTile(64, 32, 64, 4, 2), ProductTile(64, 32, 32, 4, 2)),
}
CORRELATION_TILES: dict[int, CorrelationTile] = {
    2: CorrelationTile(64, 64, 4, 3),
    4: CorrelationTile(64, 32, 4, 2),
}
MAX_FLAT_CHANNELS = 31  # fewer channels than a narrow tile has columns: tiles extend over rows
# Programs of a correlation at least, if there is work for so many. It depends on shapes only, not on
# the device, because the order of additions depends on it.
CORRELATION_PROGRAMS = 512


def product(x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h t"]) -> Float[Tensor, "b t h c"]:
    if _without_values(x):
        return x.new_empty(x.shape)
    if _elsewhere(x):
        return blocked.product(x, kernel.to(x.dtype))
    return multiply(x, kernel, None, 1)


def gradient(
    g: Float[Tensor, "b t h c"],
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h t"],
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    if _elsewhere(g) and not _without_values(g):
        return blocked.gradient(g, x.to(g.dtype), kernel.to(g.dtype), need_x, need_kernel)
    return packed_gradient(g, x, kernel, None, need_x, need_kernel)


def packed_product(
    x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h n"], segments: Segments
) -> Float[Tensor, "b t h c"]:
    """Return the product of every segment by itself; outputs outside of them are zero."""
    return x.new_empty(x.shape) if _without_values(x) else multiply(x, kernel, segments, 1)


def packed_gradient(
    g: Float[Tensor, "b t h c"],
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h n"],
    segments: Segments | None,
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    if _without_values(g):
        return (
            g.new_empty(g.shape) if need_x else None,
            kernel.new_empty(kernel.shape) if need_kernel else None,
        )
    return (
        multiply(g, kernel, segments, -1) if need_x else None,
        correlate(g, x, kernel.shape[1], segments) if need_kernel else None,
    )


def multiply(
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h n"],
    segments: Segments | None,
    direction: int,
) -> Float[Tensor, "b t h c"]:
    """Return `T(kernel) x`, or with direction -1 the product with the transposed matrix."""
    from toeplix.ops.triton.product_kernels import product_kernel

    triton.require(x)
    batch, time, heads, channels = x.shape
    filters = kernel.to(x.dtype).contiguous()
    flat = segments is None and channels <= MAX_FLAT_CHANNELS
    columns = batch * channels if flat else channels
    wide, narrow = PRODUCT_TILES[x.dtype.itemsize]
    tile = narrow if 2 * columns <= wide.block_n else wide
    tiles = -(-columns // tile.block_n)
    if segments is None:
        y = x.new_empty(x.shape)
        tables: tuple[Tensor | None, ...] = (None, None, None, None)
        blocks = -(-time // tile.block_t) * (1 if flat else batch)
    else:
        y = x.new_zeros(x.shape)
        starts, lengths = (part.to(x.device) for part in segments)
        tables = (starts, lengths, *_blocks(lengths, batch * time, tile.block_t))
        blocks = batch * time // tile.block_t + len(lengths)
    with torch.cuda.device_of(x):
        product_kernel[(blocks * tiles, heads)](
            x,
            filters,
            y,
            *tables,
            direction,
            batch,
            time,
            heads,
            channels,
            filters.shape[1],
            filters.stride(0),
            *x.stride(),
            FLAT=flat,
            PACKED=segments is not None,
            BLOCK_T=tile.block_t,
            BLOCK_S=tile.block_s,
            BLOCK_N=tile.block_n,
            PRECISION=precision(x),
            **_options(tile),
        )
    return y


def correlate(
    g: Float[Tensor, "b t h c"], x: Float[Tensor, "b t h c"], taps: int, segments: Segments | None
) -> Float[Tensor, "h n"]:
    """Return `dkernel[l] = sum_{b,t,c} g[t] x[t-l]` for l below `taps`, in float32."""
    from toeplix.ops.triton.product_kernels import correlation_kernel, diagonals_kernel

    triton.require(g)
    batch, time, heads, channels = g.shape
    x = x.to(g.dtype)
    tile = CORRELATION_TILES[g.dtype.itemsize]
    flat = segments is None and channels <= MAX_FLAT_CHANNELS
    diagonals = -(-min(time, taps) // tile.block_l)
    if segments is None:
        starts = lengths = None
        per_row = -(-channels // tile.block_n)
        units = -(-batch * channels // tile.block_n) if flat else batch * per_row
    else:
        starts, lengths = (part.to(g.device) for part in segments)
        units = len(lengths)
    share = max(1, units // max(1, CORRELATION_PROGRAMS // (heads * diagonals)))
    splits = -(-units // share)
    sums = g.new_empty(splits, heads, diagonals, 2, tile.block_l, dtype=torch.float32)
    dkernel = g.new_empty(heads, taps, dtype=torch.float32)
    with torch.cuda.device_of(g):
        correlation_kernel[(diagonals, splits, heads)](
            g,
            x,
            sums,
            starts,
            lengths,
            units,
            batch,
            time,
            channels,
            share,
            *g.stride(),
            *x.stride(),
            FLAT=flat,
            PACKED=segments is not None,
            BLOCK_L=tile.block_l,
            BLOCK_N=tile.block_n,
            PRECISION=precision(g),
            **_options(tile),
        )
        diagonals_kernel[(-(-taps // tile.block_l), heads)](
            sums,
            dkernel,
            splits,
            heads,
            diagonals,
            taps,
            BLOCK_L=tile.block_l,
            num_warps=2,
            enable_fp_fusion=True,
        )
    return dkernel


def _blocks(lengths: Tensor, positions: int, size: int) -> tuple[Tensor, Tensor]:
    """Return document and place of every block of `size` positions, found without the host.

    The tables are as long as there can be blocks; the document of entries that are not used is -1.
    """
    counts = (lengths + size - 1) // size
    ends = counts.cumsum(0)
    number = torch.arange(positions // size + len(lengths), device=lengths.device)
    document = torch.searchsorted(ends, number, right=True)
    known = document.clamp(max=len(lengths) - 1)
    place = number - (ends - counts)[known]
    return document.where(document < len(lengths), -1), place


def precision(x: Tensor) -> str:
    """Return how float32 is multiplied: as for PyTorch's own matmuls, and exactly on AMD devices."""
    backend = torch.backends.cuda.matmul
    setting = getattr(backend, "fp32_precision", None)  # since PyTorch 2.9
    tf32 = setting == "tf32" if setting is not None else backend.allow_tf32
    return "tf32" if tf32 and x.dtype == torch.float32 and not torch.version.hip else "ieee"


def _options(tile: ProductTile | CorrelationTile) -> dict[str, Any]:
    # fused multiply-add is named because its default changes with the version of Triton
    return {
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
        "enable_fp_fusion": True,
    }


def _without_values(x: Tensor) -> bool:
    return x.is_meta or isinstance(x, FakeTensor)


def _elsewhere(x: Tensor) -> bool:
    return x.dtype == torch.float64 or x.shape[2] > triton.MAX_HEADS
