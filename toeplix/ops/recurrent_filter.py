"""Recurrent filters as the matrices of one chunk, and the gradients of these back to the parameters.

    w[l] = free[l] (l < short) + sum over j < r of weights[j] * decays[j]^l

See chunked.py for the letters (B, C, L, N, P). Powers are computed in float64 and rounded once: decays
near 1 keep their digits, and no power overflows.
"""

from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import contraction
from toeplix.ops.continuation import rectangle

CHUNK_LENGTH = 64  # positions in a chunk ...
SHORT_CHUNK_LENGTH = 32  # ... and if the input is small, as building the matrices then dominates
MIN_INPUTS = 2**17  # inputs of one head from which chunks are long


def chunk_size(short: int, inputs: int) -> int:
    """Return the positions in a chunk: the free taps must not read beyond the chunk before it.

    `inputs` is the number of inputs of one head: batch times time times channels.
    """
    return max(CHUNK_LENGTH if inputs >= MIN_INPUTS else SHORT_CHUNK_LENGTH, short)


class Filter(NamedTuple):
    """The parameters of the filters of all heads, in float64."""

    free: Float[Tensor, "h short"]
    weights: Float[Tensor, "h r"]
    decays: Float[Tensor, "h r"]

    @property
    def rank(self) -> int:
        return self.weights.shape[1]

    @property
    def reach(self) -> int:
        """The number of positions before a chunk that the free taps read (e)."""
        return max(0, self.free.shape[1] - 1)

    def powers(self, count: int) -> Float[Tensor, "h r count"]:
        exponents = torch.arange(count, dtype=torch.float64, device=self.decays.device)
        return self.decays[..., None] ** exponents

    def taps(self, time: int) -> Float[Tensor, "h time"]:
        tail = (self.weights[:, None] @ self.powers(time))[:, 0]
        short = min(time, self.free.shape[1])
        tail[:, :short] += self.free[:, :short]
        return tail


class Matrices:
    """The matrices that multiply the buffer of a piece, with chunks of m positions."""

    def __init__(self, filters: Filter, size: int, dtype: torch.dtype) -> None:
        self.filters, self.size, self.dtype = filters, size, dtype
        self.rank, self.reach = filters.rank, filters.reach
        powers = filters.powers(size + 1)
        self.gather = _rounded(powers[..., :size].flip(-1), dtype)  # B
        self.spread = _rounded(powers[..., 1:] * filters.weights[..., None], dtype)  # C^T
        self._decays: dict[int, Tensor] = {}

    @cached_property
    def before(self) -> Float[Tensor, "h m e"]:
        """P."""
        free = _rounded(self.filters.free, self.dtype)
        if self.reach == 0:
            return free.new_zeros(len(free), self.size, 0)
        return rectangle(free, self.reach, self.size)

    @cached_property
    def product(self) -> Float[Tensor, "h m rem"]:
        """`[C P L]`."""
        return torch.cat([self.spread.transpose(1, 2), self.before, self._rising().flip(-1)], -1)

    @cached_property
    def mirror(self) -> Float[Tensor, "h m rme"]:
        """`[B^T L^T N]`."""
        after = self.before.new_zeros(self.before.shape)
        after[:, self.size - self.reach :] = self.before[:, : self.reach].transpose(1, 2)
        return torch.cat([self.gather.transpose(1, 2), self._rising().flip(1), after], -1)

    def _rising(self) -> Float[Tensor, "h m m"]:
        """`[a, s] = w[a + s - m + 1]`: read backwards along one axis it is L, along the other L^T."""
        taps = _rounded(self.filters.taps(self.size), self.dtype)
        return torch.nn.functional.pad(taps, (self.size - 1, 0)).unfold(-1, self.size, 1)

    def decay(self, positions: int) -> Float[Tensor, "h r 1 1 1"]:
        """Return the factor of a sum after this number of positions."""
        if positions not in self._decays:
            power = _rounded(self.filters.decays**positions, self.dtype)
            self._decays[positions] = power[..., None, None, None]
        return self._decays[positions]


def _rounded(table: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the table in the working precision; subnormal numbers, which are slow, become 0."""
    table = table.to(dtype)
    return table.masked_fill(table.abs() < torch.finfo(dtype).tiny, 0)


class Correlation:
    """Collects `[A; g] [S; v; u]^T` over pieces, and maps it to the parameters."""

    def __init__(self, matrices: Matrices) -> None:
        self.matrices = matrices
        self._sums: dict[int, Tensor] = {}  # by the size of chunks: whole ones, and the tail

    def add(self, g: Tensor, x: Tensor, size: int, heads: slice) -> None:
        """Add one piece, with chunks of `size` positions."""
        if size not in self._sums:
            total = len(self.matrices.filters.free)
            self._sums[size] = g.new_zeros(total, g.shape[1], x.shape[1])
        sums = self._sums[size][heads]
        if len(g) == 1:
            sums[0].addmm_(g[0].flatten(1), x[0].flatten(1).t())
        else:
            sums.baddbmm_(g.flatten(2), x.flatten(2).transpose(1, 2))

    def put(self, sums: Float[Tensor, "h rows columns"], size: int) -> None:
        """Set the sum over all chunks of `size` positions."""
        self._sums[size] = sums

    def parameters(self) -> Filter:
        """Return the gradients of all parameters."""
        free, weights, decays = self.matrices.filters
        dfree, dweights, ddecays = (torch.zeros_like(part) for part in (free, weights, decays))
        for size, sums in self._sums.items():
            rank, near = self.matrices.rank, self.matrices.rank + self.matrices.reach
            # by matrices: of C, P, L in the rows of g, of B and of the decay in those of A
            spread, before, local = sums[:, rank:].tensor_split((rank, near), -1)
            kept, _, gather = sums[:, :rank].tensor_split((rank, near), -1)
            taps = contraction.diagonal_sums(local)[:, size - 1 :].double()  # lags 0 .. m - 1
            short = min(size, free.shape[1])
            dfree[:, :short] += taps[:, :short]
            if before.shape[2]:  # before[a, i] holds lag a + e - i: lags from 1 on
                lags = contraction.diagonal_sums(before)[:, : free.shape[1] - 1]
                dfree[:, 1 : 1 + lags.shape[1]] += lags
            spread, kept = spread.transpose(1, 2), kept.diagonal(dim1=1, dim2=2)
            found = power_gradients(self.matrices.filters, taps, spread, gather, kept)
            dweights += found[0]
            ddecays += found[1]
        return Filter(dfree, dweights, ddecays)


def power_gradients(
    filters: Filter,
    taps: Float[Tensor, "h m"],
    spread: Float[Tensor, "h r m"],
    gather: Float[Tensor, "h r m"],
    kept: Float[Tensor, "h r"],
) -> tuple[Float[Tensor, "h r"], Float[Tensor, "h r"]]:
    """Return the gradients of weights and decays, from those of L (by lag), C^T, B and decays^m."""
    size = taps.shape[1]
    # a tap and an entry of C are weights times powers, an entry of B is a power
    powers = filters.powers(size + 1)
    dpowers = torch.zeros_like(powers)
    dpowers[..., :size] = taps[:, None]
    dpowers[..., 1:] += spread
    dweights = (dpowers * powers).sum(-1)
    dpowers *= filters.weights[..., None]
    dpowers[..., :size] += gather.flip(-1)
    dpowers[..., size] += kept
    exponents = torch.arange(1, size + 1, dtype=torch.float64, device=powers.device)
    return dweights, (dpowers[..., 1:] * powers[..., :-1] * exponents).sum(-1)
