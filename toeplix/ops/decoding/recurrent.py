"""Decoding with recurrent filters: constant time and memory per decode step, whatever the length.

    sums[j] <- decays[j] * sums[j] + x[t]
    y[t]    =  sum over l < short of free[l] * x[t - l]  +  sum over j < r of weights[j] * sums[j]

A channel keeps short + r numbers: a ring of its last inputs, in which position t has the index t modulo
short, and the sums. Both are in one tensor, so an output is one product with a vector of short + r
coefficients; there is one such vector for every rotation of the ring.

The filters are invariant to shifts in time. A row that joins with a state of its own is therefore written
to the current rotation of the ring, and is decoded like any other row from then on. The rows are in a
buffer with spare capacity: joining and leaving copies single rows, and reallocates the buffer rarely.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops.checks import check_past
from toeplix.ops.contraction import as_columns
from toeplix.ops.decoding.base import Decoder
from toeplix.ops.recurrent import (
    RecurrentState,
    check_filter,
    check_state,
    recurrent_kernel,
    toeplitz_recurrent,
)
from toeplix.ops.recurrent_autograd import check_decays
from toeplix.ops.recurrent_filter import Filter


class RecurrentDecoder(Decoder):
    """The decoding state of a product with recurrent filters, for ragged batches too.

    Rows are numbered in order of `append`; `select` keeps some. The state that steps work on is a view of
    the first rows of `_buffer`.

    Args:
        free, weights, decays: the filters, as for `toeplitz_recurrent`; those of several layers may be
            stacked as heads (`emit`, `advance`).
        past: inputs before the first step (the prompt), `(b, p, h, c)`, where p may be 0; or the state
            after them, which `toeplitz_recurrent` returns.
        horizon: the maximum number of decode steps. None: no limit. The memory does not depend on it.

    >>> filters = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0]]), torch.tensor([0.5])
    >>> state = RecurrentDecoder(*filters, past=torch.zeros(1, 0, 1, 1))
    >>> [state.step(torch.tensor([[[v]]])).item() for v in (1.0, 0.0, 0.0, 10.0)]
    [2.0, 1.5, 0.25, 20.125]
    """

    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(
        self,
        free: Float[Tensor, "h short"],
        weights: Float[Tensor, "h r"],
        decays: Float[Tensor, "#h r"] | Float[Tensor, " r"],
        past: Float[Tensor, "b p h c"] | RecurrentState,
        horizon: int | None = None,
    ) -> None:
        check_filter(free, weights, decays)
        check_decays(decays)
        decays = decays.expand_as(weights)
        # training may change the originals
        self.filters = Filter(*(each.detach().clone() for each in (free, weights, decays)))
        self.short, self.rank = free.shape[1], weights.shape[1]
        kernel = recurrent_kernel(*self.filters, max(1, self.short))
        if isinstance(past, RecurrentState):
            one_row = past.recent.new_zeros(1, 0, *past.sums.shape[2:])
        else:
            check_past(kernel, past)
            one_row = past.new_zeros(1, 0, *past.shape[2:])
        super().__init__(kernel, one_row, horizon)
        self.append(past)

    @torch.inference_mode(False)
    @torch.no_grad()
    def append(self, past: Float[Tensor, "b p h c"] | RecurrentState) -> None:
        """Append rows, with their prompts (of equal lengths in one call) or the state after these."""
        if self._emitted:
            raise ValueError(f"position {self.position} is open: advance before rows join")
        state = past if isinstance(past, RecurrentState) else self._prefill(past)
        reach, rows = max(0, self.short - 1), len(state.sums)
        check_state(state, reach, self.rank, (rows, self.heads, self.channels))
        before = self.batch * self.channels
        self._reserve(self.batch + rows)
        self._view(self.batch + rows)
        new = self._state[..., before:]
        for age in range(reach):  # the last input has age 0 and is one position before the next
            place = (self.position - 1 - age) % self.short
            new[:, place] = as_columns(state.recent[:, reach - 1 - age :][:, :1])[:, 0]
        if self.short:
            new[:, self.position % self.short] = 0  # the place of the next input
        new[:, self.short :] = as_columns(state.sums)

    @property
    def bytes(self) -> int:
        return self._buffer.nbytes

    def _prefill(self, past: Tensor) -> RecurrentState:
        """Return the state after a prompt, which may be empty."""
        check_past(self.kernel, past)
        if past.shape[1] == 0:
            batch, _, *rest = past.shape
            recent = self.kernel.new_zeros(batch, max(0, self.short - 1), *rest)
            return RecurrentState(recent, self.kernel.new_zeros(batch, self.rank, *rest))
        return toeplitz_recurrent(past.to(self.kernel.dtype), *self.filters)[1]

    def _begin(self, past: Float[Tensor, "b p h c"]) -> None:
        free, weights, decays = (each.to(self.kernel.dtype) for each in self.filters)
        self._decays = decays[..., None]
        turns = torch.arange(max(1, self.short), device=free.device)
        # in rotation q the last input has index q, and the input at index i the lag (q - i) mod short
        lags = (turns[:, None] - torch.arange(self.short, device=free.device)) % max(1, self.short)
        near = free[:, lags] if self.short else free.new_zeros(self.heads, 1, 0)
        far = weights[:, None].expand(-1, len(turns), -1)
        self._coefficients = torch.cat([near, far], -1).transpose(0, 1)[:, :, None].contiguous()
        self._buffer = free.new_zeros(self.heads, self.short + self.rank, 1, self.channels)
        self._view(0)

    def _select(self, rows: Int[Tensor, " r"]) -> None:
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
        if len(moved):  # all sources are read before any place is written
            self._reserve(max(len(rows), self.batch))
            self._buffer[:, :, moved] = self._buffer[:, :, rows[moved]]
        self._reserve(len(rows))
        self._view(len(rows))

    def _emit(self, u: Tensor, heads: slice) -> Tensor:
        turn = self.position % max(1, self.short)
        state = self._state[heads]
        if self.short:
            state[:, turn] = u[:, 0]
        state[:, self.short :].mul_(self._decays[heads]).add_(u)
        return torch.bmm(self._coefficients[turn, heads], state)

    def _advance(self) -> None:
        """Do nothing: the next output needs only what is stored already."""

    def _view(self, rows: int) -> None:
        """Set the batch size, and the state to a view of the first rows of the buffer."""
        self.batch = rows
        self._state = self._buffer[:, :, :rows].flatten(2)

    def _reserve(self, rows: int) -> None:
        """Reallocate the buffer so that its capacity is between `rows` and four times `rows`."""
        old = self._buffer
        capacity = old.shape[2]
        while capacity < rows:
            capacity *= 2
        while capacity > 4 * max(1, rows):
            capacity //= 2
        if capacity != old.shape[2]:
            kept = min(capacity, old.shape[2])
            self._buffer = old.new_zeros(*old.shape[:2], capacity, self.channels)
            self._buffer[:, :, :kept] = old[:, :, :kept]
