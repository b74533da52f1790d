"""Taps, symbols and certified indices of a model's filters, as the explorer plots them."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toeplix.reports import filters
from toeplix.spectral import RationalFilter, index, rational_index, symbol
from toeplix.spectral.null_distribution import noise

MIN_SYMBOL_POINTS, MAX_SYMBOL_POINTS = 4096, 2**16  # of a symbol; 32 for every tap
SHOWN_DIGITS = 6
OVERVIEW_BINS = 64  # bins of lags of a filter in the overview
MAX_OVERVIEW = 1024  # filters in the overview


class Filters:
    """All filters of a checkpoint, with certified indices."""

    def __init__(self, checkpoint: Path) -> None:
        found, self.config = filters.read(checkpoint)
        self._found = {layer.name: layer for layer in found}
        self.rows = [row for layer in found for row in _rows(layer)]

    def one(self, layer: str, head: int, kernel: int) -> dict[str, Any]:
        """Return taps and symbol of one filter; the symbol from pi to 2 pi is the mirror image."""
        taps = self.taps(layer, head, kernel)
        curve = half(self.exact(layer, head, kernel), len(taps))
        return {"taps": _rounded(taps), "re": _rounded(curve.real), "im": _rounded(curve.imag)}

    def overview(self) -> list[dict[str, Any]]:
        """Return the smallest and largest tap in each of at most OVERVIEW_BINS bins of lags, by filter.

        Bins of the same size keep single large taps visible; a filter of fewer taps has one tap in each.
        """
        return [
            {"name": row["name"], "layer": row["layer"], "head": row["head"], **envelope(taps)}
            for row in self.rows[:MAX_OVERVIEW]
            for taps in [self.taps(row["layer"], row["head"], row["kernel"])]
        ]

    def taps(self, layer: str, head: int, kernel: int) -> Tensor:
        """Return all taps of a free filter, or the taps of a recurrent filter within the context."""
        found = self._found.get(layer)
        heads, kernels, _ = found.kernel.shape if found else (0, 0, 0)
        if found is None or not (0 <= head < heads and 0 <= kernel < kernels):
            raise LookupError(f"there is no filter {layer}, head {head}, kernel {kernel}")
        return found.kernel[head, kernel]

    def exact(self, layer: str, head: int, kernel: int) -> Tensor | RationalFilter:
        """Return a filter at all of its lags; its taps where it is zero or not finite."""
        taps = self.taps(layer, head, kernel)
        if not taps.isfinite().all() or not taps.any():
            return taps
        return self._found[layer].exact(head, kernel, layer)


def envelope(taps: Tensor) -> dict[str, Any]:
    """Return the smallest and the largest value in bins of equal size, and the taps of a bin."""
    size = -(-len(taps) // OVERVIEW_BINS)
    bins = [taps[first : first + size] for first in range(0, len(taps), size)]
    low = torch.stack([part.min() for part in bins])
    high = torch.stack([part.max() for part in bins])
    return {"low": _rounded(low), "high": _rounded(high), "lags_per_bin": size}


def half(filter: Tensor | RationalFilter, taps: int) -> Tensor:
    """Return the symbol at equal steps from theta = 0 to pi, both ends included: 32 steps per tap."""
    taps_up = 2 ** (taps - 1).bit_length()
    points = max(MIN_SYMBOL_POINTS, taps_up, min(32 * taps_up, MAX_SYMBOL_POINTS))
    if isinstance(filter, RationalFilter):
        angles = torch.linspace(0, math.pi, points // 2 + 1, dtype=torch.float64)
        return filter.symbol(angles)
    return symbol(filter.double(), points)[: points // 2 + 1]


def _rows(layer: filters.Layer) -> list[dict[str, Any]]:
    rows = []
    for name, head, number, taps in layer.filters():
        row: dict[str, Any] = {"name": name, "layer": layer.name, "head": head, "kernel": number}
        row |= {"taps": len(taps), "kind": layer.kind}
        if not taps.isfinite().all() or not taps.any():
            why = "zero filter" if taps.isfinite().all() else "not finite"
            rows.append(row | {"index": None, "status": why, "margin": None})
            continue
        filter = layer.exact(head, number, name)
        if isinstance(filter, RationalFilter):
            proof, null = rational_index(filter), {}
        else:
            proof, random = index(filter), noise(len(taps))
            null = {"noise_mean": random.mean, "noise_deviation": random.deviation}
        row |= {"index": proof.index, "status": proof.status, "margin": proof.margin}
        rows.append(row | null)
    return rows


def _rounded(values: Tensor) -> list[float]:
    """Return values rounded to six digits, which makes the JSON three times smaller."""
    clean = torch.nan_to_num(values.double(), 0.0, 0.0, 0.0)
    return [float(f"{value:.{SHOWN_DIGITS}g}") for value in clean.tolist()]
