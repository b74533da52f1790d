"""Sequence parallelism: causal products of a sequence whose positions are divided among processes.

Process r of S holds the positions r t .. (r + 1) t of a sequence of S t positions. What it needs of the
others depends on the product:

    windowed     free filters: an all-to-all gives every process all positions of 1/S of the heads or
                 channels; they are multiplied, and a second all-to-all returns the positions
    recurrent    recurrent filters: the state at the border, which is the last short - 1 inputs and r sums
    columns      any function of heads (linear attention under a free filter), in the same way
    before       the last inputs before the chunk, for a short convolution
    scan         sums with decays over all chunks before this one

The backward pass exchanges as much. Both are exact: there is no approximation and no truncation. A module
holds a `SequenceLayout`, `WHOLE` unless the sequence is divided, and need not know which one it is.

Axes: b batch, t positions of this process, h heads, c channels of one head, r decays.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from toeplix.ops.continuation import rectangle
from toeplix.ops.exchange import Exchange
from toeplix.ops.paths import full_precision
from toeplix.ops.recurrent import RecurrentState, multiply_recurrent, toeplitz_recurrent
from toeplix.ops.windowed import toeplitz_windowed

# from whole sequences (b, t, h, c) and weights of every head (h, ...) to sequences of the same shape
ColumnFunction = Callable[[Tensor, Tensor], Tensor]


class SequenceLayout(ABC):
    """Which positions of a sequence this process holds, and products of the whole of it."""

    @abstractmethod
    def first(self, time: int) -> int:
        """Return the position of the first of the `time` positions that this process holds."""

    @abstractmethod
    def length(self, time: int) -> int:
        """Return the length of the sequence of which this process holds `time` positions."""

    @abstractmethod
    def columns(
        self,
        function: ColumnFunction,
        x: Float[Tensor, "b t h c"],
        weights: Float[Tensor, "h ..."],
        *,
        by_channel: bool = True,
    ) -> Float[Tensor, "b t h y"]:
        """Apply a function of whole sequences that treats rows and heads independently.

        With `by_channel` it treats channels independently too; without, it may return fewer or more.
        """

    @abstractmethod
    def before(self, x: Float[Tensor, "b t ..."], size: int) -> Float[Tensor, "b size ..."]:
        """Return the `size` positions before x, zeros before the first of the sequence."""

    @abstractmethod
    def scan(
        self, sums: Float[Tensor, "b ..."], decays: Float[Tensor, "..."], time: int
    ) -> Float[Tensor, "b ..."] | None:
        """Return the sums before the first position of this process; None: there is none.

        Args:
            sums: `sum over the positions s < time of this process of decays^(time - 1 - s) * value[s]`.
            decays: broadcastable to the sums, in (0, 1].
            time: positions of this process.
        """

    def windowed(
        self, x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h n"]
    ) -> Float[Tensor, "b t h c"]:
        """Return this process's positions of the product with free filters (`toeplitz_windowed`)."""
        return self.columns(toeplitz_windowed, x, kernel)

    @abstractmethod
    def recurrent(
        self,
        x: Float[Tensor, "b t h c"],
        free: Float[Tensor, "h short"],
        weights: Float[Tensor, "h r"],
        decays: Float[Tensor, "#h r"] | Float[Tensor, " r"],
    ) -> Float[Tensor, "b t h c"]:
        """Return this process's positions of the product with recurrent filters."""


class WholeSequence(SequenceLayout):
    """One process holds all positions."""

    def first(self, time: int) -> int:
        return 0

    def length(self, time: int) -> int:
        return time

    def columns(
        self, function: ColumnFunction, x: Tensor, weights: Tensor, *, by_channel: bool = True
    ) -> Tensor:
        return function(x, weights)

    def before(self, x: Tensor, size: int) -> Tensor:
        return x.new_zeros(x.shape[0], size, *x.shape[2:])

    def scan(self, sums: Tensor, decays: Tensor, time: int) -> None:
        return None

    def recurrent(self, x: Tensor, free: Tensor, weights: Tensor, decays: Tensor) -> Tensor:
        return multiply_recurrent(x, free, weights, decays)


WHOLE = WholeSequence()


