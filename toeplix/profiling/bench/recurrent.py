"""The linear-time product with recurrent filters: time relative to the FFT path, and growth with length.

A ratio is the time of `toeplitz(path="fft")` over that of `toeplitz_recurrent`, for the same filter. The
size of x is the same in every row of the growth table, so linear time means equal times per element.
"""

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from toeplix.ops import recurrent_kernel, toeplitz, toeplitz_recurrent
from toeplix.profiling import timing
from toeplix.profiling.progress import tracked

FREE_TAPS, DECAYS = 16, 8


class Case(NamedTuple):
    batch: int
    time: int
    dim: int
    heads: int
    asked: float | None = None  # the minimum ratio that forward+backward should have

    @property
    def elements(self) -> int:
        return self.batch * self.time * self.dim


CASES = (
    Case(8, 1024, 512, 1, asked=1.0),
    Case(8, 1024, 512, 8),
    Case(1, 16384, 512, 1, asked=1.8),
    Case(1, 16384, 512, 8),
)
GROWTH_TIMES = (2048, 8192, 32768, 131072, 262144)
GROWTH_ELEMENTS = 2**22  # elements of x in every row of the growth table


def run(console: Console, *, seconds: float) -> dict[str, Any]:
    """Measure, print tables to `console`, and return the results as a JSON document."""
    machine = timing.describe_machine() | timing.machine_limits()._asdict()
    found = measure(console, most=2**62, seconds=seconds)
    return {"benchmark": "recurrent", "machine": machine, **found}


def measure(console: Console, *, most: int, seconds: float) -> dict[str, Any]:
    """Measure all tables, those beside the FFT path for x of up to `most` elements, and print them."""
    beside = recurrent_rows(console, most=most, seconds=seconds)
    growth, held = growth_rows(seconds=seconds), list(recurrent_memory_rows())
    console.print(*recurrent_tables(beside, growth, held))
    return {"beside_fft": beside, "growth": growth, "memory": held}


def filters(heads: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random taps and weights, and decays with time constants from 2 to twice `longest`."""
    spans = torch.logspace(0, 1, DECAYS, base=longest, dtype=torch.float32) * 2
    free, weights = (
        timing.randn(heads, FREE_TAPS, seed=1) / 4,
        timing.randn(heads, DECAYS, seed=2) / 8,
    )
    return free, weights, torch.exp(-1 / spans).to(free)


def recurrent_rows(console: Console, *, most: int, seconds: float) -> list[dict[str, Any]]:
    """Compare forward and forward+backward with the FFT path, for x of up to `most` elements."""
    cases = [case for case in CASES if case.elements <= most]
    rows = []
    for case in tracked(
        cases, "recurrent", console, lambda case: f"t={case.time}, b={case.batch}, d={case.dim}"
    ):
        for backward in (False, True):
            calls = {name: _call(name, case, backward) for name in ("recurrent", "fft")}
            times = timing.interleaved(calls, seconds=seconds, least=3)
            rows.append(
                case._asdict()
                | {
                    "backward": backward,
                    "milliseconds": round(statistics.median(times["recurrent"]) * 1e3, 4),
                    "ratio": round(timing.median_ratio(times["fft"], times["recurrent"]), 2),
                }
            )
    return rows


def growth_rows(*, seconds: float, times: tuple[int, ...] = GROWTH_TIMES) -> list[dict[str, Any]]:
    """Measure nanoseconds per element of forward+backward with batch 1, for equal sizes of x."""
    cases = {time: Case(1, time, max(1, GROWTH_ELEMENTS // time), 1) for time in times}
    calls = {str(time): _call("recurrent", case, True) for time, case in cases.items()}
    taken = timing.interleaved(calls, seconds=seconds, least=3)
    return [
        {
            "time": time,
            "nanoseconds_per_element": round(
                statistics.median(taken[str(time)]) / case.elements * 1e9, 3
            ),
        }
        for time, case in cases.items()
    ]


def recurrent_memory_rows(*, time: int = 16384, dim: int = 512) -> Iterator[dict[str, Any]]:
    """Measure peak memory of forward+backward beyond inputs, in sizes of x, with y and dx."""
    case = Case(1, time, dim, 1)
    peak = timing.peak_extra_bytes(_prepared, case)
    if peak is not None:
        yield case._asdict() | {"peak": peak / (4 * case.elements)}


def recurrent_tables(
    rows: list[dict[str, Any]], growth: list[dict[str, Any]], memory: list[dict[str, Any]]
) -> list[Table]:
    beside = Table(
        title=f"recurrent filters ({FREE_TAPS} taps, {DECAYS} decays): the FFT's time over ours"
    )
    for column in ("t", "h", "b", "d", "pass", "ms", "ratio"):
        beside.add_column(column, justify="left" if column == "pass" else "right")
    for row in rows:
        asked = row["asked"] if row["backward"] else None
        beside.add_row(
            *(str(row[key]) for key in ("time", "heads", "batch", "dim")),
            "fwd+bwd" if row["backward"] else "fwd",
            f"{row['milliseconds']:.2f}",
            f"{row['ratio']:.2f}x" + (f" (>= {asked})" if asked else ""),
        )
    linear = Table(title="recurrent filters, forward+backward, one size of x: linear in time")
    for column in ("t", "ns/el"):
        linear.add_column(column, justify="right")
    for row in growth:
        linear.add_row(str(row["time"]), f"{row['nanoseconds_per_element']:.1f}")
    for row in memory:
        linear.caption = (
            f"peak extra memory at t={row['time']}: {row['peak']:.2f} sizes of x (<= 3.5)"
        )
    return [beside, linear]


def _call(name: str, case: Case, backward: bool) -> timing.Contender:
    batch, time, dim, heads, _ = case
    x = timing.randn(batch, time, heads, dim // heads).requires_grad_(backward)
    free, weights, decays = (part.requires_grad_(backward) for part in filters(heads, time))
    parts = (free, weights, decays)
    kernel = recurrent_kernel(free, weights, decays, time).detach().requires_grad_(backward)
    g = timing.randn(*x.shape, seed=3)
    if name == "fft":
        if backward:
            return lambda: torch.autograd.grad(toeplitz(x, kernel, path="fft"), (x, kernel), g)
        return lambda: toeplitz(x, kernel, path="fft")
    if backward:
        return lambda: torch.autograd.grad(toeplitz_recurrent(x, *parts)[0], (x, *parts), g)
    return lambda: toeplitz_recurrent(x, *parts)[0]


def _prepared(case: Case) -> timing.Contender:
    """Return the call to measure, in a new process; memory allocated here is not counted."""
    batch, time, dim, heads, _ = case
    x = timing.randn(batch, time, heads, dim // heads).requires_grad_()
    parts = [part.requires_grad_() for part in filters(heads, time)]
    g = timing.randn(*x.shape, seed=3)
    small = x[:, :256, :, :4].detach().requires_grad_()
    torch.autograd.grad(toeplitz_recurrent(small, *parts)[0], small, g[:, :256, :, :4])

    def call() -> object:
        y, state = toeplitz_recurrent(x, *parts)
        return y, state, torch.autograd.grad(y, (x, *parts), g)

    return call
