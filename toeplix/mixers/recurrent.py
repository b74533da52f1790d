"""A layer of recurrent filters: a few free taps and r decays per head, and no bias.

    w[l] = free[l] (l < free_taps) + sum over j < r of weights[j] sqrt(1 - decays[j]^2) decays[j]^l

Each decay has norm 1 as a filter, so all weights act on one scale. The decays are fixed on a logarithmic
grid of time constants, from 2 positions to twice the context. A filter is defined at every lag: the
context limits nothing. It is multiplied in linear time and decoded with a state of constant size
(toeplix/ops/recurrent.py).
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from toeplix.mixers.filter import decaying
from toeplix.mixers.filter_bank import Coefficients, FilterBank, RecurrentFilterState
from toeplix.ops.sequence_parallel import WHOLE, SequenceLayout


class RecurrentFilter(nn.Module):
    """A layer of causal filters with parameters `free` (h, taps) and `weights` (h, r)."""

    decays: Tensor
    layout: SequenceLayout = WHOLE

    def __init__(self, heads: int, context: int, free_taps: int, decays: int) -> None:
        super().__init__()
        self.free = nn.Parameter(torch.empty(heads, free_taps))
        self.weights = nn.Parameter(torch.empty(heads, decays))
        self.register_buffer("decays", decay_grid(decays, context))

    def reset(self, kind: str) -> None:
        """Initialise the free taps as decaying filters, without slow parts."""
        heads, taps = self.free.shape
        with torch.no_grad():
            self.free.copy_(decaying(heads, taps, self.free.device))
            self.weights.zero_()

    def start(self, bank: FilterBank) -> RecurrentFilterState:
        return bank.join_recurrent()

    def forward(self, x: Float[Tensor, "b t h c"]) -> Float[Tensor, "b t h c"]:
        return self.layout.recurrent(x, *self.coefficients())

    def product(self, x: Float[Tensor, "b t h c"]) -> Float[Tensor, "b t h c"]:
        """Return the product, which is linear in x: there is no bias."""
        return self(x)

    def extend(self, x: Float[Tensor, "b k h c"], state: RecurrentFilterState) -> Tensor:
        if state.decoder is not None:  # it has coefficients of its own
            return state.emitted(x)
        return state.extend(x, self.coefficients())

    def coefficients(self) -> Coefficients:
        """Return free taps, amplitudes and decays as `toeplix.ops.toeplitz_recurrent` reads them."""
        return self.free, amplitudes(self.weights, self.decays), self.decays

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RecurrentFilter":
        decays = self.decays
        super()._apply(fn, recurse)
        self.decays = full_precision_buffer(decays, self.decays)
        return self


def decay_grid(count: int, context: int) -> Float[Tensor, " count"]:
    """Return decays with time constants on a logarithmic grid, from 2 to twice the context."""
    step = math.log(max(context, 1)) / max(1, count - 1)
    constants = 2.0 * torch.exp(step * torch.arange(count, dtype=torch.float64))
    return torch.exp(-1.0 / constants).float()


def amplitudes(weights: Float[Tensor, "h r"], decays: Float[Tensor, " r"]) -> Float[Tensor, "h r"]:
    """Return the factors of the powers, `weights[j] sqrt(1 - decays[j]^2)`."""
    return weights * (1 - decays.double() ** 2).sqrt().to(weights.dtype)


def full_precision_buffer(before: Tensor, after: Tensor) -> Tensor:
    """Return decays that moved with their module, but not to half precision, where 0.998 is 1."""
    return after if after.dtype.itemsize >= 4 else before.to(after.device)
