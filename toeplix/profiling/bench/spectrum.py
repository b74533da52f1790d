"""Time of certified indices, companion roots and uniform sampling, and of symbols of many layers.

Companion roots are numpy's: eigenvalues of an n x n matrix, O(n^3), without a proof. They are computed
for one filter of each length and compared with our time for one filter. Uniform sampling is the paper's
method; its error rate is given with its time.
"""

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from toeplix.profiling import timing
from toeplix.profiling.progress import announce, tracked
from toeplix.reports.errata import CURVE_POINTS, sampled
from toeplix.spectral import index, indices, symbol
from toeplix.spectral.singular import extremes

COMPANION = (512, 1024)
SETS = ((16, 512), (16, 1024), (1, 16384), (1, 65536))


def run(console: Console, seconds: float) -> dict[str, Any]:
    """Measure, print a table, and return the results as a JSON document."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for filters, taps in tracked(SETS, "certified indices", console, _spelled):
        kernel = torch.randn(filters, taps, generator=generator)
        rows.append(measure(kernel, seconds))
    layers = torch.randn(16, 1024, generator=generator)
    long = torch.randn(65536, generator=generator)
    calls = {
        "symbols, 16 layers, 2^16 points": lambda: symbol(layers, 2**16),
        "singular values, n=65536": lambda: extremes(long),
    }
    announce(f"{' and '.join(calls)}")
    others = {
        name: statistics.median(taken)
        for name, taken in timing.interleaved(calls, seconds=seconds, least=3).items()
    }
    console.print(table(rows, others))
    return {"indices": rows, "seconds": others}


def measure(kernel: torch.Tensor, seconds: float) -> dict[str, Any]:
    """Measure one set of filters."""
    filters, taps = kernel.shape
    calls: dict[str, Any] = {"certified": lambda: indices(kernel)}
    if taps in COMPANION:
        one = kernel[0]
        calls["certified, one"] = lambda: index(one)
        calls["companion, one"] = lambda: np.roots(one.double().numpy()[::-1])
        calls["uniform"] = lambda: sampled(kernel, CURVE_POINTS)
    times = timing.interleaved(calls, seconds=seconds, least=3)
    proofs = indices(kernel)
    row: dict[str, Any] = {
        "filters": filters,
        "taps": taps,
        "seconds": statistics.median(times["certified"]),
        "certified": sum(proof.status == "certified" for proof in proofs),
        "companion_over_ours": None,
        "uniform_over_ours": None,
        "uniform_wrong": None,
    }
    if taps in COMPANION:
        exact = np.array([proof.index for proof in proofs])
        row["companion_over_ours"] = _ratio(times, "companion, one", "certified, one")
        row["uniform_over_ours"] = _ratio(times, "uniform", "certified")
        row["uniform_wrong"] = int((sampled(kernel, CURVE_POINTS) != exact).sum())
    return row


def _spelled(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


def _ratio(times: Mapping[str, list[float]], slow: str, fast: str) -> float:
    return timing.median_ratio(times[slow], times[fast])


def table(rows: list[dict[str, Any]], others: dict[str, float]) -> Table:
    drawn = Table(
        title=f"certified indices; companion roots and uniform sampling ({CURVE_POINTS} points) over ours"
    )
    heads = ("filters", "seconds", "certified", "roots", "uniform", "uniform wrong on")
    for column in heads:
        drawn.add_column(column, justify="left" if column == "filters" else "right")
    for row in rows:
        companion, uniform = row["companion_over_ours"], row["uniform_over_ours"]
        drawn.add_row(
            _spelled((row["filters"], row["taps"])),
            f"{row['seconds']:.3f}",
            str(row["certified"]),
            f"{companion:.0f}x" if companion else "-",
            f"{uniform:.1f}x" if uniform else "-",
            "-" if row["uniform_wrong"] is None else f"{row['uniform_wrong']}",
        )
    for name, taken in others.items():
        drawn.add_row(name, f"{taken:.3f}", *[""] * 4)
    return drawn
