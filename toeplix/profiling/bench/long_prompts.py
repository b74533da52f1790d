"""`toeplix bench long`: prompts up to a million tokens, read in chunks through the decoding state.

Reports for every length the time per token, relative to that of the first length, and the peak memory
beyond weights and prompt, each measured in a process of its own. Filters of `context` taps are sliding
windows beyond their context, so time per token and memory do not depend on the length. Llama (SDPA, with
KV cache) of the same width and depth reads each prompt at once, up to the lengths that it is given.
"""

from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from toeplix.architectures import build, state_bytes
from toeplix.config import Model
from toeplix.inference.generation import prefill
from toeplix.profiling import timing
from toeplix.profiling.progress import tracked
from toeplix.training.allocator import keep_freed_memory


def run(
    console: Console,
    *,
    model: Model,
    tokens: list[int],
    llama: list[int],
    chunk: int,
) -> dict[str, Any]:
    """Measure `model` at the lengths `tokens`, and Llama of its width and depth at `llama`."""
    other = Model(
        arch="llama", dim=model.dim, depth=model.depth, vocab=model.vocab, context=model.context
    )
    cases = [(model, length, chunk) for length in tokens] + [(other, n, n) for n in llama]
    rows: list[dict[str, Any]] = []
    for config, length, part in tracked(
        cases, "prefill", console, lambda case: f"{case[0].arch}, {case[1]} tokens"
    ):
        threads = torch.get_num_threads()
        cost = timing.cost_apart(reader, config, length, min(part, length), threads)
        rows.append(
            {
                "arch": config.arch,
                "tokens": length,
                "chunk": min(part, length),
                "seconds": round(cost.seconds, 3),
                "cpu_seconds": round(cost.cpu_seconds, 3),
                "microseconds_per_token": round(cost.seconds / length * 1e6, 3),
                "cpu_microseconds_per_token": round(cost.cpu_seconds / length * 1e6, 3),
                "peak_bytes": cost.peak_bytes,
                "state_bytes": state_bytes(config, length),
            }
        )
    for row in rows:
        first = next(each for each in rows if each["arch"] == row["arch"])
        for clock in ("", "cpu_"):
            name = f"{clock}microseconds_per_token"
            row[f"{clock}over_first"] = round(row[name] / first[name], 3)
    console.print(_table(rows, model))
    return {
        "benchmark": "long",
        "machine": timing.describe_machine(),
        "model": {"dim": model.dim, "depth": model.depth, "context": model.context},
        "rows": rows,
    }


def reader(config: Model, length: int, chunk: int, threads: int) -> Callable[[], object]:
    """Return a function that reads a prompt and returns logits and state, so that its memory counts."""
    keep_freed_memory()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = build(config).eval()
    tokens = torch.randint(config.vocab, (1, length))

    @torch.no_grad()
    def read() -> object:
        return prefill(model, tokens, chunk)

    # a short prompt first: filters' spectra, threads and the C library's memory are then as in use
    with torch.no_grad():
        prefill(model, tokens[:, : min(length, 2 * chunk, 2048)], chunk)
    return read


def _table(rows: list[dict[str, Any]], model: Model) -> Table:
    title = (
        f"prefill in chunks, {model.depth} layers of {model.dim}, context {model.context}, batch 1"
    )
    drawn = Table(title=title)
    columns = (
        "model",
        "tokens",
        "s",
        "us/token",
        "over first",
        "over first, CPU time",
        "peak, MiB",
    )
    for column in columns:
        drawn.add_column(column, justify="right")
    for row in rows:
        peak = row["peak_bytes"]
        drawn.add_row(
            row["arch"],
            str(row["tokens"]),
            f"{row['seconds']:.1f}",
            f"{row['microseconds_per_token']:.1f}",
            f"{row['over_first']:.2f}",
            f"{row['cpu_over_first']:.2f}",
            "" if peak is None else f"{peak / 2**20:.0f}",
        )
    return drawn
