"""Decoding ragged batches: rows join and leave at any step, each at its own position.

A causal Toeplitz product is invariant to shifts in time, so a row may start at any position of the time
axis of an `Online` decoder. If it joins at position q with a prompt of p positions (`past`),

    ahead[q + j] = sum over s < p of kernel[p + j - s] * past[s]      j = 0 .. max_new_tokens - 1

is the whole contribution of its prompt, and its columns of `recent` and `behind` are zero, so tiles with
inputs before q add nothing to it. From then on it is decoded like any other row.

`max_new_tokens` is the maximum number of decode steps of a row. Larger lags occur only between a prompt
and the positions of its row, and these are computed when the row joins. The decoder itself therefore
needs only the first `max_new_tokens` taps, and the memory of a row is proportional to the shorter of
kernel and `max_new_tokens`. The columns of all rows are in buffers with spare capacity: joining and
leaving moves the columns of single rows, and reallocates the buffers rarely.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops.checks import check_horizon, check_kernel, check_past
from toeplix.ops.continuation import carry
from toeplix.ops.contraction import as_columns
from toeplix.ops.decoding.base import moved_rows
from toeplix.ops.decoding.online import Online
from toeplix.ops.paths import full_precision


class RaggedDecoder(Online):
    """The ragged decoder of this module. Rows are numbered in order of `append`; `select` keeps some.

    The state that steps work on is a view of the first columns of `_buffers`.
    """

    def __init__(
        self, kernel: Float[Tensor, "h n"], past: Float[Tensor, "b p h c"], max_new_tokens: int
    ) -> None:
        check_kernel(kernel)
        check_past(kernel, past)
        check_horizon(max_new_tokens, "max_new_tokens")
        self.max_new_tokens = max_new_tokens
        super().__init__(kernel[:, : max_new_tokens + 1], past.new_zeros(1, 0, *past.shape[2:]))
        self._whole = kernel.detach().to(self.kernel.dtype, copy=True)
        self._joined: list[int] = []  # the position at which each row joined
        self._buffers = self._rings  # with a capacity of one row
        self._view(0)
        self.append(past)

    @torch.inference_mode(False)
    @torch.no_grad()
    def append(self, past: Float[Tensor, "b p h c"]) -> None:
        """Append rows with their prompts `past`; the prompts of one call have equal lengths."""
        if self._emitted:
            raise ValueError(f"position {self.position} is open: advance before rows join")
        check_past(self.kernel, past)
        if past.shape[3] != self.channels:
            raise ValueError(
                f"past has {past.shape[3]} channels, rows have {self.channels}: they must agree"
            )
        before, after = self.batch * self.channels, (self.batch + len(past)) * self.channels
        self._joined += [self.position] * len(past)
        self._reserve(self.batch + len(past))
        self._view(self.batch + len(past))
        for ring in (self._rings.recent, self._rings.behind):
            ring[..., before:after] = 0
        positions = self._rings.ahead.shape[1]
        with full_precision(self.kernel.device):
            known = as_columns(carry(past.to(self.kernel.dtype), self._whole, positions))
        self._rings.ahead[..., before:after] = known.roll(self.position % positions, 1)

    @property
    def bytes(self) -> int:
        return self._buffers.nbytes

    def _select(self, rows: Int[Tensor, " r"]) -> None:
        self._settle()
        self._joined = [self._joined[row] for row in rows.tolist()]
        if len(moved := moved_rows(rows)):  # all sources are read before any place is written
            places, wanted = self._columns(moved), self._columns(rows[moved])
            self._reserve(max(len(rows), self.batch))
            for buffer in self._buffers:
                buffer[..., places] = buffer[..., wanted]
        self._reserve(len(rows))
        self._view(len(rows))

    def _check(self, x: Tensor, first: int) -> None:
        super()._check(x, first)
        longest = self.position - min(self._joined, default=self.position)
        if longest >= self.max_new_tokens and self.max_new_tokens + 1 < self._whole.shape[1]:
            raise ValueError(
                f"a row has been here for {longest} positions: at most "
                f"max_new_tokens={self.max_new_tokens} are decoded"
            )

    def _view(self, rows: int) -> None:
        """Set the batch size, and the state to a view of the first rows of the buffers."""
        self.batch = rows
        self._rings = self._buffers.columns(slice(rows * self.channels))

    def _reserve(self, rows: int) -> None:
        """Reallocate the buffers so that their capacity is between `rows` and four times `rows`."""
        if self.channels == 0:  # there are no columns to reserve
            return
        capacity = old = self._buffers.ahead.shape[2] // self.channels
        while capacity < rows:
            capacity *= 2
        while capacity > 4 * max(1, rows):
            capacity //= 2
        if capacity != old:
            self._buffers = self._buffers.resized(capacity * self.channels)
