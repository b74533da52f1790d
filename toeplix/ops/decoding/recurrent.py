"""Decoding with recurrent filters: constant time and memory per decode step, whatever the length.

    sums[j] <- decays[j] * sums[j] + x[t]
    y[t]    =  sum over l < short of free[l] * x[t - l]  +  sum over j < r of weights[j] * sums[j]

A channel keeps short + r numbers: a ring of its last inputs, in which position t has the index t modulo
short, and the sums. Both are in one tensor, so what earlier inputs contribute to an output is one product
with a vector of short + r coefficients; there is one such vector for every rotation of the ring.

    y[t] = earlier[t] + lead * x[t],    lead = free[0] + sum over j < r of weights[j]

`earlier[t]` does not depend on x[t]. It is computed for the heads of all layers at once, and so are the
sums after the last of them: for few rows the number of calls decides how long a step takes.

The filters are invariant to shifts in time. A row that joins with a state of its own is therefore written
to the current rotation of the ring, and is decoded like any other row from then on. The rows are in a
buffer with spare capacity: joining and leaving copies single rows, and reallocates the buffer rarely.

On a GPU with Triton a step is one kernel for all rows (triton/recurrent_step.py). The position is then
counted on the device as well, so that captured steps can be replayed.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops.checks import check_past
from toeplix.ops.contraction import as_columns
from toeplix.ops.decoding.base import Decoder, moved_rows
from toeplix.ops.recurrent import (
    RecurrentState,
    check_filter,
    check_state,
    recurrent_kernel,
    toeplitz_recurrent,
)
from toeplix.ops.recurrent_autograd import check_decays
from toeplix.ops.recurrent_filter import Filter
from toeplix.ops.triton import supports
from toeplix.ops.triton.recurrent_step import MAX_ROWS, recurrent_step


class RecurrentDecoder(Decoder):
    """The decoding state of a product with recurrent filters, for ragged batches too.

    Rows are numbered in order of `append`; `select` keeps some. The state that steps work on is a view of
    the first rows of `_buffer`.

    Args:
        free: free taps of the filters, as for `toeplitz_recurrent`; filters of several layers may be
            stacked as heads (`emit`, `advance`).
        weights: of the decays.
        decays: in (0, 1].
        past: inputs before the first step (the prompt), `(b, p, h, c)`, where p may be 0; or the state
            after them, which `toeplitz_recurrent` returns.
        horizon: the maximum number of decode steps. None: no limit. The memory does not depend on it.

    >>> filters = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0]]), torch.tensor([0.5])
    >>> state = RecurrentDecoder(*filters, past=torch.zeros(1, 0, 1, 1))
    >>> [state.step(torch.tensor([[[v]]])).item() for v in (1.0, 0.0, 0.0, 10.0)]
    [2.0, 1.5, 0.25, 20.125]
    """

    _earlier: Tensor | None = None  # at the current position, of all heads

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
        decays = check_decays(decays).expand_as(weights)
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
        self._earlier = None
        self._reserve(self.batch + rows)
        self._view(self.batch + rows)
        new = self._state[..., before:]
        if self.short:
            # the last input is one position before the next, whose place is cleared
            age = torch.arange(self.short, device=new.device)
            places = ((self._clock if self._fused else self.position) - age) % self.short
            recent = torch.nn.functional.pad(as_columns(state.recent), (0, 0, 0, 1))
            new[:, places] = recent.flip(1).to(new.dtype)
        new[:, self.short :] = as_columns(state.sums)

    @torch.no_grad()
    def emit(self, x: Float[Tensor, "b f c"], first: int = 0) -> Float[Tensor, "b f c"]:
        if not self._fused:
            return super().emit(x, first)
        self._check(x, first)
        self._emitted.update(range(first, first + x.shape[1]))
        return recurrent_step(x, self._buffer, self._coefficients, self._decays, self._clock, first)

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
        self._decays = decays[..., None].contiguous()
        self._fused = supports(past) and 0 < self.short + self.rank <= MAX_ROWS
        self._clock = torch.zeros(1, dtype=torch.long, device=free.device)  # the position, if fused
        turns = torch.arange(max(1, self.short), device=free.device)
        # in rotation q the last input has index q, and the input at index i the lag (q - i) mod short
        lags = (turns[:, None] - torch.arange(self.short, device=free.device)) % max(1, self.short)
        near = free[:, lags] if self.short else free.new_zeros(self.heads, 1, 0)
        far = weights[:, None].expand(-1, len(turns), -1)
        if (
            not self._fused
        ):  # the newest input has a coefficient of its own, and the sums are a step behind
            near = near.masked_fill(lags == 0, 0)
            far = (weights * decays)[:, None].expand_as(far)
        self._coefficients = torch.cat([near, far], -1).transpose(0, 1)[:, :, None].contiguous()
        self._lead = (free[:, :1].sum(1) + weights.sum(1))[:, None, None]
        self._buffer = free.new_zeros(self.heads, self.short + self.rank, 1, self.channels)
        self._view(0)

    def _select(self, rows: Int[Tensor, " r"]) -> None:
        if len(moved := moved_rows(rows)):  # all sources are read before any place is written
            self._reserve(max(len(rows), self.batch))
            places, wanted = (each.to(self._buffer.device) for each in (moved, rows[moved]))
            self._buffer[:, :, places] = self._buffer[:, :, wanted]
        self._earlier = None
        self._reserve(len(rows))
        self._view(len(rows))

    def _emit(self, u: Tensor, heads: slice) -> Tensor:
        turn = self.position % max(1, self.short)
        if self._earlier is None:
            self._earlier = torch.bmm(self._coefficients[turn], self._state)
        if self.short:
            self._state[heads, turn] = u[:, 0]
        else:
            self._state[heads].mul_(self._decays[heads]).add_(u)
        return torch.addcmul(self._earlier[heads], u, self._lead[heads])

    def _advance(self) -> None:
        """Count the position; without the kernel, add the inputs of all heads to their sums."""
        if self._fused:
            self._clock += 1
            return
        self._earlier = None
        if self.short:
            newest = self._state[:, self.position % self.short, None]
            torch.addcmul(newest, self._sums, self._decays, out=self._sums)
            self._state[:, (self.position + 1) % self.short].zero_()

    def _view(self, rows: int) -> None:
        """Set the batch size, and the state to a view of the first rows of the buffer."""
        self.batch = rows
        self._state = self._buffer[:, :, :rows].flatten(2)
        self._sums = self._state[:, self.short :]

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
