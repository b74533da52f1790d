"""What a filter does: how far back it reads, which shift it is nearest to, how many states it needs.

As a state space model of r states, y[t] = c A^l b + ..., a filter of n taps needs up to n - 1. The
Hankel matrix H[i, j] = w[i + j + 1] takes the past to the future; its singular values say what each
state carries, and leaving out all but r of them moves the symbol nowhere by more than twice the sum of
the rest.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toeplix.spectral.checks import taps
from toeplix.spectral.symbols import symbol

DENSE = 1024  # taps up to which the whole Hankel matrix is decomposed
CLOSE = 0.01  # of max |a|: how near a recurrent form has to come


@dataclass(frozen=True, kw_only=True)
class Lags:
    """Of one filter; energy is the square of a tap."""

    centre: float  # the mean lag, by energy
    mode: int  # the lag of the largest tap: the nearest shift
    likeness: float  # cosine of the angle to that shift, with the tap's sign
    recency: dict[int, float]  # share of energy in the first 1, 2, 4, ... taps
    half: int  # taps that hold half of the energy, counted from the newest


def lags(kernel: Tensor, name: str = "kernel") -> Lags:
    """Of one filter (n,)."""
    row = taps(kernel, name)[0]
    row = row / np.abs(row).max()
    energy = row**2 / np.sum(row**2)
    mode = int(np.argmax(np.abs(row)))
    running = np.cumsum(energy)
    powers = [2**k for k in range((len(row) - 1).bit_length())] + [len(row)]
    return Lags(
        centre=float(energy @ np.arange(len(row))),
        mode=mode,
        likeness=float(np.sign(row[mode]) * np.sqrt(energy[mode])),
        recency={power: float(min(1.0, running[power - 1])) for power in powers},
        half=int(np.searchsorted(running, 0.5)) + 1,
    )


def hankel_values(kernel: Tensor, name: str = "kernel") -> Tensor:
    """Singular values of H, largest first, of one filter (n,): n - 1 of them."""
    row = torch.from_numpy(taps(kernel, name)[0])
    count = len(row) - 1
    if count == 0:
        return row.new_zeros(0)
    place = torch.arange(count)[:, None] + torch.arange(count) + 1
    filled = row[place.clamp(max=count)] * (place <= count)
    return torch.linalg.eigvalsh(filled).abs().sort(descending=True).values  # H is symmetric


def states(kernel: Tensor, close: float = CLOSE, name: str = "kernel") -> int:
    """How many states suffice for a symbol that is off by at most `close` of its largest value."""
    values = hankel_values(kernel, name)
    points = 4 * 2 ** (kernel.shape[-1] - 1).bit_length()
    most = float(symbol(kernel.double(), points).abs().max())
    left = 2 * (values.sum() - values.cumsum(0))
    if 2 * float(values.sum()) <= close * most:
        return 0
    return int((left > close * most).sum()) + 1
