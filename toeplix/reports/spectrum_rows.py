"""The spectral analysis of the filters of a model: one row for each filter."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import torch

from toeplix.reports.filters import Layer
from toeplix.spectral.indices import Index, indices
from toeplix.spectral.lags import MAX_DENSE_TAPS, lags, states
from toeplix.spectral.null_distribution import noise, untrained
from toeplix.spectral.singular import RANK_EPS, eps_indices, extremes, singular_values
from toeplix.spectral.symbols import symbol

Row = dict[str, Any]


def rows(
    found: Sequence[Layer], start: str = "kaiming", say: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """Return index, singular values and lags of every filter; `start` is their initialisation."""
    result: list[Row] = []
    for layer in found:
        say(layer.name)
        kept = [entry for entry in layer.filters() if bool(entry[3].isnan().any() | entry[3].any())]
        proofs = _by_name(kept, indices)
        lower = _by_name(kept, eps_indices)
        for name, head, number, kernel in layer.filters():
            heads, kernels, taps = layer.kernel.shape
            row: Row = {"layer": layer.name, "head": head, "kernel": number, "taps": taps}
            row |= {"heads": heads, "kernels": kernels}
            if name in proofs:
                row |= _index(proofs[name], lower[name], start, len(kernel))
                row |= _values(kernel, name)
            else:  # an untrained model with several kernels per head has zero filters
                row |= {"index": None, "status": "zero filter"}
            result.append(row)
    if all(row["status"] == "zero filter" for row in result):
        raise ValueError(f"{found[0].name} is zero at every tap, and so are all filters")
    return result


def _by_name(kept: list[Any], measure: Callable[..., list[Index]]) -> dict[str, Index]:
    """Return measurements of all filters of a layer by name; errors name layer, head and kernel."""
    for name, _, _, kernel in kept:
        if not kernel.isfinite().all():
            measure(kernel, name=name)
    if not kept:
        return {}
    stacked = torch.stack([kernel for *_, kernel in kept])
    return dict(zip([name for name, *_ in kept], measure(stacked), strict=True))


def _index(proof: Index, lower: Index, start: str, taps: int) -> Row:
    own, random = untrained(start, taps), noise(taps)
    row: Row = {
        "index": proof.index,
        "status": proof.status,
        "margin": proof.margin,
        "angle": proof.angle,
        "reason": proof.reason,
        "noise_mean": random.mean,
        "noise_deviation": random.deviation,
        "z_noise": None if proof.index is None else _finite(random.z(proof.index)),
        "start": start,
        "start_mean": own.mean if own else None,
        "start_deviation": own.deviation if own else None,
        "z_start": None,
        "eps_index": lower.index,
        "eps": RANK_EPS,
    }
    if proof.index is not None and own is not None:
        row["z_start"] = _finite(own.z(proof.index))
    return row


def _finite(value: float) -> float | None:
    """Return the value, or None for infinity, which JSON does not have."""
    return value if isfinite(value) else None


def _values(kernel: torch.Tensor, name: str) -> Row:
    most = extremes(kernel, name)
    curve = symbol(kernel.double(), 4 * 2 ** (len(kernel) - 1).bit_length()).abs()
    row: Row = {
        "largest": most.largest,
        "smallest": most.smallest,
        "smallest_is_bound": not most.certain,
        "condition": _finite(most.condition),
        "symbol_largest": float(curve.max()),
        "symbol_smallest": float(curve.min()),
        "singular_values": None,
        "rank": None,
        "states": None,
    }
    if len(kernel) <= MAX_DENSE_TAPS:
        values = singular_values(kernel, name)
        row["singular_values"] = values.tolist()
        row["rank"] = int((values > RANK_EPS * values[0]).sum())
        row["states"] = states(kernel, name=name)
    read = asdict(lags(kernel, name))
    return row | read | {"recency": {str(key): value for key, value in read["recency"].items()}}
