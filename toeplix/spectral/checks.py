"""Argument checks of spectral analysis; errors name the layer of an invalid filter."""

import numpy as np
import torch
from torch import Tensor


def taps(kernel: Tensor, name: str = "kernel") -> np.ndarray:
    """Return filters (..., n) as rows of float64, (filters, n); every real dtype converts exactly."""
    if kernel.is_complex():
        raise ValueError(f"{name} is complex: the filters of a causal mixer are real")
    if kernel.ndim == 0 or kernel.numel() == 0:
        raise ValueError(f"{name} is empty: its shape is {tuple(kernel.shape)}")
    rows = kernel.detach().to("cpu", torch.float64).reshape(-1, kernel.shape[-1]).numpy()
    which = f"{name}, filter %d," if len(rows) > 1 else f"{name}%.0s"
    bad = ~np.isfinite(rows)
    if bad.any():
        row, tap = np.argwhere(bad)[0]
        raise ValueError(f"{which % row} has {rows[row, tap]} at tap {tap}")
    zero = ~rows.any(axis=1)
    if zero.any():
        raise ValueError(f"{which % zero.argmax()} is zero at every tap: it has no index")
    return rows
