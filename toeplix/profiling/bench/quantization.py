"""`toeplix bench quantize`: decode steps with weights in int8 and bfloat16, relative to float32.

All models take turns within one process, a few steps each, at every batch size. Ratios are medians over
rounds of tokens per second relative to float32, by the clock and by CPU time: the latter is comparable on
one thread while the machine does other work. Weights are random, as time does not depend on them.
"""

import copy
import statistics
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from toeplix.architectures import build
from toeplix.config import Model
from toeplix.inference.quantization import quantize, weight_bytes
from toeplix.inference.weight_layout import for_decoding
from toeplix.mixers.quantized import SCHEMES
from toeplix.model import LanguageModel
from toeplix.profiling import timing
from toeplix.profiling.progress import tracked

FLOAT = "float32"
PROMPT, STEPS = 32, 8  # tokens before the first timed step; steps of a model per round
CLOCKS = {"seconds": time.perf_counter, "cpu_seconds": time.process_time}


def run(console: Console, *, model: Model, batches: list[int], rounds: int) -> dict[str, Any]:
    """Measure decode steps of float32 and of every scheme, at every batch size."""
    models = _models(model)
    rows: list[dict[str, Any]] = []
    for batch in tracked(batches, "decoding", console):
        rows += _rows(models, batch, rounds)
    drawn = Table(title=f"decode steps, {model.depth} layers of {model.dim}: relative to float32")
    columns = ("batch", "weights", "tokens/s", "ratio", "ratio, CPU time", "linear layers, MB")
    for column in columns:
        drawn.add_column(column, justify="right")
    for row in rows:
        drawn.add_row(
            str(row["batch"]),
            row["weights"],
            f"{row['tokens_per_second']:.1f}",
            f"{row['ratio']:.2f}",
            f"{row['cpu_ratio']:.2f}",
            f"{row['linear_bytes'] / 1e6:.0f}",
        )
    console.print(drawn)
    sizes = {"dim": model.dim, "depth": model.depth, "context": model.context}
    return {
        "benchmark": "quantize",
        "machine": timing.describe_machine(),
        "model": sizes,
        "rows": rows,
    }


def _models(config: Model) -> dict[str, LanguageModel]:
    torch.manual_seed(0)
    reference = build(config).eval()
    models = {FLOAT: reference}
    for scheme in SCHEMES:
        models[scheme] = copy.deepcopy(reference)
        quantize(models[scheme], scheme)
    for_decoding(reference)
    return models


def _rows(models: dict[str, LanguageModel], batch: int, rounds: int) -> list[dict[str, Any]]:
    config = models[FLOAT].config
    prompt = torch.randint(config.vocab, (batch, min(PROMPT, config.context)))
    states = {}
    for name, model in models.items():
        states[name] = model.step(prompt, last=True)[1]
        states[name].begin_decoding()
    token = prompt[:, :1]
    taken: dict[str, dict[str, list[float]]] = {n: {c: [] for c in CLOCKS} for n in models}
    for number in range(rounds + 1):
        for name, model in models.items():
            before = {clock: now() for clock, now in CLOCKS.items()}
            for _ in range(STEPS):
                _, states[name] = model.step(token, states[name])
            if number:  # the first round is warmup
                for clock, now in CLOCKS.items():
                    taken[name][clock].append((now() - before[clock]) / STEPS)
    return [
        {
            "batch": batch,
            "weights": name,
            "milliseconds": round(statistics.median(found["seconds"]) * 1e3, 3),
            "tokens_per_second": round(batch / statistics.median(found["seconds"]), 2),
            "ratio": round(timing.median_ratio(taken[FLOAT]["seconds"], found["seconds"]), 3),
            "cpu_ratio": round(
                timing.median_ratio(taken[FLOAT]["cpu_seconds"], found["cpu_seconds"]), 3
            ),
            "linear_bytes": weight_bytes(models[name])[1],
        }
        for name, found in taken.items()
    ]
