"""Rows that share a state: what mixers remember of a batch whose rows come and go.

While all rows are equally old, their position is one number; where they differ, it is a number for
each row, on the CPU, since tables are looked up by it.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from toeplix.ops.checks import check_rows

Positions = int | Tensor  # of all rows, or (b,) one by one


class RowState(ABC):
    """What one mixer remembers of the rows of a batch."""

    @abstractmethod
    def share(self, rows: int) -> None:
        """From now on the rows, so many, may differ in age."""

    @abstractmethod
    def admit(self, other: Any) -> None:
        """The rows of another state, shared too, after those that are here."""

    @abstractmethod
    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Go on with these rows, in this order."""


def selected(x: Tensor, rows: Int[Tensor, " r"]) -> Tensor:
    """These rows of what is remembered, `(b, ...)`."""
    return x[check_rows(rows, len(x)).to(x.device)]


def each(position: Positions, rows: int) -> Int[Tensor, " b"]:
    """A position for each row."""
    return torch.as_tensor(position).expand(rows).clone()


def picked(position: Positions, rows: Int[Tensor, " r"]) -> Positions:
    """The positions of these rows."""
    return position if isinstance(position, int) else selected(position, rows)


def times(first: Positions, count: int, last: int) -> Int[Tensor, "#b count"]:
    """The positions `first, first + 1, ...` of every row, held at `last`."""
    return (torch.as_tensor(first).reshape(-1, 1) + torch.arange(count)).clamp(max=last)
