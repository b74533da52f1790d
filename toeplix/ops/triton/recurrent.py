"""The product with recurrent filters on a GPU, in chunks: the counterpart of ops/chunked.py.

    forward      chunk_sums_kernel, chunk_scan, outputs_kernel: x is read twice, y is written once
    gradient     the same three in reverse for x and the state, and two correlations for the filters

recurrent_kernels.py has the kernels and docs/mathematics.md ("Recurrent filters") the equations. An input
that is not finite changes no output before it, without a second pass and without waiting for the GPU.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import triton
from toeplix.ops.chunked import Gradients
from toeplix.ops.recurrent_filter import Correlation, Filter, Matrices
from toeplix.ops.triton.product import precision

MAX_SHORT = 65  # free taps: they read at most 64 positions before a chunk
MAX_RANK = 32
CORRELATION_PROGRAMS = 512  # of a correlation, at most; each has a matrix of its own


class Tile(NamedTuple):
    """Positions of a chunk and columns (pairs of row and channel) of one tile, and how a program runs."""

    chunk: int
    columns: int
    num_warps: int
    num_stages: int


# By bytes of a number. Chunks of float32 are shorter because IEEE products have no tensor cores on NVIDIA
# devices: there time is proportional to FLOPs. Chosen such that no target spills registers
# (tests/ops/triton/test_recurrent_targets.py); their speed was not measured.
TILES: dict[int, Tile] = {2: Tile(64, 64, 4, 2), 4: Tile(32, 32, 4, 2)}


def tap_stages(item_bytes: int, precision: str) -> int:
    """Return the stages of the correlation of taps: with two, float32 in TF32 spills."""
    return 1 if (item_bytes, precision) == (4, "tf32") else TILES[item_bytes].num_stages


def supports(x: Tensor, short: int, rank: int) -> bool:
    """Return whether the kernels compute this product; chunked.py computes every other."""
    return short <= MAX_SHORT and 0 < rank <= MAX_RANK and triton.supports(x)


def state_precision(x: Tensor) -> str:
    """Return how products with states, which are float32, are computed: for half precision in TF32."""
    if x.dtype == torch.float32 or torch.version.hip:
        return precision(x)
    return "tf32"


def states_shape(x: Tensor, skip: int, rank: int) -> tuple[int, int, int, int, int]:
    """Return the shape of the states that `forward` keeps: before every chunk, and after the last."""
    batch, time, heads, channels = x.shape
    return (-(-(time - skip) // TILES[x.dtype.itemsize].chunk) + 1, batch, rank, heads, channels)


class _Launch:
    """What the kernels of one product share: tables, sizes and the grid."""

    def __init__(self, like: Tensor, time: int, filters: Filter) -> None:
        tile = TILES[like.dtype.itemsize]
        self.batch, _, self.heads, self.channels = like.shape
        self.time = time
        self.matrices = Matrices(filters, tile.chunk, torch.float32)
        self.chunks = -(-time // tile.chunk)
        self.blocks = -(-self.batch * self.channels // tile.columns)
        self.sizes = (self.batch, self.heads, self.channels, filters.rank)
        self.constants = {
            "CHUNK": tile.chunk,
            "COLUMNS": tile.columns,
            "PRECISION": state_precision(like),
            "num_warps": tile.num_warps,
            "num_stages": tile.num_stages,
            "enable_fp_fusion": True,
        }
        self.ranked = {"RANK": padded(filters.rank)}
        reach = filters.reach
        self.past = {"PAST": padded(reach) if reach else 0}

    def states(
        self, x: Tensor, begin: Tensor | None, *, reverse: bool
    ) -> Float[Tensor, "slots b r h c"]:
        """Return the sums before every chunk and after the last; in reverse, their gradients."""
        from toeplix.ops.triton.chunk_scan import chunk_scan
        from toeplix.ops.triton.recurrent_kernels import chunk_sums_kernel

        shape = (self.chunks + 1, self.batch, self.matrices.rank, self.heads, self.channels)
        states = x.new_empty(shape, dtype=torch.float32)
        edge = states[-1 if reverse else 0]
        edge.zero_() if begin is None else edge.copy_(begin)
        table = self.matrices.spread if reverse else self.matrices.gather
        chunk_sums_kernel[(self.chunks * self.blocks, self.heads)](
            x, table.contiguous(), states, self.time, *self.sizes, *x.stride(),
            REVERSE=reverse, **self.ranked, **self.constants,
        )  # fmt: skip
        chunk_scan(states, self.matrices, self.time, reverse=reverse)
        return states

    def outputs(self, x: Tensor, states: Tensor, y: Tensor, skip: int, *, reverse: bool) -> None:
        """Write the outputs to y; `skip` positions before the first exist in x (in reverse: in y)."""
        from toeplix.ops.triton.recurrent_kernels import outputs_kernel

        m = self.matrices
        taps = m.filters.taps(m.size).float().contiguous()
        free = m.filters.free.float().contiguous()
        table = (m.gather if reverse else m.spread).contiguous()
        first = -skip // m.size if reverse else 0  # rounded down: the chunks before position 0
        outputs_kernel[((self.chunks - first) * self.blocks, self.heads)](
            x, taps, free, table, states, y, self.time, first, skip, free.shape[1], *self.sizes,
            *x.stride(), *y.stride(), REVERSE=reverse, **self.ranked, **self.past, **self.constants,
        )  # fmt: skip

    def correlation(self, g: Tensor, x: Tensor, before: Tensor, after: Tensor, skip: int) -> Filter:
        """Return the gradients of the filters."""
        from toeplix.ops.triton.recurrent_kernels import (
            state_correlation_kernel,
            tap_correlation_kernel,
        )

        found, m = Correlation(self.matrices), self.matrices
        stages = tap_stages(g.dtype.itemsize, state_precision(g))
        whole, rest = divmod(self.time, m.size)
        for first, chunks, size in ((0, whole, m.size), (whole, 1, rest)):
            if chunks == 0 or size == 0:
                continue
            items = chunks * self.blocks
            programs = min(items, max(1, CORRELATION_PROGRAMS // self.heads))
            shape = (programs, self.heads, m.rank + m.size, m.rank + m.reach + m.size)
            partial = g.new_zeros(shape, dtype=torch.float32)
            grid, strides = (programs, self.heads), (*g.stride(), *x.stride())
            tap_correlation_kernel[grid](
                g, x, partial, self.time, first, items, skip, *self.sizes, m.reach, *strides,
                **self.past, **self.constants | {"num_stages": stages},
            )  # fmt: skip
            state_correlation_kernel[grid](
                g, x, before, after, partial, self.time, first, items, *self.sizes, m.reach,
                *strides, **self.constants, **self.ranked,
            )  # fmt: skip
            sums = partial.sum(0, dtype=torch.float64)
            found.put(sums[:, : m.rank + size, : m.rank + m.reach + size], size)
        return found.parameters()


def padded(size: int) -> int:
    """Return a power of two that tl.dot accepts."""
    return max(16, 1 << (size - 1).bit_length())


def forward(
    x: Float[Tensor, "b s h c"],
    sums: Float[Tensor, "b r h c"] | None,
    filters: Filter,
    skip: int,
    *,
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs from position `skip` on, sums after the last position, and the states.

    The first `skip` positions (0, or the reach of the free part) are part of `sums` already. States
    (`states_shape`) are empty unless `keep`.
    """
    launch = _Launch(x, x.shape[1] - skip, filters)
    y = x.new_empty(x.shape[0], launch.time, *x.shape[2:])
    with torch.cuda.device_of(x):
        states = launch.states(x[:, skip:], sums, reverse=False)
        launch.outputs(x[:, skip:], states, y, skip, reverse=False)
    return y, states[-1].clone(), states if keep else states.new_empty(0, *states.shape[1:])


