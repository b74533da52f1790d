"""The product with a recurrent filter in linear time: matmul tiles inside chunks, r sums between them.

    w[l] = free[l] (l < short) + sum over j < r of weights[j] * decays[j]^l

Time is divided into chunks of m positions. With S_n (r rows) the sums of a channel before chunk n,
u_n (m rows) the inputs of the chunk and v_n (e = short - 1 rows) the inputs just before it,

    y_n     = C S_n + P v_n + L u_n        C[a, j] = weights[j] decays[j]^(a + 1)
                                           P[a, i] = free[a + e - i],  L[a, s] = w[a - s]
    S_{n+1} = decays^m S_n + B u_n         B[j, s] = decays[j]^(m - 1 - s)

A piece is a few chunks of some rows and heads, copied to a buffer that stays in the cache; its
rows are `[S_n; v_n; u_n]`, so that `[C P L]` gives the outputs of all its chunks in one product. The
sums of a piece follow by doubling: after step k, a sum holds what the 2^k chunks before it add.

Backward runs through the pieces from the last to the first. With A_n the gradient of S_n, g_n that
of y_n and g_n' the e rows after it,

    A_n  = C^T g_n + decays^m A_{n+1}
    dx_n = B^T A_{n+1} + L^T g_n + N g_n'        N[s, a] = free[m + a - s]

and one product `[A_{n+1}; g_n] [S_n; v_n; u_n]^T`, summed over chunks and columns, holds the gradients
of all the matrices. Causality is exact for finite inputs: in L the future meets zeros, and sums only
move forward.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import contraction
from toeplix.ops.fft import slices
from toeplix.ops.recurrent_filter import Correlation, Filter, Matrices, chunk_size

PIECE_ELEMENTS = {"cpu": 2**19, "cuda": 2**25}  # elements of a piece; on a CPU it stays in cache
MAX_STAGED_CHANNELS = 16  # channels of a head up to which copies are staged
ROW_GAP = 16  # numbers between the rows of a staged copy, which otherwise share few cache sets
# minimum columns of one head in a piece, if there are as many, so that its matrices are read once
MIN_PIECE_COLUMNS = 256


class _Columns(NamedTuple):
    rows: slice
    heads: slice


class _Piece(NamedTuple):
    """Chunks `number .. number + chunks` of `size` positions each, the first at `first`."""

    first: int
    size: int
    chunks: int
    number: int

    @property
    def last(self) -> int:
        return self.first + self.size * self.chunks


class _Work:
    """Divides a `(b, t, h, c)` sequence into pieces and copies them to buffers and back."""

    def __init__(self, like: Tensor, time: int, matrices: Matrices) -> None:
        self.batch, _, self.heads, self.channels = like.shape
        self.time = time
        self.m = matrices
        self.device = like.device
        self._buffers: dict[tuple[object, ...], Tensor] = {}
        budget = PIECE_ELEMENTS.get(self.device.type, PIECE_ELEMENTS["cpu"]) // self.m.size
        wanted = min(MIN_PIECE_COLUMNS, self.batch * self.channels * max(1, time // self.m.size))
        self._heads = max(1, min(self.heads, budget // wanted))
        self._rows = max(1, min(self.batch, budget // (self._heads * self.channels)))
        self._count = max(1, budget // (self._heads * self._rows * self.channels))

    def columns(self) -> Iterator[_Columns]:
        for heads in slices(self.heads, self._heads):
            for rows in slices(self.batch, self._rows):
                yield _Columns(rows, heads)

    def pieces(self) -> list[_Piece]:
        """Return pieces of several whole chunks; the remaining positions are one shorter chunk."""
        size = self.m.size
        whole, rest = divmod(self.time, size)
        result = [
            _Piece(part.start * size, size, part.stop - part.start, part.start)
            for part in (slices(whole, self._count) if whole else ())
        ]
        if rest:
            result.append(_Piece(whole * size, rest, 1, whole))
        return result

    def space(self, name: str, rows: int, piece: _Piece, columns: _Columns) -> Tensor:
        """Return a buffer `(h, rows, chunks, b, c)`, which the next piece of this shape uses again."""
        heads = columns.heads.stop - columns.heads.start
        batch = columns.rows.stop - columns.rows.start
        shape = (heads, rows, piece.chunks, batch, self.channels)
        if (name, shape) not in self._buffers:
            self._buffers[name, shape] = torch.empty(shape, dtype=self.m.dtype, device=self.device)
        return self._buffers[name, shape]

    def _fetch(self, chunks: Tensor, out: Tensor) -> None:
        """Copy chunks to a buffer; heads of few channels are copied in their own layout first."""
        heads, size, count, batch, channels = chunks.shape
        if channels > MAX_STAGED_CHANNELS or heads == 1:
            out.copy_(chunks)
            return
        shape = (size, count, batch, heads * channels + ROW_GAP)
        if shape not in self._buffers:
            self._buffers[shape] = torch.empty(shape, dtype=self.m.dtype, device=self.device)
        stage = self._buffers[shape][..., :-ROW_GAP].unflatten(-1, (heads, channels))
        stage.copy_(chunks.permute(1, 2, 3, 0, 4))
        out.copy_(stage.permute(3, 0, 1, 2, 4))

    def load(self, x: Tensor, skip: int, piece: _Piece, columns: _Columns) -> Tensor:
        """Return `[S; v; u]` without the sums, which the caller writes to the first rows."""
        rank, reach = self.m.rank, self.m.reach
        buffer = self.space("x", rank + reach + piece.size, piece, columns)
        near = rank + reach
        self._fetch(_chunks(x, skip + piece.first, piece, columns), buffer[:, near:])
        if reach:
            buffer[:, rank:near, 1:].copy_(buffer[:, piece.size + rank :, :-1])
            first = skip + piece.first - reach
            if first >= 0:
                past = x[columns.rows, first : first + reach, columns.heads]
                buffer[:, rank:near, 0].copy_(past.permute(2, 1, 0, 3))
            else:  # the beginning: nothing was before, and skip is 0
                buffer[:, rank:near, 0] = 0
        return buffer

    def load_gradient(self, g: Tensor, piece: _Piece, columns: _Columns) -> Tensor:
        """Return `[A; g; g']` without A, which the caller writes to the first rows."""
        rank, reach = self.m.rank, self.m.reach
        buffer = self.space("g", rank + piece.size + reach, piece, columns)
        end = rank + piece.size
        self._fetch(_chunks(g, piece.first, piece, columns), buffer[:, rank:end])
        if reach:
            buffer[:, end:, :-1].copy_(buffer[:, rank : rank + reach, 1:])
            there = min(reach, self.time - piece.last)
            future = g[columns.rows, piece.last : piece.last + there, columns.heads]
            buffer[:, end : end + there, -1].copy_(future.permute(2, 1, 0, 3))
            buffer[:, end + there :, -1] = 0
        return buffer


def _chunks(x: Tensor, first: int, piece: _Piece, columns: _Columns) -> Tensor:
    """Return the positions of a piece as `(h, size, chunks, b, c)`."""
    part = x[columns.rows, first : first + piece.size * piece.chunks, columns.heads]
    return part.unflatten(1, (piece.chunks, piece.size)).permute(3, 2, 1, 0, 4)


def _multiply(matrix: Tensor, buffer: Tensor, out: Tensor) -> Tensor:
    """Compute `out[h] = matrix[h] @ buffer[h]`; the trailing axes of buffer and out are columns."""
    if len(matrix) == 1:
        torch.mm(matrix[0], buffer[0].flatten(1), out=out[0].flatten(1))
    else:
        torch.bmm(matrix, buffer.flatten(2), out=out.flatten(2))
    return out


def _scan(slots: Tensor, decay: Tensor) -> Tensor:
    """Compute `s[i] = slots[i] + decay * s[i - 1]` along the third axis in place, by doubling."""
    count, step = slots.shape[2], 1
    while step < count:
        moved = torch.addcmul(slots[:, :, step:], slots[:, :, :-step], decay)
        slots[:, :, step:] = moved
        decay = decay * decay
        step *= 2
    return slots


def _prepare(x: Tensor, time: int, filters: Filter, dtype: torch.dtype) -> tuple[Matrices, _Work]:
    batch, _, _, channels = x.shape
    m = Matrices(filters, chunk_size(filters.free.shape[1], batch * time * channels), dtype)
    return m, _Work(x, time, m)


def forward(
    x: Float[Tensor, "b s h c"],
    sums: Float[Tensor, "b r h c"] | None,
    filters: Filter,
    skip: int,
    dtype: torch.dtype,
    *,
    outputs: bool = True,
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs from position `skip` on, sums after the last position, and sums before every chunk.

    The first `skip` positions (0, or the reach of the free part) are part of `sums` already. Outputs are
    empty unless `outputs`, sums before the chunks, `(h, r, chunks, b, c)`, unless `keep`.
    """
    m, work = _prepare(x, x.shape[1] - skip, filters, dtype)
    pieces = work.pieces()
    y = x.new_empty(x.shape[0], work.time if outputs else 0, *x.shape[2:])
    chunks = -(-work.time // m.size) if keep else 0
    shape = (work.heads, m.rank, chunks, work.batch, work.channels)
    states = x.new_empty(shape, dtype=dtype)
    final = x.new_empty(work.heads, m.rank, work.batch, work.channels, dtype=dtype)
    for columns in work.columns():
        rows, heads = columns
        carry = final[heads, :, rows]
        carry.zero_() if sums is None else carry.copy_(sums[rows, :, heads].permute(2, 1, 0, 3))
        for piece in pieces:
            buffer = work.load(x, skip, piece, columns)
            if m.rank:
                added = work.space("added", m.rank, piece, columns)
                matrix = m.gather[heads, :, m.size - piece.size :]
                _multiply(matrix, buffer[:, m.rank + m.reach :], added)
                slots = torch.cat([carry[:, :, None], added], 2)
                _scan(slots, m.decay(piece.size)[heads])
                carry.copy_(slots[:, :, -1])
                buffer[:, : m.rank].copy_(slots[:, :, :-1])
                if keep:
                    chunk = slice(piece.number, piece.number + piece.chunks)
                    states[heads, :, chunk, rows] = slots[:, :, :-1]
            if outputs:
                matrix = m.product[heads, : piece.size, : m.rank + m.reach + piece.size]
                out = _multiply(matrix, buffer, work.space("y", piece.size, piece, columns))
                _chunks(y, piece.first, piece, columns).copy_(out)
    return y, final.permute(2, 1, 0, 3).contiguous(), states


class Gradients(NamedTuple):
    """The gradients; None where they were not requested."""

    x: Tensor | None
    sums: Tensor
    filters: Filter | None


def gradient(
    g: Float[Tensor, "b t h c"],
    final: Float[Tensor, "b r h c"] | None,
    x: Float[Tensor, "b s h c"] | None,
    states: Float[Tensor, "h r chunks b c"] | None,
    filters: Filter,
    skip: int,
    dtype: torch.dtype,
    need_x: bool,
) -> Gradients:
    """Return the gradients, from those of the outputs (g) and of the final sums (final).

    x and states are needed for the gradients of the filters only.
    """
    m, work = _prepare(g, g.shape[1], filters, dtype)
    pieces = work.pieces()
    dx = g.new_empty(work.batch, skip + work.time, *g.shape[2:]) if need_x else None
    dsums = g.new_empty(work.heads, m.rank, work.batch, work.channels, dtype=dtype)
    found = Correlation(m) if x is not None else None
    for columns in work.columns():
        rows, heads = columns
        carry = dsums[heads, :, rows]
        carry.zero_() if final is None else carry.copy_(final[rows, :, heads].permute(2, 1, 0, 3))
        for piece in reversed(pieces):
            buffer = work.load_gradient(g, piece, columns)
            if m.rank:
                added = work.space("added", m.rank, piece, columns)
                matrix = m.spread[heads, :, : piece.size]
                _multiply(matrix, buffer[:, m.rank : m.rank + piece.size], added)
                # time runs backwards: doubling from the last chunk to the first
                slots = torch.cat([carry[:, :, None], added.flip(2)], 2)
                _scan(slots, m.decay(piece.size)[heads])
                buffer[:, : m.rank].copy_(slots[:, :, :-1].flip(2))
                carry.copy_(slots[:, :, -1])
            if dx is not None:
                last = m.rank + piece.size
                matrix = m.mirror[heads, : piece.size]
                if piece.size < m.size:  # the tail: what follows it is empty, powers start later
                    matrix = torch.cat(
                        [
                            m.gather[heads, :, m.size - piece.size :].transpose(1, 2),
                            matrix[..., m.rank : last],
                        ],
                        -1,
                    )
                out = work.space("y", piece.size, piece, columns)
                _multiply(matrix, buffer[:, : matrix.shape[2]], out)
                _chunks(dx, skip + piece.first, piece, columns).copy_(out)
            if x is not None and states is not None and found is not None:
                seen = work.load(x, skip, piece, columns)
                chunk = slice(piece.number, piece.number + piece.chunks)
                seen[:, : m.rank].copy_(states[heads, :, chunk, rows])
                found.add(buffer[:, : m.rank + piece.size], seen, piece.size, heads)
    if dx is not None and skip:
        there = min(m.reach, work.time)
        near = m.before[:, :there].transpose(1, 2)
        contraction.apply(near, contraction.stack(g[:, :there].to(dtype)), dx[:, :skip])
    parameters = None if found is None else found.parameters()
    return Gradients(dx, dsums.permute(2, 1, 0, 3).contiguous(), parameters)
