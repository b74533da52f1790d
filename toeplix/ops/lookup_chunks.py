"""Lookup with recurrent filters in linear time: tiles inside chunks, r states of e x c between them.

    w[l] = sum over j < r of weights[j] * decays[j]^l

Time is divided into chunks of m positions. With S_n (r e rows, c columns) the sums before chunk n,

    y_n     = C(Q_n) S_n + (Q_n K_n^T * L) V_n     C(Q)[a, (j, i)] = weights[j] decays[j]^(a + 1) Q[a, i]
    S_{n+1} = decays^m S_n + B(K_n)^T V_n          B(K)[s, (j, i)] = decays[j]^(m - 1 - s) K[s, i]

and L[a, s] = w[a - s]. Backward runs from the last chunk to the first. With A_n the gradient of S_n and
g_n that of y_n,

    A_n = decays^m A_{n+1} + C(Q_n)^T g_n
    dC  = g_n S_n^T        dB = V_n A_{n+1}^T        dV_n = B(K_n) A_{n+1}

beside the gradients of the tiles (lookup_tiles.py). Several chunks are computed together (a piece).
Arrays are head-major, (b, h, t, .). Sums only move forward in time: causality is exact for finite inputs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops.contraction import diagonal_sums

CHUNK_LENGTH = 64
# numbers of a piece that are computed together; on a CPU they stay in the cache
PIECE_ELEMENTS = {"cpu": 2**19, "cuda": 2**25}


class Gradients(NamedTuple):
    """The gradients of queries, keys, values, weights and of the sums before the first position."""

    q: Tensor
    k: Tensor
    v: Tensor
    weights: Tensor
    sums: Tensor


class _Piece(NamedTuple):
    """`chunks` chunks of `size` positions, the first of which is chunk `number`."""

    first: int
    size: int
    chunks: int
    number: int

    def load(self, x: Float[Tensor, "b h t c"]) -> Float[Tensor, "b h chunks size c"]:
        part = x[:, :, self.first : self.first + self.size * self.chunks]
        return part.unflatten(2, (self.chunks, self.size))


class _Work:
    """The powers of the decays, and the pieces of a sequence."""

    def __init__(self, q: Tensor, v: Tensor, weights: Tensor, decays: Tensor) -> None:
        self.batch, self.heads, self.time, self.keys = q.shape
        self.weights, self.decays = weights.double(), decays.double()
        self.rank, self.channels = len(decays), v.shape[-1]
        self.size, self.dtype = min(CHUNK_LENGTH, self.time), q.dtype
        exponents = torch.arange(self.size + 1, device=q.device, dtype=torch.float64)
        self.powers = self.decays[:, None] ** exponents  # (r, m + 1)
        self.copies = torch.eye(self.keys, dtype=self.dtype, device=q.device).repeat(1, self.rank)
        wide = self.batch * self.heads * self.size * max(self.rank * self.keys, self.channels)
        limit = PIECE_ELEMENTS.get(q.device.type, PIECE_ELEMENTS["cpu"])
        self.count = max(1, limit // max(1, wide))

    def pieces(self) -> Iterator[_Piece]:
        """Yield pieces of several whole chunks; the remaining positions are one shorter chunk."""
        whole, rest = divmod(self.time, self.size)
        for number in range(0, whole, self.count):
            chunks = min(self.count, whole - number)
            yield _Piece(number * self.size, self.size, chunks, number)
        if rest:
            yield _Piece(whole * self.size, rest, 1, whole)

    def spread(self, size: int) -> Float[Tensor, "h 1 size re"]:
        """C without the queries."""
        table = self.weights[..., None] * self.powers[:, 1 : size + 1]
        return self._repeated(table.transpose(1, 2))[:, None]

    def gather(self, size: int) -> Float[Tensor, "size re"]:
        """B without the keys."""
        return self._repeated(self.powers[:, :size].flip(-1).t())

    def expand(self, x: Tensor) -> Tensor:
        """Return r copies of every query or key, (b, h, chunks, m, r e), as a product: that is fast."""
        return x @ self.copies

    def collapse(self, x: Tensor) -> Tensor:
        """Return the sums over the r copies: the transpose of `expand`."""
        return x @ self.copies.t()

    def _repeated(self, table: Float[Tensor, "*h size r"]) -> Float[Tensor, "*h size re"]:
        return self._rounded(table).repeat_interleave(self.keys, -1)

    def local(self, size: int) -> Float[Tensor, "h 1 size size"]:
        """L."""
        taps = self._rounded(self.weights @ self.powers[:, :size])
        rising = torch.nn.functional.pad(taps, (size - 1, 0))
        return rising.unfold(-1, size, 1).flip(-1).contiguous()[:, None]

    def decay(self, size: int) -> Float[Tensor, "re 1"]:
        return self._rounded(self.powers[:, size]).repeat_interleave(self.keys)[:, None]

    def _rounded(self, table: Tensor) -> Tensor:
        """Return the table in the working precision; subnormal numbers, which are slow, become 0."""
        table = table.to(self.dtype)
        return table.masked_fill(table.abs() < torch.finfo(self.dtype).tiny, 0)


def _bmm(a: Tensor, b: Tensor) -> Tensor:
    """Multiply (b, h, chunks, ., .) matrices."""
    return torch.bmm(a.flatten(0, 2), b.flatten(0, 2)).unflatten(0, a.shape[:3])


def forward(
    q: Float[Tensor, "b h t e"],
    k: Float[Tensor, "b h t e"],
    v: Float[Tensor, "b h t c"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, " r"],
    sums: Float[Tensor, "b h re c"] | None,
    y: Float[Tensor, "b t h c"],
    keep: bool,
) -> tuple[Float[Tensor, "b h re c"], Float[Tensor, "b h n re c"]]:
    """Write the outputs to y; return the sums after the last position and, if `keep`, before chunks."""
    work = _Work(q, v, weights, decays)
    shape = (work.batch, work.heads, work.rank * work.keys, work.channels)
    total = q.new_zeros(shape) if sums is None else sums
    chunks = -(-work.time // work.size) if keep else 0
    states = q.new_empty(*shape[:2], chunks, *shape[2:])
    for piece in work.pieces():
        queries, keys, values = (piece.load(part) for part in (q, k, v))
        size, decay = piece.size, work.decay(piece.size)
        added = _bmm(work.expand(keys).mul_(work.gather(size)).transpose(-1, -2), values)
        before = torch.empty_like(added)
        for number in range(piece.chunks):
            before[:, :, number] = total
            total = torch.addcmul(added[:, :, number], total, decay)
        if keep:
            states[:, :, piece.number : piece.number + piece.chunks] = before
        far = _bmm(work.expand(queries).mul_(work.spread(size)), before)
        tiles = _bmm(queries, keys.transpose(-1, -2)).mul_(work.local(size))
        found = far.flatten(0, 2).baddbmm_(tiles.flatten(0, 2), values.flatten(0, 2))
        found = found.unflatten(0, (work.batch, work.heads, piece.chunks)).flatten(2, 3)
        y[:, piece.first : piece.first + found.shape[2]].copy_(found.transpose(1, 2))
    return total, states


def gradient(
    g: Float[Tensor, "b h t c"],
    final: Float[Tensor, "b h re c"] | None,
    q: Float[Tensor, "b h t e"],
    k: Float[Tensor, "b h t e"],
    v: Float[Tensor, "b h t c"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, " r"],
    states: Float[Tensor, "b h n re c"],
) -> Gradients:
    """Return the gradients, from those of the outputs (g) and of the sums after the last position."""
    work = _Work(q, v, weights, decays)
    dq, dk, dv = (torch.empty_like(part) for part in (q, k, v))
    dweights = torch.zeros_like(work.weights)
    shape = (work.batch, work.heads, work.rank * work.keys, work.channels)
    later = q.new_zeros(shape) if final is None else final
    for piece in reversed(list(work.pieces())):
        upper, queries, keys, values = (piece.load(part) for part in (g, q, k, v))
        size, decay, local = piece.size, work.decay(piece.size), work.local(piece.size)
        spread, gather = work.spread(size), work.gather(size)
        before = states[:, :, piece.number : piece.number + piece.chunks]
        wide = work.expand(queries)
        added = _bmm((wide * spread).transpose(-1, -2), upper)
        after = torch.empty_like(added)  # A_{n+1}
        for number in reversed(range(piece.chunks)):
            after[:, :, number] = later
            later = torch.addcmul(added[:, :, number], later, decay)
        dspread = _bmm(upper, before.transpose(-1, -2))
        # an entry of C is a weight times a power, and so is a tap
        powers = work.powers[:, : size + 1]
        table = wide.mul_(dspread).sum((0, 2)).unflatten(-1, (work.rank, -1)).sum(-1).double()
        dweights += (table * powers[:, 1:].t()).sum(1)
        scores = _bmm(queries, keys.transpose(-1, -2))
        slopes = _bmm(upper, values.transpose(-1, -2))
        taps = diagonal_sums((scores * slopes).sum((0, 2)))[:, size - 1 :].double()
        dweights += taps @ powers[:, :size].t()
        weighed, slopes = scores.mul_(local), slopes.mul_(local)
        found = _bmm(work.expand(keys).mul_(gather), after).flatten(0, 2)
        found.baddbmm_(weighed.flatten(0, 2).transpose(1, 2), upper.flatten(0, 2))
        piece.load(dv).copy_(found.unflatten(0, after.shape[:3]))
        piece.load(dq).copy_(_bmm(slopes, keys) + work.collapse(dspread.mul_(spread)))
        dgather = _bmm(values, after.transpose(-1, -2)).mul_(gather)
        piece.load(dk).copy_(_bmm(slopes.transpose(-1, -2), queries) + work.collapse(dgather))
    return Gradients(dq, dk, dv, dweights, later)
