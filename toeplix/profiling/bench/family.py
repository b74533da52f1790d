"""`toeplix bench family`: models with recurrent filters and lookup blocks beside free filters and others.

training   time of a step, as ratios to the model with free filters, interleaved
decoding   milliseconds per token after a short and after a long prompt, interleaved; prompts are read in
           chunks, so that the memory of prefill does not grow with their length
state      bytes of decoding state of one row after `STATE_TOKENS` tokens, as ratios to Mamba 2's, and of
           ROWS rows together
"""

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from toeplix.architectures import build, state_bytes
from toeplix.config import LOOKUP_BLOCKS, Model
from toeplix.inference.weight_layout import for_decoding
from toeplix.model import LanguageModel
from toeplix.profiling import timing
from toeplix.profiling.bench.training import prepare
from toeplix.profiling.progress import announce
from toeplix.training.allocator import keep_freed_memory

CASES: dict[str, dict[str, Any]] = {
    "free": {"arch": "toeplitz", "filter": "free"},
    "recurrent": {"arch": "toeplitz", "filter": "recurrent"},
    "lookup 1 of 4": {"blocks": LOOKUP_BLOCKS, "filter": "recurrent"},
    "hyena": {"arch": "hyena"},
    "llama": {"arch": "llama"},
    "mamba2": {"arch": "mamba2"},
}
DECODED = "lookup 1 of 4"
STATE_TOKENS, ROWS = 32768, 64
CHUNK = 4096  # positions of a prompt that are read at once
STEPS = 64  # tokens of one timing


def run(
    console: Console,
    *,
    dim: int,
    depth: int,
    batch: int,
    context: int,
    contexts: list[int],
    seconds: float,
) -> Any:
    """Measure, print tables, and return the results as a JSON document."""
    keep_freed_memory()
    sizes = {"dim": dim, "depth": depth, "context": context}
    configs = {name: _config(name, **sizes) for name in CASES}
    found = {
        "training": training(configs, batch, seconds),
        "decoding": decoding(configs[DECODED], contexts),
        "state": state(configs),
    }
    titles = {
        "training": f"training step, {depth} layers of {dim}, {batch} x {context} tokens",
        "decoding": f"decoding, {depth} layers of {dim}, batch 1, {DECODED}",
        "state": f"decoding state after {STATE_TOKENS:,} tokens, {depth} layers of {dim}",
    }
    for part, rows in found.items():
        drawn = Table(title=titles[part])
        for column in rows[0]:
            drawn.add_column(column.replace("_", " "), justify="right")
        for row in rows:
            drawn.add_row(
                *(f"{value:,}" if type(value) is int else str(value) for value in row.values())
            )
        console.print(drawn)
    machine = timing.describe_machine() | timing.machine_limits()._asdict()
    return {"benchmark": "family", "machine": machine, "batch": batch, **sizes, **found}


def _config(name: str, *, dim: int, depth: int, context: int) -> Model:
    config = Model(**CASES[name], dim=dim, depth=depth, context=context)
    return replace(config, state_size=max(1, dim // 2)) if config.arch == "mamba2" else config


def training(configs: dict[str, Model], batch: int, seconds: float) -> list[dict[str, Any]]:
    """Return milliseconds of a training step, and ratios to free filters."""
    steps = {name: prepare(name, config, batch) for name, config in configs.items()}
    announce(f"training steps of {len(steps)} models, at least {len(steps) * seconds:.0f} s")
    times = timing.interleaved(steps, seconds=seconds, least=3)
    return [
        {
            "model": name,
            "milliseconds": round(statistics.median(taken) * 1e3, 1),
            "over_free": round(timing.median_ratio(taken, times["free"]), 3),
        }
        for name, taken in times.items()
    ]


def decoding(config: Model, contexts: list[int]) -> list[dict[str, Any]]:
    """Return milliseconds per token after prompts of these lengths, and ratios to the shortest."""
    torch.manual_seed(0)
    model = build(config).eval()
    for_decoding(model)
    steps = {str(length): stepper(model, length) for length in sorted(contexts)}
    announce(f"decode steps after prompts of {', '.join(steps)} tokens")
    times = timing.interleaved(steps, seconds=4.0, least=3)
    first = times[str(min(contexts))]
    return [
        {
            "context": int(length),
            "milliseconds": round(statistics.median(taken) * 1e3 / STEPS, 3),
            "over_shortest": round(timing.median_ratio(taken, first), 3),
        }
        for length, taken in times.items()
    ]


@torch.no_grad()
def stepper(model: LanguageModel, length: int) -> Callable[[], object]:
    """Return a function that decodes STEPS tokens after a prompt of `length` tokens."""
    tokens, state = torch.randint(model.config.vocab, (1, length)), model.start()
    for part in tokens.split(CHUNK, 1):
        _, state = model.advance(part, state)
    state.begin_decoding()
    token = tokens[:, -1:]

    def step() -> object:
        logits = None
        for _ in range(STEPS):
            logits, _ = model.step(token, state)
        return logits

    return step


def state(configs: dict[str, Model]) -> list[dict[str, Any]]:
    """Return bytes of decoding state by formula, which tests compare with what models keep."""
    mamba = state_bytes(configs["mamba2"], STATE_TOKENS)
    rows: list[dict[str, Any]] = []
    for name, config in configs.items():
        # filters that read the whole prompt have as many taps
        whole = replace(config, context=max(config.context, STATE_TOKENS))
        size = state_bytes(whole, STATE_TOKENS)
        together = f"{ROWS * size / 2**20:.1f}"
        rows.append(
            {
                "model": name,
                "bytes": size,
                "over_mamba2": round(size / mamba, 3),
                f"MiB_of_{ROWS}_rows": together,
            }
        )
    return rows
