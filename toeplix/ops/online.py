"""Exact near-linear decoding: relaxed convolution, O(log^2 n) per position and channel, amortised.

One buffer Z holds, ahead of the present position, what the inputs so far contribute to future
outputs, and behind it the inputs themselves. At position i, u being its input:

    y_i = Z[i] + sum of kernel[i - j] u_j over the inputs j of the same leaf of `LEAF` positions
    Z[i] <- u_i
    at the end of a leaf, with P the lowest set bit of i + 1:
        Z[i+1 : i+1+P] += Toeplitz(kernel[P + a - b]) @ Z[i+1-P : i+1]        (a tile)

Every pair of an input and a later output meets in exactly one leaf or tile, and each tile starts
when its last input is there: the result is that of the whole product, to rounding. A tile is a
matmul for all channels, heads and layers together, since one filter serves them, and an
FFT (spectra kept) once it is large.

After a prompt, its contribution to the positions ahead is put into Z in one go, and the prompt is
forgotten: memory depends on the horizon alone. When n taps have passed, the buffer starts again from
its last tile, so decoding may go on for ever, under the sliding-window rule of `windowed.py`.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops import fft
from toeplix.ops.carry import carry, rectangle
from toeplix.ops.contract import as_columns
from toeplix.ops.decoder import Decoder

LEAF = 32
MATMUL = 256  # largest tile that is multiplied as a matrix


class Online(Decoder):
    """See the module. `horizon` bounds the positions to come, and with them the memory."""

    def _begin(self, past: Float[Tensor, "b p h c"]) -> None:
        taps = self.kernel.shape[1]
        size = LEAF
        while size < min(taps, self.horizon or taps):
            size *= 2
        self._z = as_columns(carry(past, self.kernel, size)).contiguous()
        near = self.kernel[:, :LEAF]
        near = torch.nn.functional.pad(near, (0, LEAF - near.shape[1]))
        self._leaf = near.flip(-1)[:, None]  # the newest input meets the last entry
        self._tiles: dict[int, Tensor] = {}

    @property
    def bytes(self) -> int:
        return self._z.nbytes

    def _emit(self, u: Tensor, heads: slice) -> Tensor:
        place = self.position % self._z.shape[1]
        offset = place % LEAF
        present = self._z[heads, place : place + 1]
        y = torch.addcmul(present, self._leaf[heads, :, -1:], u)
        if offset:
            recent = self._z[heads, place - offset : place]
            y.baddbmm_(self._leaf[heads, :, LEAF - 1 - offset : LEAF - 1], recent)
        present.copy_(u)
        return y

    def _select(self, rows: Int[Tensor, " rows"]) -> None:
        self._z = self._rows(self._z, rows)

    def _advance(self) -> None:
        size = self._z.shape[1]
        end = self.position % size + 1
        if end % LEAF or (self.horizon is not None and self.position + 1 >= self.horizon):
            return
        if end == size:
            self._z.copy_(self._tile(self._z))
            return
        tile = end & -end
        self._z[:, end : end + tile] += self._tile(self._z[:, end - tile : end])

    def _tile(self, inputs: Float[Tensor, "h p columns"]) -> Float[Tensor, "h p columns"]:
        """What p inputs add to the p positions after them."""
        size = inputs.shape[1]
        if size <= MATMUL:
            if size not in self._tiles:
                self._tiles[size] = rectangle(self.kernel, size, size)
            return torch.bmm(self._tiles[size], inputs)
        rows = inputs.transpose(0, 1)[None]
        if size not in self._tiles:
            self._tiles[size] = fft.window_spectrum(rows, self.kernel, size, 2 * size)
        outputs = fft.window(rows, self.kernel, size, 2 * size, self._tiles[size])
        return outputs[0].transpose(0, 1)
