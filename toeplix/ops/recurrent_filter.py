"""Recurrent filters as the matrices of one chunk, and the gradients of those back to the parameters.

    w[l] = free[l] (l < short) + sum over j < r of weights[j] * decays[j]^l

See chunked.py for the letters (B, C, L, N, P). Powers are computed in float64 and rounded once: decays
near 1 keep their digits, and no power overflows.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import contraction
from toeplix.ops.continuation import rectangle

CHUNK = 64


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
        """Positions before a chunk that the free part reads (e)."""
        return max(0, self.free.shape[1] - 1)

    @property
    def chunk(self) -> int:
        """Positions in a chunk: the free part must not read beyond the chunk before."""
        return max(CHUNK, self.free.shape[1])

    def chunks(self, time: int) -> int:
        return -(-time // self.chunk)

    def powers(self, count: int) -> Float[Tensor, "h r count"]:
        exponents = torch.arange(count, dtype=torch.float64, device=self.decays.device)
        return self.decays[..., None] ** exponents

    def taps(self, time: int) -> Float[Tensor, "h time"]:
        tail = (self.weights[:, None] @ self.powers(time))[:, 0]
        short = min(time, self.free.shape[1])
        tail[:, :short] += self.free[:, :short]
        return tail


class Matrices:
    """What multiplies the buffer of a piece: see the module for the letters."""

    def __init__(self, filters: Filter, dtype: torch.dtype) -> None:
        size, reach, rank = filters.chunk, filters.reach, filters.rank
        heads = len(filters.free)
        powers = filters.powers(size + 1)
        local = _rounded(filters.taps(size), dtype)
        free = _rounded(filters.free, dtype)
        self.size, self.reach, self.rank = size, reach, rank
        self._decays = filters.decays
        self.dtype = dtype
        self.gather = _rounded(powers[..., :size].flip(-1), dtype)  # B
        self.spread = _rounded(powers[..., 1:] * filters.weights[..., None], dtype)  # C^T
        lower = torch.nn.functional.pad(local, (size - 1, 0)).unfold(-1, size, 1).flip(-1)
        before = rectangle(free, reach, size) if reach else free.new_zeros(heads, size, 0)
        self.before = before  # P
        self.product = torch.cat([self.spread.transpose(1, 2), before, lower], -1)
        after = free.new_zeros(heads, size, reach)
        after[:, size - reach :] = before[:, :reach].transpose(1, 2)
        self.mirror = torch.cat([self.gather.transpose(1, 2), lower.transpose(1, 2), after], -1)

    def decay(self, positions: int) -> Float[Tensor, "h r 1 1 1"]:
        """What is left of a sum after so many positions."""
        return _rounded(self._decays**positions, self.dtype)[..., None, None, None]


def _rounded(table: Tensor, dtype: torch.dtype) -> Tensor:
    """In the working precision; powers below its smallest normal number, which are slow, become 0."""
    table = table.to(dtype)
    return table.masked_fill(table.abs() < torch.finfo(dtype).tiny, 0)


class Correlation:
    """Collects `[A; g] [S; v; u]^T` over pieces, and maps it to the parameters."""

    def __init__(self, filters: Filter, dtype: torch.dtype) -> None:
        self.filters = filters
        size, reach, rank = filters.chunk, filters.reach, filters.rank
        heads = len(filters.free)
        device = filters.free.device
        self.product = torch.zeros(heads, size, rank + reach + size, dtype=dtype, device=device)
        self.gather = torch.zeros(heads, rank, size, dtype=dtype, device=device)
        self.decays = torch.zeros(heads, rank, dtype=torch.float64, device=device)

    def add(self, g: Tensor, x: Tensor, size: int, heads: slice) -> None:
        """One piece, of chunks of `size` positions."""
        rank = self.filters.rank
        if len(g) == 1:
            sums = torch.mm(g[0].flatten(1), x[0].flatten(1).t())[None]
        else:
            sums = torch.bmm(g.flatten(2), x.flatten(2).transpose(1, 2))
        self.product[heads, :size, : sums.shape[2]] += sums[:, rank:]
        self.gather[heads, :, self.filters.chunk - size :] += sums[:, :rank, sums.shape[2] - size :]
        kept = sums[:, :rank, :rank].diagonal(dim1=1, dim2=2).double()
        self.decays[heads] += size * self.filters.decays[heads] ** (size - 1) * kept

    def parameters(self) -> Filter:
        free, weights, _ = self.filters
        size, reach, rank = self.filters.chunk, self.filters.reach, self.filters.rank
        powers = self.filters.powers(size + 1)
        spread = self.product[..., :rank].double().transpose(1, 2)
        before = self.product[..., rank : rank + reach].double()
        local = contraction.diagonal_sums(self.product[..., rank + reach :].double())
        local = local[:, size - 1 :]  # lags 0 .. m - 1
        short = free.shape[1]
        dfree = local[:, :short].clone()
        if reach:  # before[a, i] holds lag a + e - i: lags from 1 on
            dfree[:, 1:] += contraction.diagonal_sums(before)[:, :reach]
        # a tap and an entry of C are weights times powers
        dpowers = torch.zeros_like(powers)
        dpowers[..., :size] = local[:, None]
        dpowers[..., 1:] += spread
        dweights = (dpowers * powers).sum(-1)
        dpowers = dpowers * weights[..., None]
        dpowers[..., :size] += self.gather.double().flip(-1)
        exponents = torch.arange(size + 1, dtype=torch.float64, device=powers.device)
        slope = torch.nn.functional.pad(powers[..., :-1], (1, 0)) * exponents
        return Filter(dfree, dweights, self.decays + (dpowers * slope).sum(-1))
