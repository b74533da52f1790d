"""Energy of a filter by lag, its nearest shift, and the number of states of a recurrent form.

A state space model of a filter of n taps needs up to n - 1 states. The Hankel matrix
H[i, j] = w[i + j + 1] maps earlier inputs to later outputs; its singular values measure the contribution
of each state, and truncation to the r largest changes the symbol by at most twice the sum of the others.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toeplix.spectral.checks import taps
from toeplix.spectral.symbols import symbol

MAX_DENSE_TAPS = 1024  # taps up to which the whole Hankel matrix is decomposed
RECEPTIVE_ENERGY = 0.99  # of a filter, within its receptive field
RECURRENT_TOLERANCE = 0.01  # tolerance of a recurrent form, relative to max |a|


@dataclass(frozen=True, kw_only=True)
class Lags:
    """Statistics of the lags of one filter; the energy of a tap is its square."""

    centre: float  # mean lag, weighted by energy
    mode: int  # lag of the largest tap: the nearest shift
    likeness: float  # cosine of the angle to that shift, with the sign of the tap
    recency: dict[int, float]  # fraction of energy in the first 1, 2, 4, ... taps
    half: int  # number of newest taps that contain half of the energy
    receptive_field: int  # number of newest taps that contain 99% of it


def lags(kernel: Tensor, name: str = "kernel") -> Lags:
    """Return the statistics of the lags of one filter (n,)."""
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
        receptive_field=min(len(row), int(np.searchsorted(running, RECEPTIVE_ENERGY)) + 1),
    )


def hankel_values(
    kernel: Tensor, name: str = "kernel", device: torch.device | None = None
) -> Tensor:
    """Return the n - 1 singular values of the Hankel matrix of one filter (n,), largest first."""
    row = torch.from_numpy(taps(kernel, name)[0]).to(device)
    count = len(row) - 1
    if count == 0:
        return row.new_zeros(0, device="cpu")
    index = torch.arange(count, device=row.device)
    place = index[:, None] + index + 1
    filled = row[place.clamp(max=count)] * (place <= count)
    values = torch.linalg.eigvalsh(filled).abs()  # H is symmetric
    return values.cpu().sort(descending=True).values


def states(
    kernel: Tensor,
    close: float = RECURRENT_TOLERANCE,
    name: str = "kernel",
    device: torch.device | None = None,
) -> int:
    """Return the number of states for which the symbol's error is at most `close` of its maximum."""
    values = hankel_values(kernel, name, device)
    points = 4 * 2 ** (kernel.shape[-1] - 1).bit_length()
    most = float(symbol(kernel.double(), points).abs().max())
    left = 2 * (values.sum() - values.cumsum(0))
    if 2 * float(values.sum()) <= close * most:
        return 0
    return int((left > close * most).sum()) + 1
