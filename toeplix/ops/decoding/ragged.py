"""Decoding ragged batches: rows join and leave at any step, each at its own position.

A causal Toeplitz product is invariant to shifts in time, so a row may start at any position of the time
axis of an `Online` decoder. If it joins at position q with a prompt of p positions (`past`),

    ahead[q + j] = sum over s < p of kernel[p + j - s] * past[s]      j = 0 .. life - 1

is the whole contribution of its prompt, and its columns of `recent` and `behind` are zero, so tiles with
inputs before q add nothing to it. From then on it is decoded like any other row.

`life` is the maximum number of decode steps of a row. Larger lags occur only between a prompt and the
positions of its row, and these are computed when the row joins. The decoder itself therefore needs only
the first `life` taps, and the memory of a row is proportional to the shorter of kernel and `life`. The
columns of all rows are in buffers with spare capacity: joining and leaving moves the columns of single
rows, and reallocates the buffers rarely.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops.checks import check_horizon, check_kernel, check_past
from toeplix.ops.continuation import carry
from toeplix.ops.contraction import as_columns
from toeplix.ops.decoding.online import Online
from toeplix.ops.paths import full_precision


class Rolling(Online):
    """The ragged decoder of this module. Rows are numbered in order of `join`; `select` keeps some."""

    def __init__(
        self, kernel: Float[Tensor, "h n"], past: Float[Tensor, "b p h c"], life: int
    ) -> None:
        check_kernel(kernel)
        check_past(kernel, past)
        check_horizon(life)
        self.life = life
        super().__init__(kernel[:, : life + 1], past.new_zeros(1, 0, *past.shape[2:]))
        self._whole = kernel.detach().to(self.kernel.dtype, copy=True)
        self._room = 1  # capacity of the buffers in rows
        self._joined: list[int] = []  # the position at which each row joined
        self._stores = {name: getattr(self, name) for name in ("_ahead", "_recent", "_behind")}
        self._look(0)
        self.join(past)

    @torch.inference_mode(False)
    @torch.no_grad()
    def join(self, past: Float[Tensor, "b p h c"]) -> None:
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
        self._make_room(self.batch + len(past))
        self._look(self.batch + len(past))
        for store in (self._recent, self._behind):
            store[..., before:after] = 0
        ring = self._ahead.shape[1]
        with full_precision(self.kernel.device):
            known = as_columns(carry(past.to(self.kernel.dtype), self._whole, ring))
        self._ahead[..., before:after] = known.roll(self.position % ring, 1)

    @property
    def bytes(self) -> int:
        return sum(store.nbytes for store in self._stores.values())

    def _select(self, rows: Int[Tensor, " r"]) -> None:
        self._settle()
        self._joined = [self._joined[row] for row in rows.tolist()]
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
        if len(moved):  # all sources are read before any place is written
            places, wanted = self._columns(moved), self._columns(rows[moved])
            self._make_room(max(len(rows), self.batch))
            for store in self._stores.values():
                store[..., places] = store[..., wanted]
        self._look(len(rows))
        self._make_room(len(rows))

    def _check(self, x: Tensor, first: int) -> None:
        super()._check(x, first)
        longest = self.position - min(self._joined, default=self.position)
        if longest >= self.life and self.life + 1 < self._whole.shape[1]:
            raise ValueError(f"a row has been here for {longest} positions, its whole life")

    def _look(self, rows: int) -> None:
        """Set the batch size, and the tensors of the state to views of the buffers' first rows."""
        self.batch = rows
        for name, store in self._stores.items():
            setattr(self, name, store[..., : rows * self.channels])

    def _make_room(self, rows: int) -> None:
        """Reallocate the buffers so that their capacity is between `rows` and four times `rows`."""
        room = self._room
        while room < rows:
            room *= 2
        while room > 4 * max(1, rows):
            room //= 2
        if room != self._room:
            kept = min(room, self._room) * self.channels
            for name, old in self._stores.items():
                new = old.new_zeros(*old.shape[:2], room * self.channels)
                new[..., :kept] = old[..., :kept]
                self._stores[name] = new
            self._room = room
            self._look(min(self.batch, room))
