"""Taps, symbols and certified indices of a model's filters, as the explorer plots them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toeplix.reports import filters
from toeplix.spectral import indices, symbol
from toeplix.spectral.null_distribution import noise

MIN_SYMBOL_POINTS, MAX_SYMBOL_POINTS = 4096, 2**16  # of a symbol; 32 for every tap
SHOWN_DIGITS = 6


class Filters:
    """All filters of a checkpoint, with certified indices."""

    def __init__(self, checkpoint: Path) -> None:
        found, self.config = filters.read(checkpoint)
        self._found = {layer.name: layer.kernel for layer in found}
        self.rows = [row for layer in found for row in _rows(layer)]

    def one(self, layer: str, head: int, kernel: int) -> dict[str, Any]:
        """Return taps and symbol of one filter; the symbol from pi to 2 pi is the mirror image."""
        taps = self.taps(layer, head, kernel)
        curve = half(taps)
        return {"taps": _rounded(taps), "re": _rounded(curve.real), "im": _rounded(curve.imag)}

    def taps(self, layer: str, head: int, kernel: int) -> Tensor:
        found = self._found.get(layer)
        if found is None or not (0 <= head < found.shape[0] and 0 <= kernel < found.shape[1]):
            raise LookupError(f"there is no filter {layer}, head {head}, kernel {kernel}")
        return found[head, kernel]


def half(taps: Tensor) -> Tensor:
    """Return the symbol at equal steps from theta = 0 to pi, both ends included."""
    taps_up = 2 ** (len(taps) - 1).bit_length()
    points = max(MIN_SYMBOL_POINTS, taps_up, min(32 * taps_up, MAX_SYMBOL_POINTS))
    return symbol(taps.double(), points)[: points // 2 + 1]


def _rows(layer: filters.Layer) -> list[dict[str, Any]]:
    rows = []
    for name, head, number, taps in layer.filters():
        row: dict[str, Any] = {"name": name, "layer": layer.name, "head": head, "kernel": number}
        row |= {"taps": len(taps)}
        if not taps.isfinite().all() or not taps.any():
            why = "zero filter" if taps.isfinite().all() else "not finite"
            rows.append(row | {"index": None, "status": why, "margin": None})
            continue
        (proof,) = indices(taps[None])
        random = noise(len(taps))
        row |= {"index": proof.index, "status": proof.status, "margin": proof.margin}
        rows.append(row | {"noise_mean": random.mean, "noise_deviation": random.deviation})
    return rows


def _rounded(values: Tensor) -> list[float]:
    """Return values rounded to six digits, which makes the JSON three times smaller."""
    clean = torch.nan_to_num(values.double(), 0.0, 0.0, 0.0)
    return [float(f"{value:.{SHOWN_DIGITS}g}") for value in clean.tolist()]
