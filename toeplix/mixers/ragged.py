"""Decoding states of ragged batches, whose rows join and leave at any step.

While all rows have the same position, it is one integer. In a ragged batch it is a tensor with one
position per row, on the device of the tables that it indexes: an index on the CPU would be copied there
at every step.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from toeplix.ops.checks import check_rows

Positions = int | Tensor  # of all rows, or (b,) one by one


class RowState(ABC):
    """The decoding state of one mixer for the rows of a batch."""

    @abstractmethod
    def begin_ragged(self, rows: int) -> None:
        """Make the batch of `rows` rows ragged: from now on their positions may differ."""

    @abstractmethod
    def append(self, other: Any) -> None:
        """Append the rows of another ragged state."""

    @abstractmethod
    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep these rows, in this order."""


def selected(x: Tensor, rows: Int[Tensor, " r"]) -> Tensor:
    """These rows of what is remembered, `(b, ...)`."""
    return x[check_rows(rows, len(x)).to(x.device)]


def each(position: Positions, rows: int, device: torch.device) -> Int[Tensor, " b"]:
    """Return one position per row."""
    if isinstance(position, int):
        return torch.full((rows,), position, device=device)
    return position.expand(rows).clone()


def picked(position: Positions, rows: Int[Tensor, " r"]) -> Positions:
    """The positions of these rows."""
    return position if isinstance(position, int) else selected(position, rows)


def times(first: Positions, count: int, last: int, device: torch.device) -> Int[Tensor, "#b count"]:
    """Return the positions `first, first + 1, ...` of every row, clamped at `last`."""
    begin = first if isinstance(first, int) else first[:, None]
    return (begin + torch.arange(count, device=device)[None]).clamp(max=last)