def gradient(
    g: Float[Tensor, "b t h c"],
    final: Float[Tensor, "b r h c"] | None,
    x: Float[Tensor, "b s h c"] | None,
    states: Float[Tensor, "slots b r h c"] | None,
    filters: Filter,
    skip: int,
    need_x: bool,
) -> Gradients:
    """Return the gradients, from those of the outputs (g) and of the final sums (final).

    x and states are needed for the gradients of the filters only.
    """
    launch = _Launch(g, g.shape[1], filters)
    dx = found = None
    with torch.cuda.device_of(g):
        after = launch.states(g, final, reverse=True)
        if need_x:
            dx = g.new_empty(g.shape[0], skip + launch.time, *g.shape[2:])
            launch.outputs(g, after, dx[:, skip:], skip, reverse=True)
        if x is not None and states is not None:
            found = launch.correlation(g, x[:, skip:].to(g.dtype), states, after, skip)
    return Gradients(dx, after[0].clone(), found)


def sums_before_chunks(
    x: Float[Tensor, "b t h c"], filters: Filter
) -> Float[Tensor, "slots b r h c"]:
    """Return the states that `forward` keeps, without the outputs."""
    with torch.cuda.device_of(x):
        return _Launch(x, x.shape[1], filters).states(x, None, reverse=False)
