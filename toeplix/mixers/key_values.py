"""Keys and values of the last positions: the decoding state of a lookup with free filters.

A position of a head takes e + c numbers. The near-linear decoder would keep 2 e c, the contributions of
every k_i v to later outputs: 15 times as much with 8 keys and 128 values. So the history is kept, and a
decode step reads all of it.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.mixers.ragged import selected
from toeplix.mixers.static_state import writable

MIN_SPARE = 64  # positions that are reserved at least


class KeyValues:
    """The last n - 1 positions and more, in a buffer with spare positions at its end.

    Once the buffer is full, the last n - 1 positions are moved to its front: seldom enough, with an
    eighth of its positions to spare, that a decode step does not notice. The buffer is replaced by a
    larger one while there are fewer than n - 1 positions, and stays where it is from then on.
    """

    def __init__(self, reach: int, device: torch.device) -> None:
        self.reach = reach
        self._buffer, self._filled = torch.empty(0, 0, 0, 0, device=device), 0

    @property
    def bytes(self) -> int:
        return self._buffer.nbytes

    def extend(
        self, k: Float[Tensor, "b t h e"], v: Float[Tensor, "b t h c"]
    ) -> tuple[Float[Tensor, "b s h e"], Float[Tensor, "b s h c"]]:
        """Add positions; return the keys and values that they read, up to their own."""
        both = torch.cat([k, v], -1)
        if both.shape[1] > 1:
            both = torch.cat([self._kept(), both], 1) if self._filled else both
            self._keep(both[:, max(0, both.shape[1] - self.reach + 1) :])
        else:
            if self._filled == self._buffer.shape[1] or not writable(self._buffer):
                self._keep(self._kept() if self._filled else both[:, :0])
            self._buffer[:, self._filled : self._filled + 1] = both
            self._filled += 1
            both = self._buffer[:, max(0, self._filled - self.reach) : self._filled]
        return both[..., : k.shape[-1]], both[..., k.shape[-1] :]

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

    def _keep(self, last: Float[Tensor, "b p h n"]) -> None:
        """Keep these positions only, at the front of a buffer with positions to spare."""
        batch, length, *rest = last.shape
        shape = (batch, length + max(MIN_SPARE, length // 8), *rest)
        old = self._buffer
        if (old.shape, old.dtype, old.device) == (shape, last.dtype, last.device) and writable(old):
            last = last.clone()  # of the same buffer, whose positions may overlap
        else:
            self._buffer = last.new_empty(shape)
        self._buffer[:, :length] = last
        self._filled = length
