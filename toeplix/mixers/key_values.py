"""Keys and values of the last positions: the decoding state of a lookup with free filters.

A position of a head takes e + c numbers. The near-linear decoder would keep 2 e c, the contributions of
every k_i v to later outputs: 15 times as much with 8 keys and 128 values. So the history is kept, and a
decode step reads all of it.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.mixers.ragged import selected

MIN_SPARE = 64  # positions that are reserved at least


class KeyValues:
    """The last n - 1 positions and more, in a buffer with spare positions at its end.

    Once the buffer is full, the last n - 1 positions are moved to the front of one that has an eighth of
    its positions to spare: seldom enough that a decode step does not notice.
    """

    def __init__(
        self, k: Float[Tensor, "b t h e"], v: Float[Tensor, "b t h c"], reach: int
    ) -> None:
        self.reach = reach
        self._size = k.shape[-1]
        self._buffer, self._filled = torch.cat([k, v], -1), k.shape[1]

    @property
    def bytes(self) -> int:
        return self._buffer.nbytes

    def extend(self, k: Float[Tensor, "b t h e"], v: Float[Tensor, "b t h c"]) -> None:
        """Add positions."""
        both = torch.cat([k, v], -1)
        self._reserve(both.shape[1])
        self._buffer[:, self._filled : self._filled + both.shape[1]] = both
        self._filled += both.shape[1]

    def seen(self, count: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of the last `count` positions, or of all that there are."""
        both = self._buffer[:, max(0, self._filled - count) : self._filled]
        return both[..., : self._size], both[..., self._size :]

    def append(self, other: "KeyValues") -> None:
        """Append the rows of another history; a shorter history has zeros before its beginning."""
        mine, theirs = (each._kept() for each in (self, other))
        longest = max(mine.shape[1], theirs.shape[1])
        padded = [
            nn.functional.pad(past, (0, 0, 0, 0, longest - past.shape[1], 0))
            for past in (mine, theirs)
        ]
        self._buffer, self._filled = torch.cat(padded), longest

    def select(self, rows: Int[Tensor, " r"]) -> None:
        self._buffer = selected(self._buffer, rows)

    def _kept(self) -> Tensor:
        """Return what later positions read."""
        return self._buffer[:, max(0, self._filled - self.reach + 1) : self._filled]

    def _reserve(self, count: int) -> None:
        if self._filled + count <= self._buffer.shape[1]:
            return
        kept = self._kept()
        length = kept.shape[1]
        spare = max(count, MIN_SPARE, length // 8)
        self._buffer = kept.new_empty(kept.shape[0], length + spare, *kept.shape[2:])
        self._buffer[:, :length] = kept
        self._filled = length
