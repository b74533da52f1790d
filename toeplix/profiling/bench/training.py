"""`toeplix bench training`: time and memory of a training step of whole models.

A step is forward pass, loss over the vocabulary, backward pass, gradient clipping and AdamW on random
tokens; timings are interleaved. `plain` is a simple implementation of the flat Toeplitz model: the matrix
is gathered in every layer, all logits are in float32, AdamW is not fused. "limit" is the fraction of the
measured sgemm throughput that the model's FLOPs reach (three times the forward pass; of the Toeplitz
product the lower triangle only).
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from toeplix.architectures import build, forward_flops
from toeplix.config import Model
from toeplix.mixers.filter import Filter
from toeplix.model import LanguageModel
from toeplix.ops import toeplitz_matrix
from toeplix.profiling import timing
from toeplix.profiling.progress import announce, tracked
from toeplix.training.allocator import keep_freed_memory
from toeplix.training.loss import vocabulary_loss

CASES: dict[str, dict[str, Any]] = {
    "toeplitz": {"heads": 0},
    "toeplitz, 4 heads": {"heads": 4},
    "masked": {"arch": "masked"},
    "hyena": {"arch": "hyena"},
    "llama": {"arch": "llama"},
    "mamba2": {"arch": "mamba2"},
}
PLAIN_TOEPLITZ = "toeplitz, plain"
# Mamba 2's scan in PyTorch needs gigabytes per sequence, so gradients are accumulated one by one.
ONE_BY_ONE = ("mamba2",)
# The paper's tables S1 to S4, two H100: steps per second and megabytes per device, by width.
PUBLISHED: dict[str, dict[int, tuple[float, int]]] = {
    "toeplitz": {512: (9.30, 16721), 1024: (5.25, 22741), 2048: (2.07, 45285)},
    "toeplitz, 4 heads": {512: (8.81, 16721), 1024: (4.85, 28253), 2048: (1.85, 53589)},
    "hyena": {512: (4.56, 23959), 1024: (2.47, 42831), 2048: (1.06, 85755)},
    "mamba2": {512: (3.84, 34491), 1024: (1.90, 63295)},
}


def published(case: str, dim: int) -> tuple[float | None, float | None]:
    """Return the published time and memory of a model relative to the flat one; None if not published."""
    theirs, flat = (PUBLISHED.get(name, {}).get(dim) for name in (case, "toeplitz"))
    if theirs is None or flat is None:
        return None, None
    return round(flat[0] / theirs[0], 2), round(theirs[1] / flat[1], 2)


def run(console: Console, *, dim: int, depth: int, batch: int, context: int, seconds: float) -> Any:
    """Measure, print a table, and return the results as a JSON document."""
    keep_freed_memory()
    limits = timing.machine_limits()
    sizes: dict[str, Any] = {"dim": dim, "depth": depth, "context": context}
    configs = {name: Model.paper(**sizes, **choice) for name, choice in CASES.items()}
    steps = {name: prepare(name, config, batch) for name, config in configs.items()}
    steps[PLAIN_TOEPLITZ] = prepare(PLAIN_TOEPLITZ, configs["toeplitz"], batch)
    announce(f"training steps of {len(steps)} models, at least {len(steps) * seconds:.0f} s")
    times = timing.interleaved(steps, seconds=seconds, least=3)
    del steps
    rows: list[dict[str, Any]] = []
    for name in tracked(list(times), "memory", console):
        config = configs.get(name, configs["toeplitz"])
        taken = statistics.median(times[name])
        peak = timing.peak_extra_bytes(prepare, name, config, batch)
        done = 3 * model_flops(config, context, batch)
        rows.append(
            {
                "case": name,
                "milliseconds": round(taken * 1e3, 1),
                "tokens_per_second": round(batch * context / taken),
                "ratio": round(timing.median_ratio(times[name], times["toeplitz"]), 3),
                "published_ratio": published(name, dim)[0],
                "limit": round(done / taken / 1e9 / limits.sgemm_gflops, 3),
                "peak_bytes": peak,
                "published_memory_ratio": published(name, dim)[1],
            }
        )
    flat = rows[0]["peak_bytes"]
    for row in rows:
        row["memory_ratio"] = round(row["peak_bytes"] / flat, 3) if flat else None
    console.print(table(rows, f"training, {depth} layers of {dim}, {batch} x {context} tokens"))
    machine = timing.describe_machine() | limits._asdict()
    return {"benchmark": "training", "machine": machine, "batch": batch, **sizes, "rows": rows}


def model_flops(config: Model, time: int, rows: int = 1) -> float:
    """Return the FLOPs of a forward pass; of blocked products the lower triangle."""
    if config.arch != "toeplitz" or config.filter != "free":
        return forward_flops(config, time, rows)
    projections = 4.0 * time * config.dim**2 if config.heads else 0.0
    channel = 4.0 * time * config.mlp_ratio * config.dim**2
    mixer = projections + config.dim * time * (time + 1)
    return rows * (config.depth * (mixer + channel) + 2.0 * time * config.dim * config.vocab)


def prepare(name: str, config: Model, batch: int) -> Callable[[], None]:
    """Build a model and an optimizer; return a function of which every call is one training step."""
    keep_freed_memory()
    torch.manual_seed(0)
    model = build(config)
    if name == PLAIN_TOEPLITZ:
        for module in model.modules():
            if isinstance(module, Filter):
                module.forward = partial(gathered, module)  # type: ignore[method-assign]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=name != PLAIN_TOEPLITZ)
    tokens = torch.randint(config.vocab, (batch, config.context + 1))
    loss = full_loss if name == PLAIN_TOEPLITZ else chunked_loss
    rows = tokens.split(1) if name in ONE_BY_ONE else (tokens,)
    # labels stay on the host, as in the training loop
    parts = [(part[:, :-1], part[:, 1:].cpu()) for part in rows]

    def step() -> None:
        for inputs, labels in parts:
            (loss(model, inputs, labels) / len(parts)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def chunked_loss(model: LanguageModel, tokens: Tensor, labels: Tensor) -> Tensor:
    value, number = vocabulary_loss(model.encode(tokens), model.head, labels)
    return value / number


def full_loss(model: LanguageModel, tokens: Tensor, labels: Tensor) -> Tensor:
    logits = model(tokens).flatten(0, 1).float()
    return cross_entropy(logits, labels.flatten().to(logits.device))


def gathered(layer: Filter, x: Tensor) -> Tensor:
    matrix = toeplitz_matrix(layer.kernel[:, 0, : x.shape[1]])
    return torch.einsum("hts,bshc->bthc", matrix, x) + layer.bias[:, : x.shape[1]].t()[:, :, None]


def table(rows: list[dict[str, Any]], title: str) -> Table:
    drawn = Table(title=title)
    drawn.caption = "ratios: to toeplitz, measured here and in the paper"
    columns = ("", "ms", "tokens/s", "ratio", "paper", "limit")
    for column in (*columns, "memory", "ratio", "paper"):
        drawn.add_column(column, justify="left" if not column else "right")
    for row in rows:
        peak = row["peak_bytes"]
        drawn.add_row(
            row["case"],
            f"{row['milliseconds']:.0f}",
            f"{row['tokens_per_second']}",
            f"{row['ratio']:.2f}",
            _ratio(row["published_ratio"]),
            f"{row['limit']:.0%}",
            "" if peak is None else f"{peak / 2**30:.1f} GiB",
            _ratio(row["memory_ratio"]),
            _ratio(row["published_memory_ratio"]),
        )
    return drawn


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