class DividedSequence(SequenceLayout):
    """The processes of an exchange hold equally many positions each, in the order of their ranks.

    Compiled graphs break at its methods: exchanges are not compiled.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        for name in ("columns", "before", "scan", "recurrent"):
            # here and not as a decorator, which would import the compiler with this module
            setattr(self, name, torch.compiler.disable(getattr(self, name)))

    def first(self, time: int) -> int:
        return self.exchange.rank * time

    def length(self, time: int) -> int:
        return self.exchange.count * time

    def columns(
        self, function: ColumnFunction, x: Tensor, weights: Tensor, *, by_channel: bool = True
    ) -> Tensor:
        count, rank = self.exchange.count, self.exchange.rank
        axis = _divided_axis(x, count, (2, 3, 0) if by_channel else (2, 0))
        size = x.shape[axis]
        part = -(-size // count)
        whole = self._to_columns(_padded(x, axis, part * count), axis)
        if axis == 2:
            weights = _padded(weights, 0, part * count)[rank * part : (rank + 1) * part]
        y = self._to_positions(function(whole, weights), axis)
        return y.narrow(axis, 0, size)

    def _to_columns(self, x: Tensor, axis: int) -> Tensor:
        """From some positions of all columns to all positions of some columns."""
        parts = self.exchange.all_to_all(torch.stack(x.chunk(self.exchange.count, axis)))
        return torch.cat(parts.unbind(0), 1)

    def _to_positions(self, y: Tensor, axis: int) -> Tensor:
        parts = self.exchange.all_to_all(torch.stack(y.chunk(self.exchange.count, 1)))
        return torch.cat(parts.unbind(0), axis)

    def before(self, x: Tensor, size: int) -> Tensor:
        if size == 0:
            return x[:, :0]
        time, pieces = x.shape[1], list[Tensor]()
        for by in range(1, max(1, min(-(-size // time), self.exchange.count - 1)) + 1):
            count = min(time, size - (by - 1) * time)
            pieces.insert(0, self.exchange.shift(x[:, time - count :], by))
        found = torch.cat(pieces, 1)
        return pad(found, (0, 0) * (x.ndim - 2) + (size - found.shape[1], 0))

    def scan(self, sums: Tensor, decays: Tensor, time: int) -> Tensor:
        """By doubling: after a shift by one, the sums of 2, 4, 8, ... processes are combined."""
        found, by, decays = self.exchange.shift(sums, 1), 1, decays.double()
        while by < self.exchange.count - 1:
            factor = (decays ** (by * time)).to(sums.dtype)
            found, by = found + factor * self.exchange.shift(found, by), 2 * by
        return found

    def recurrent(self, x: Tensor, free: Tensor, weights: Tensor, decays: Tensor) -> Tensor:
        """Multiply the positions of this process, and add what the state before them contributes."""
        y, after = toeplitz_recurrent(x, free, weights, decays)
        decays = decays.expand_as(weights)
        sums = self.scan(after.sums, decays.t()[None, :, :, None], x.shape[1])
        state = RecurrentState(self.before(x, max(0, free.shape[1] - 1)), sums)
        return (y + continued(state, free, weights, decays, x.shape[1])).to(x.dtype)


def continued(
    state: RecurrentState,
    free: Float[Tensor, "h short"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, "h r"],
    time: int,
) -> Float[Tensor, "b t h c"]:
    """Return what a state contributes to the next `time` outputs of recurrent filters.

    y[t] = sum over j of weights[j] decays[j]^(t + 1) sums[j]
         + sum over lags l > t of free[l] recent[short - 1 + t - l]
    """
    dtype, ahead = state.sums.dtype, min(time, state.recent.shape[1])
    powers = torch.arange(1, time + 1, device=decays.device)
    curves = weights.double()[..., None] * decays.double()[..., None] ** powers  # h r t
    with full_precision(decays.device):
        y = torch.einsum("hrt,brhc->bthc", curves.to(dtype), state.sums)
        if ahead == 0:
            return y
        taps = rectangle(free.to(dtype), state.recent.shape[1], ahead)
        near = torch.einsum("has,bshc->bahc", taps, state.recent.to(dtype))
    return y + pad(near, (0, 0, 0, 0, 0, time - ahead))


def _divided_axis(x: Tensor, count: int, axes: tuple[int, ...]) -> int:
    """Return the axis whose parts need the least padding, the first of several.

    Heads (axis 2) come first because their filters are divided too.
    """

    def waste(axis: int) -> float:
        return -(-x.shape[axis] // count) * count / x.shape[axis]

    return min(axes, key=waste)


def _padded(x: Tensor, axis: int, size: int) -> Tensor:
    return pad(x, (0, 0) * (x.ndim - 1 - axis) + (0, size - x.shape[axis]))


def columns_numbers(positions: int, columns: int, processes: int) -> float:
    """Return how many numbers all processes together send in `columns`, for one row, forward.

    `columns` are the inputs and the outputs of the function at one position.
    """
    return positions * columns * (processes - 1) / processes


def before_numbers(positions: int, size: int, columns: int, processes: int) -> int:
    """Return how many numbers all processes together send in `before`, for one row, forward.

    Every border is crossed by `size` positions, of which those before the first are not sent.
    """
    own = positions // processes
    return columns * sum(
        min(own, max(0, size - by * own)) * (processes - 1 - by) for by in range(processes - 1)
    )


def scan_numbers(sums: int, processes: int) -> int:
    """Return how many numbers all processes together send in `scan`, for one row, forward."""
    doubled = [1 << i for i in range(processes.bit_length()) if 1 << i < processes - 1]
    return sums * sum(processes - by for by in (1, *doubled))
