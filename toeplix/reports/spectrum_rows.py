"""The spectral analysis of the filters of a model: one row for each filter."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any, cast

import torch

from toeplix.reports.filters import Layer
from toeplix.spectral.indices import Index, indices
from toeplix.spectral.lags import MAX_DENSE_TAPS, Lags, lags, states
from toeplix.spectral.null_distribution import noise, untrained
from toeplix.spectral.rational import RationalFilter
from toeplix.spectral.rational_indices import rational_eps_index, rational_index, symbol_maximum
from toeplix.spectral.rational_lags import (
    degree,
    rational_frobenius_norm,
    rational_lags,
    rational_states,
)
from toeplix.spectral.singular import (
    RANK_EPS,
    eps_indices,
    extremes,
    frobenius_norm,
    singular_values,
)
from toeplix.spectral.symbols import symbol

Row = dict[str, Any]
ZERO: Row = {"index": None, "status": "zero filter"}
SYMBOL_POINTS = 8192  # at which the smallest |a| of a recurrent filter is looked for


def rows(
    found: Sequence[Layer],
    start: str = "kaiming",
    say: Callable[[str], None] = lambda _: None,
    device: torch.device | None = None,
) -> list[Row]:
    """Return index, singular values and lags of every filter; `start` is their initialisation.

    Dense matrices are decomposed on `device`, in float64; None: on the CPU.
    """
    result: list[Row] = []
    for layer in found:
        say(layer.name)
        result += MEASURES[layer.kind](layer, layer.start or start, device)
    if all(row["status"] == "zero filter" for row in result):
        raise ValueError(f"{found[0].name} is zero at every tap, and so are all filters")
    return result


def _place(layer: Layer, head: int, number: int) -> Row:
    heads, kernels, section = layer.kernel.shape
    row: Row = {"layer": layer.name, "kind": layer.kind, "head": head, "kernel": number}
    return row | {"heads": heads, "kernels": kernels, "section": section}


def _free_rows(layer: Layer, start: str, device: torch.device | None) -> list[Row]:
    result = []
    kept = [entry for entry in layer.filters() if bool(entry[3].isnan().any() | entry[3].any())]
    proofs = _by_name(kept, indices)
    lower = _by_name(kept, eps_indices)
    for name, head, number, kernel in layer.filters():
        row = _place(layer, head, number) | {"taps": len(kernel)}
        if name in proofs:
            row |= _index(proofs[name], lower[name]) | _noise(proofs[name], len(kernel))
            row |= _start(proofs[name], start, len(kernel))
            row |= _free_values(kernel, name, device)
        else:  # an untrained model with several kernels per head has zero filters
            row |= ZERO
        result.append(row)
    return result


def _recurrent_rows(layer: Layer, start: str, device: torch.device | None) -> list[Row]:
    """Return rows without the z-score of noise, which is not a recurrent filter."""
    result = []
    for name, head, number, kernel in layer.filters():
        row = _place(layer, head, number)
        if not kernel.isnan().any() and not kernel.any():
            result.append(row | {"taps": 0, "decays": 0} | ZERO)
            continue
        filter = cast(RationalFilter, layer.exact(head, number, name))
        row |= {"taps": len(filter.free), "decays": len(filter.decays)}
        proof = rational_index(filter)
        row |= _index(proof, rational_eps_index(filter, len(kernel)))
        row |= _start(proof, start, len(kernel))
        result.append(row | _recurrent_values(filter, len(kernel), name, device))
    return result


MEASURES: dict[str, Callable[[Layer, str, torch.device | None], list[Row]]] = {
    "free": _free_rows,
    "recurrent": _recurrent_rows,
}


def _by_name(kept: list[Any], measure: Callable[..., list[Index]]) -> dict[str, Index]:
    """Return measurements of all filters of a layer by name; errors name layer, head and kernel."""
    for name, _, _, kernel in kept:
        if not kernel.isfinite().all():
            measure(kernel, name=name)
    if not kept:
        return {}
    stacked = torch.stack([kernel for *_, kernel in kept])
    return dict(zip([name for name, *_ in kept], measure(stacked), strict=True))


def _index(proof: Index, lower: Index) -> Row:
    return {
        "index": proof.index,
        "status": proof.status,
        "margin": proof.margin,
        "angle": proof.angle,
        "reason": proof.reason,
        "eps_index": lower.index,
        "eps": RANK_EPS,
    }


def _noise(proof: Index, taps: int) -> Row:
    """Return the index relative to that of noise."""
    random = noise(taps)
    return {
        "noise_mean": random.mean,
        "noise_deviation": random.deviation,
        "z_noise": None if proof.index is None else _finite(random.z(proof.index)),
    }


def _start(proof: Index, start: str, taps: int) -> Row:
    """Return the index relative to that of the initialisation."""
    own = untrained(start, taps)
    row: Row = {
        "start": start,
        "start_mean": own.mean if own else None,
        "start_deviation": own.deviation if own else None,
        "z_start": None,
    }
    if proof.index is not None and own is not None:
        row["z_start"] = _finite(own.z(proof.index))
    return row


def _finite(value: float) -> float | None:
    """Return the value, or None for infinity, which JSON does not have."""
    return value if isfinite(value) else None


def _free_values(kernel: torch.Tensor, name: str, device: torch.device | None) -> Row:
    curve = symbol(kernel.double(), 4 * 2 ** (len(kernel) - 1).bit_length()).abs()
    row = _section_values(kernel, name, frobenius_norm(kernel, name), device)
    row |= {"symbol_largest": float(curve.max()), "symbol_smallest": float(curve.min())}
    row["states"] = None
    if len(kernel) <= MAX_DENSE_TAPS:
        row["states"] = states(kernel, name=name, device=device)
    return row | _lags(lags(kernel, name))


def _recurrent_values(
    filter: RationalFilter, count: int, name: str, device: torch.device | None
) -> Row:
    """Return values of the n x n matrix at the context of the model, and of the filter at all lags."""
    frobenius = rational_frobenius_norm(filter, count)
    row = _section_values(filter.taps(count), name, frobenius, device)
    curve = filter.symbol(filter.angles(SYMBOL_POINTS)).abs()
    row |= {
        "symbol_largest": _finite(symbol_maximum(filter)),
        "symbol_smallest": float(curve.min()),
        "states": None,
        "all_states": degree(filter),
    }
    if not filter.summable:  # its energy is infinite
        return row
    return row | {"states": rational_states(filter)} | _lags(rational_lags(filter))


def _section_values(
    kernel: torch.Tensor, name: str, frobenius: float, device: torch.device | None
) -> Row:
    """Return singular values of the n x n matrix of a filter."""
    most = extremes(kernel, name)
    row: Row = {
        "largest": most.largest,
        "smallest": most.smallest,
        "smallest_is_bound": not most.certain,
        "condition": _finite(most.condition),
        "stable_rank": (frobenius / most.largest) ** 2,
        "singular_values": None,
        "rank": None,
    }
    if len(kernel) <= MAX_DENSE_TAPS:
        values = singular_values(kernel, name, device)
        row["singular_values"] = values.tolist()
        row["rank"] = int((values > RANK_EPS * values[0]).sum())
    return row


def _lags(found: Lags) -> Row:
    read = asdict(found)
    return read | {"recency": {str(key): value for key, value in read["recency"].items()}}
