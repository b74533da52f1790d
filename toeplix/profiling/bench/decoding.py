"""Decoding latency by context: preallocated history, near-linear, and concatenation.

One layer, batch 1. `history` and `concatenate` are timed at the full context, because their cost grows
with it. `online` is timed over a whole run from position 0 to the context, so that tiles of all sizes
are included.
"""

import statistics
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from toeplix.ops.decoding.history import History
from toeplix.ops.decoding.online import Online
from toeplix.profiling import timing
from toeplix.profiling.progress import tracked

CONTEXTS = (512, 2048, 8192, 32768)
TIMED_STEPS = 24  # steps timed at full context


def decoding_rows(console: Console, dim: int = 512) -> list[dict[str, Any]]:
    rows = []
    for context in tracked(CONTEXTS, "decoding", console):
        kernel = timing.randn(1, context, seed=1) / context**0.5
        x = timing.randn(1, context, 1, dim)
        seconds = {
            "concatenate": _concatenating(kernel, x),
            "history": _reading(kernel, x),
            "online": _whole_run(kernel, x),
        }
        state = Online(kernel, x[:, :0])
        rows.append(
            {
                "context": context,
                "dim": dim,
                "microseconds": {name: round(s * 1e6, 1) for name, s in seconds.items()},
                "online_bytes": state.bytes,
                "history_bytes": History(kernel, x).bytes,
            }
        )
    return rows


def decoding_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="decoding, one layer, batch 1: microseconds per token (tokens/s)")
    for column in ("context", "concatenate", "history", "online", "online over its 2048"):
        table.add_column(column, justify="right")
    base = next(row["microseconds"]["online"] for row in rows if row["context"] == 2048)
    for row in rows:
        times = row["microseconds"]
        table.add_row(
            str(row["context"]),
            *(f"{us:.0f} ({1e6 / us:.0f}/s)" for us in times.values()),
            f"{times['online'] / base:.2f}x",
        )
    return table


@torch.no_grad()
def _concatenating(kernel: Tensor, x: Tensor) -> float:
    """Time decode steps in which the history grows by `cat` and is contracted as a whole."""
    history = x[:, : x.shape[1] - TIMED_STEPS]
    taken = []
    for position in range(x.shape[1] - TIMED_STEPS, x.shape[1]):
        start = time.perf_counter()
        history = torch.cat([history, x[:, position : position + 1]], 1)
        weights = kernel[:, : history.shape[1]].flip(-1)
        torch.einsum("hs,bshc->bhc", weights, history)
        timing.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _reading(kernel: Tensor, x: Tensor) -> float:
    past = x.shape[1] - TIMED_STEPS
    state = History(kernel, x[:, :past], horizon=TIMED_STEPS)
    taken = []
    for position in range(past, x.shape[1]):
        start = time.perf_counter()
        state.step(x[:, position])
        timing.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _whole_run(kernel: Tensor, x: Tensor) -> float:
    """Time a whole run; the first of two runs is warmup, in which matrices and spectra are prepared."""
    state = Online(kernel, x[:, :0])
    for _ in range(2):
        start = time.perf_counter()
        for position in range(x.shape[1]):
            state.step(x[:, position])
        timing.synchronize()
        taken = time.perf_counter() - start
    return taken / x.shape[1]
