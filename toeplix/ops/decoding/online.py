"""Exact near-linear decoding: O(log^2 n) per position and channel, with bounded latency of every step.

Time is divided into blocks of P = LEAF, 2 LEAF, 4 LEAF, ... positions. The product of an input and a
later output is computed

    directly    if their leaves are equal or neighbours: at most 2 LEAF products per step
    in a tile   otherwise, of the size P at which their blocks are not neighbours but the parents are

so every pair is computed exactly once, and the result is that of the whole product, to rounding. The
tiles of block a at size P contribute to block a + 2 and, if a is even, to a + 3:

    a even    a -> a+2, a+3          |  a  | a+1 | a+2 | a+3 |
    a odd     a -> a+2               |     |  a  | a+1 | a+2 |

The inputs of a tile are complete at the end of block a, and its outputs are not read before block a + 2,
so there are P steps to compute it. It is computed in pieces of about equal cost, spread evenly over
these steps, so that no single token has the latency of a large tile. A piece is a matmul over many
channels of many heads, since all channels of a head share one filter, or an FFT (with cached spectra) if
it is large.

The state has two ring buffers: `ahead`, the contributions of the inputs so far to later outputs, n
positions; and `behind`, the inputs that tiles still need, 2 P positions of the largest P. After prefill
the contribution of the prompt to later positions is added at once, and the prompt is not kept: memory
depends on the kernel or the horizon, whichever is shorter. The number of steps is not limited; beyond n
positions the sliding-window rule of `windowed.py` applies.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops import fft
from toeplix.ops.continuation import carry, rectangle
from toeplix.ops.contraction import as_columns
from toeplix.ops.decoding.base import Decoder
from toeplix.ops.paths import full_precision

LEAF = 32
MATMUL = 256  # largest tile that is multiplied as a matrix
PIECE_FLOPS = 2e8  # matmul FLOPs of one piece: one or two milliseconds on two CPU cores
PIECE_POINTS = 2**18  # transform points of one piece: about the same time
FEWEST_COLUMNS = 16  # minimum columns of a piece, below which transforms are inefficient
# Multiples of the golden ratio modulo 1 are well spread, so pieces of tiles of different sizes start at
# different fractions of their intervals and rarely fall on the same step.
GOLDEN = 0.618034


class _Part(NamedTuple):
    """Some columns of some heads."""

    heads: slice
    columns: slice


class _Tile(NamedTuple):
    """The contribution of inputs `first .. first + size` to `ahead` positions from `first + 2 size`."""

    size: int
    first: int
    ahead: int
    parts: list[_Part]
    done: int = 0

    @property
    def due(self) -> int:
        """The step after which the next piece is computed."""
        fraction = (GOLDEN * self.size.bit_length()) % 1
        return self.first + self.size + int((self.done + fraction) * self.size / len(self.parts))


class Rings(NamedTuple):
    """The tensors of the state, each `(h, positions, columns)`."""

    ahead: Tensor  # contributions of the inputs so far to later outputs, a ring of positions
    recent: Tensor  # the inputs of the last leaf and of the current one
    behind: Tensor  # inputs that tiles still need, a ring of positions

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self)

    def columns(self, which: slice | Int[Tensor, " columns"]) -> "Rings":
        """Return these columns: views for a slice, copies for a list of numbers."""
        return Rings(*(each[..., which] for each in self))

    def resized(self, columns: int) -> "Rings":
        """Return a copy with this number of columns, of which new ones are zero."""
        kept = min(columns, self.ahead.shape[2])
        copies = Rings(*(each.new_zeros(*each.shape[:2], columns) for each in self))
        for new, old in zip(copies, self, strict=True):
            new[..., :kept] = old[..., :kept]
        return copies


class Online(Decoder):
    """The near-linear decoder of this module. `horizon` bounds the number of steps and the memory."""

    def _begin(self, past: Float[Tensor, "b p h c"]) -> None:
        taps, steps = self.kernel.shape[1], self.horizon
        self._sizes = [LEAF]  # sizes of tiles, and one more, which is removed below
        while self._sizes[-1] < taps and (steps is None or 2 * self._sizes[-1] < steps):
            self._sizes.append(2 * self._sizes[-1])
        largest = self._sizes.pop() // 2
        reach = max(1, taps - 1 if steps is None else min(taps - 1, steps))
        ahead = as_columns(carry(past, self.kernel, reach)).contiguous()
        columns = ahead.shape[2]
        # the columns of a head share its matrix; for few columns it is not worth its memory
        self._widest_matrix = min(MATMUL, 4 * columns)
        self._rings = Rings(
            ahead=ahead,
            recent=ahead.new_zeros(self.heads, 2 * LEAF, columns),
            behind=ahead.new_zeros(self.heads, 2 * largest if self._sizes else 0, columns),
        )
        near = self.kernel[:, : 2 * LEAF]
        near = torch.nn.functional.pad(near, (0, 2 * LEAF - near.shape[1]))
        self._near = near.flip(-1)[:, None]  # the newest input meets the last entry
        self._filters: dict[tuple[int, int], Tensor] = {}
        self._tiles: dict[int, _Tile] = {}  # at most one of each size is under way
        for size in self._sizes:  # now, lest single tokens pay for it later
            for block in (1, 2):
                count = self._reach(size, block)
                if count > 0 and self._parts(size, count):
                    self._filter(size, count)

    @property
    def bytes(self) -> int:
        return self._rings.nbytes

    def _select(self, rows: Int[Tensor, " r"]) -> None:
        self._settle()
        self._rings = self._rings.columns(self._columns(rows))

    def _emit(self, u: Tensor, heads: slice) -> Tensor:
        rings, offset = self._rings, self.position % LEAF
        rings.recent[heads, LEAF + offset] = u[:, 0]
        place = self.position % rings.ahead.shape[1]
        known = rings.ahead[heads, place : place + 1]
        recent = rings.recent[heads, : LEAF + offset + 1]
        y = torch.baddbmm(known, self._near[heads, :, LEAF - 1 - offset :], recent)
        known.zero_()  # the ring is written n positions ahead
        return y

    def _advance(self) -> None:
        end = self.position + 1
        if end % LEAF == 0:
            self._close_leaf(end)
        for size, tile in list(self._tiles.items()):
            while tile.due <= end:
                self._compute(tile, tile.parts[tile.done])
                tile = tile._replace(done=tile.done + 1)
                if tile.done == len(tile.parts):
                    del self._tiles[size]
                    break
                self._tiles[size] = tile

    def _settle(self) -> None:
        """Complete the tiles in progress, because their pieces refer to columns by position."""
        for tile in self._tiles.values():
            for part in tile.parts[tile.done :]:
                self._compute(tile, part)
        self._tiles.clear()

    def _close_leaf(self, end: int) -> None:
        leaf = self._rings.recent[:, LEAF:]
        if self._sizes:
            place = (end - LEAF) % self._rings.behind.shape[1]
            self._rings.behind[:, place : place + LEAF] = leaf
        self._rings.recent[:, :LEAF] = leaf
        for size in self._sizes:
            if end % size:
                break
            ahead = self._reach(size, end // size)
            if self.horizon is not None:
                ahead = min(ahead, self.horizon - (end + size))
            if ahead > 0 and (parts := self._parts(size, ahead)):
                self._tiles[size] = _Tile(size, end - size, ahead, parts)

    def _reach(self, size: int, block: int) -> int:
        """Return the number of output positions of the tiles of a block (counted from 1)."""
        wanted = size if block % 2 == 0 else 2 * size
        return min(wanted, self.kernel.shape[1] - 1 - size)

    def _parts(self, size: int, ahead: int) -> list[_Part]:
        """Return pieces of about equal cost: several heads at once, or some columns of one head."""
        columns = self._rings.ahead.shape[2]
        if size <= self._widest_matrix:
            most = max(1, int(PIECE_FLOPS / (2 * size * ahead)))
        else:
            most = max(1, PIECE_POINTS // (size + ahead))
        most = max(most, FEWEST_COLUMNS)
        width = 2 if self._paired else 1
        return [
            _Part(heads, slice(part.start * width, part.stop * width))
            for heads in fft.slices(self.heads, most // max(1, columns))
            for part in fft.slices(columns // width, most // width)
        ]

    def _compute(self, tile: _Tile, part: _Part) -> None:
        size, ahead = tile.size, tile.ahead
        place = tile.first % self._rings.behind.shape[1]
        inputs = self._rings.behind[part.heads, place : place + size, part.columns]
        outputs = self._filtered(inputs, size, ahead, part.heads)
        ring = self._rings.ahead[part.heads, :, part.columns]
        start = (tile.first + 2 * size) % ring.shape[1]
        before = min(ahead, ring.shape[1] - start)  # positions up to the end of the ring
        ring[:, start : start + before] += outputs[:, :before]
        ring[:, : ahead - before] += outputs[:, before:]

    def _filtered(self, inputs: Tensor, size: int, ahead: int, heads: slice) -> Tensor:
        kept = self._filter(size, ahead)[heads]
        if size <= self._widest_matrix:
            if self._autocast():
                with full_precision(inputs.device):
                    return torch.bmm(kept, inputs)
            return torch.bmm(kept, inputs)
        rows = inputs.transpose(0, 1)[None]
        kernel = self.kernel[heads, size:]
        y = fft.window(rows, kernel, size, size + ahead, kept, self._paired)
        return y[0].transpose(0, 1)

    @property
    def _paired(self) -> bool:
        """Whether two columns share a lane of the transforms: only if none has those of two rows."""
        return self.channels % 2 == 0

    def _filter(self, size: int, ahead: int) -> Tensor:
        """A matrix or a spectrum; spectra differ with what a lane holds (see fft.py)."""
        key = (size, ahead)
        if key not in self._filters:
            kernel = self.kernel[:, size:]  # all lags of a tile are above `size`
            if size <= self._widest_matrix:
                self._filters[key] = rectangle(kernel, size, ahead)
            else:
                like = self._rings.ahead.new_empty(1, size, 1, 2 if self._paired else 1)
                self._filters[key] = fft.window_spectrum(like, kernel, size, size + ahead)
        return self._filters[key]
