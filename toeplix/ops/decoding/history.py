"""Decoding from a preallocated history: every step reads the whole receptive field. O(n) per step."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops.contraction import as_columns
from toeplix.ops.decoding.base import Decoder


class History(Decoder):
    """Keeps the inputs in one buffer, written in place; a step is one matrix-vector product.

    The kernel is stored reversed, so that its last taps are aligned with the last inputs and a slice
    suffices. If the horizon is None or longer than the kernel, the buffer holds twice the receptive
    field, and its contents are moved to the front once every n steps.
    """

    def _begin(self, past: Float[Tensor, "b p h c"]) -> None:
        taps = self.kernel.shape[1]
        past = past[:, max(0, past.shape[1] - taps + 1) :]
        bounded = self.horizon is not None and self.horizon <= taps
        capacity = past.shape[1] + self.horizon if bounded and self.horizon else 2 * taps - 1
        columns = self.batch * self.channels
        self._inputs = self.kernel.new_empty(self.heads, capacity, columns)
        self._inputs[:, : past.shape[1]] = as_columns(past)
        self._filled = past.shape[1]
        self._reversed = self.kernel.flip(-1)[:, None]

    @property
    def bytes(self) -> int:
        return self._inputs.nbytes

    def _select(self, rows: Int[Tensor, " r"]) -> None:
        self._inputs = self._inputs[..., self._columns(rows)]

    def _emit(self, u: Tensor, heads: slice) -> Tensor:
        self._inputs[heads, self._filled] = u[:, 0]
        reach = min(self._filled + 1, self.kernel.shape[1])
        seen = self._inputs[heads, self._filled + 1 - reach : self._filled + 1]
        return torch.bmm(self._reversed[heads, :, -reach:], seen)

    def _advance(self) -> None:
        self._filled += 1
        kept = self.kernel.shape[1] - 1
        if self._filled == self._inputs.shape[1] and (
            self.horizon is None or self.position + 1 < self.horizon
        ):
            # cloned, because source and target may overlap
            self._inputs[:, :kept] = self._inputs[:, self._filled - kept :].clone()
            self._filled = kept
