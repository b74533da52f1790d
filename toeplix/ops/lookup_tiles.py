"""Lookup by block rows: the tiles of `(Q K^T * T) V` on and below the diagonal, a few rows at a time.

The m positions of a block row see the keys up to its last position, at most n - 1 before its first (n
taps). As T is Toeplitz, all block rows read one panel, each the columns that end at its last position:

    panel[h, a, j] = kernel[h, a - j + w - m]        w columns; 0 where the lag is negative or n and more
    P_i = Q_i K^T * panel        y_i = P_i V

Backward computes P_i again. With D_i = g_i V^T, all gradients are products with tiles of these sizes:

    dV = P_i^T g_i                dpanel = D_i * Q_i K^T
    dQ_i = (D_i * panel) K        dK = (D_i * panel)^T Q_i

Arrays are head-major, (b, h, t, .) and contiguous. A few rows of the batch are computed at a time, so
that their tiles stay in the cache. Later positions meet zeros only: causality is exact for finite inputs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops.contraction import diagonal_sums

TILE = 64  # positions of a block row
# numbers of one block row that are computed together; on a CPU they stay in the cache
PIECE_ELEMENTS = {"cpu": 2**18, "cuda": 2**25}


class Gradients(NamedTuple):
    """The gradients of queries, keys, values and taps."""

    q: Tensor
    k: Tensor
    v: Tensor
    kernel: Tensor | None


class _Row(NamedTuple):
    """Queries `first .. last` and keys `begin .. end`, and the columns of the panel between them."""

    first: int
    last: int
    begin: int
    end: int
    columns: slice


class _Tiles:
    """Divides a lookup into block rows, and the batch into rows that are computed together."""

    def __init__(self, q: Tensor, k: Tensor, kernel: Tensor) -> None:
        batch, self.heads, time, _ = q.shape
        before, taps = k.shape[2] - time, kernel.shape[1]
        tile = min(TILE, time)
        width = min(taps + tile - 1, -(-time // tile) * tile + before)
        self.rows = []
        for first in range(0, time, tile):
            last = min(first + tile, time)
            begin, end = max(0, before + first - taps + 1), before + last
            stop = width - tile + last - first
            self.rows.append(_Row(first, last, begin, end, slice(stop - end + begin, stop)))
        self.shape = (tile, width)
        # lags from 1 - m to w - 1; a row of the panel is a window of w of them, reversed
        used = kernel[:, :width]
        rising = torch.nn.functional.pad(used, (tile - 1, width - used.shape[1]))
        self.panel = rising.unfold(-1, width, 1).flip(-1).contiguous()
        limit = PIECE_ELEMENTS.get(q.device.type, PIECE_ELEMENTS["cpu"])
        self.count = max(1, limit // max(1, self.heads * tile * width))
        self.batch = batch

    def pieces(self) -> Iterator[slice]:
        for first in range(0, self.batch, self.count):
            yield slice(first, min(first + self.count, self.batch))

    def scores(self, q: Tensor, k: Tensor, row: _Row) -> Tensor:
        """Return `Q_i K^T` as `(b h, rows, columns)`."""
        queries, keys = q[:, :, row.first : row.last], k[:, :, row.begin : row.end]
        return torch.bmm(queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))

    def weigh(self, scores: Tensor, row: _Row, out: Tensor | None = None) -> Tensor:
        """Multiply by the panel, into `out` or in place."""
        panel = self.panel[:, : row.last - row.first, row.columns]
        grouped = scores.unflatten(0, (-1, self.heads))
        target = grouped if out is None else out.unflatten(0, (-1, self.heads))
        torch.mul(grouped, panel, out=target)
        return scores if out is None else out


def forward(
    q: Float[Tensor, "b h t e"],
    k: Float[Tensor, "b h s e"],
    v: Float[Tensor, "b h s c"],
    kernel: Float[Tensor, "h n"],
    y: Float[Tensor, "b t h c"],
) -> None:
    """Write the outputs of the last t of s positions to y."""
    tiles = _Tiles(q, k, kernel)
    for rows in tiles.pieces():
        for row in tiles.rows:
            scores = tiles.weigh(tiles.scores(q[rows], k[rows], row), row)
            values = v[rows, :, row.begin : row.end].flatten(0, 1)
            found = torch.bmm(scores, values).unflatten(0, (-1, tiles.heads))
            y[rows, row.first : row.last].copy_(found.transpose(1, 2))


def gradient(
    g: Float[Tensor, "b h t c"],
    q: Float[Tensor, "b h t e"],
    k: Float[Tensor, "b h s e"],
    v: Float[Tensor, "b h s c"],
    kernel: Float[Tensor, "h n"],
    need_kernel: bool,
) -> Gradients:
    tiles = _Tiles(q, k, kernel)
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dpanel = q.new_zeros(tiles.heads, *tiles.shape) if need_kernel else None
    for rows in tiles.pieces():
        for row in tiles.rows:
            seen = slice(row.begin, row.end)
            queries, upper = (part[rows, :, row.first : row.last].flatten(0, 1) for part in (q, g))
            keys, values = (part[rows, :, seen].flatten(0, 1) for part in (k, v))
            scores = torch.bmm(queries, keys.transpose(1, 2))
            slopes = torch.bmm(upper, values.transpose(1, 2))  # D_i
            work = torch.empty_like(scores)
            if dpanel is not None:
                torch.mul(scores, slopes, out=work)
                part = work.unflatten(0, (-1, tiles.heads)).sum(0)
                dpanel[:, : row.last - row.first, row.columns] += part
            weighed = tiles.weigh(scores, row, work)
            _add(dv[rows, :, seen], torch.bmm(weighed.transpose(1, 2), upper))
            slopes = tiles.weigh(slopes, row)
            found = torch.bmm(slopes, keys).unflatten(0, (-1, tiles.heads))
            dq[rows, :, row.first : row.last] = found
            _add(dk[rows, :, seen], torch.bmm(slopes.transpose(1, 2), queries))
    if dpanel is None:
        return Gradients(dq, dk, dv, None)
    tile, _ = tiles.shape
    # panel[a, j] has lag a - j + w - m, so lag 0 is the diagonal with a - j = m - w
    taps = diagonal_sums(dpanel)[:, tile - 1 :][:, : kernel.shape[1]]
    return Gradients(
        dq, dk, dv, torch.nn.functional.pad(taps, (0, kernel.shape[1] - taps.shape[1]))
    )


def _add(total: Float[Tensor, "b h s c"], part: Float[Tensor, "bh s c"]) -> None:
    total += part.unflatten(0, total.shape[:2])
