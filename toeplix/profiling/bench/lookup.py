"""Lookup by its three ways, forward+backward: where each is the fastest (`toeplix bench ops`).

    tiles       block rows of (Q K^T * T) V: O(t n)
    chunks      recurrent filters with states between chunks: O(t)
    products    e Toeplitz products of free filters: O(e t log n)

`dispatch.LOOKUP_CHUNKS` is the longest sequence for which tiles are taken and not chunks,
`dispatch.LOOKUP_TILES` times e the longest filter for which tiles are taken and not products. Ways take
turns; ratios are medians over rounds of the time of tiles over that of the other, by the clock and by CPU
time, which is comparable on one thread while the machine does other work.
"""

import statistics
import time
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from toeplix.ops import toeplitz_lookup, toeplitz_lookup_recurrent
from toeplix.profiling import timing

HEADS, KEYS, CHANNELS, DECAYS = 4, 8, 128, 8  # of the default model
LENGTHS = (128, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
CHUNKS_FROM, CHUNKS_TO, PRODUCTS_FROM = 128, 2048, 1024  # lengths at which a way is compared
TOKENS = 2048  # of a batch, for sequences that are shorter
CLOCKS = {"seconds": time.perf_counter, "cpu_seconds": time.process_time}


def lookup_rows(
    console: Console, *, rounds: int = 5, lengths: tuple[int, ...] = LENGTHS
) -> list[dict[str, Any]]:
    """Measure forward and forward+backward of all ways at every length."""
    rows = []
    for length in track(lengths, "lookup", console=console, transient=True):
        for backward in (False, True):
            calls = _calls(length, backward)
            taken: dict[str, dict[str, list[float]]] = {
                name: {clock: [] for clock in CLOCKS} for name in calls
            }
            for number in range(rounds + 1):
                for name, call in calls.items():
                    before = {clock: now() for clock, now in CLOCKS.items()}
                    call()
                    timing.synchronize()
                    if number:  # the first round is warmup
                        for clock, now in CLOCKS.items():
                            taken[name][clock].append(now() - before[clock])
            row: dict[str, Any] = {"time": length, "batch": _batch(length), "backward": backward}
            for name, found in taken.items():
                row[name] = {
                    "milliseconds": round(statistics.median(found["seconds"]) * 1e3, 3),
                    "ratio": _ratio(taken, name, "seconds"),
                    "cpu_ratio": _ratio(taken, name, "cpu_seconds"),
                }
            rows.append(row)
    return rows


def _ratio(taken: dict[str, dict[str, list[float]]], name: str, clock: str) -> float:
    return round(timing.median_ratio(taken["tiles"][clock], taken[name][clock]), 3)


def lookup_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title=f"lookup, {HEADS} heads, {KEYS} keys, {CHANNELS} channels: the time of tiles over others"
    )
    columns = ("t", "b", "pass", "tiles, ms", "chunks", "chunks, CPU", "products", "products, CPU")
    for column in columns:
        table.add_column(column, justify="left" if column == "pass" else "right")
    for row in rows:
        others = []
        for name in ("chunks", "products"):
            for key in ("ratio", "cpu_ratio"):
                others.append(f"{row[name][key]:.2f}" if name in row else "")
        table.add_row(
            str(row["time"]),
            str(row["batch"]),
            "fwd+bwd" if row["backward"] else "fwd",
            f"{row['tiles']['milliseconds']:.2f}",
            *others,
        )
    return table


def _batch(length: int) -> int:
    return max(1, TOKENS // length)


def _calls(length: int, backward: bool) -> dict[str, timing.Contender]:
    """Return the ways that are compared at a length."""
    shape = (_batch(length), length, HEADS)
    q, k = (timing.randn(*shape, KEYS, seed=seed).requires_grad_(backward) for seed in (0, 1))
    v = timing.randn(*shape, CHANNELS, seed=2).requires_grad_(backward)
    g = timing.randn(*shape, CHANNELS, seed=3)
    weights = timing.randn(HEADS, DECAYS, seed=4).requires_grad_(backward)
    kernel = timing.randn(HEADS, length, seed=5).requires_grad_(backward)
    decays = torch.exp(-1 / (2 * torch.logspace(0, 1, DECAYS, base=length))).to(v.device)

    def free(path: str) -> timing.Contender:
        def call() -> object:
            y = toeplitz_lookup(q, k, v, kernel, path=path)
            return torch.autograd.grad(y, (q, k, v, kernel), g) if backward else y

        return call

    def chunks() -> object:
        y, _ = toeplitz_lookup_recurrent(q, k, v, weights, decays)
        return torch.autograd.grad(y, (q, k, v, weights), g) if backward else y

    calls = {"tiles": free("tiles")}
    if CHUNKS_FROM <= length <= CHUNKS_TO:
        calls["chunks"] = chunks
    if length >= PRODUCTS_FROM:
        calls["products"] = free("products")
    return calls
