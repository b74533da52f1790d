"""Throughput and memory in training (Tables S1 to S4), by width, as ratios to the flat Toeplitz model.

A training step is forward pass, loss, backward pass, gradient clipping and AdamW on random tokens; the
timings of models of one width are interleaved. Memory is the peak of a step beyond the weights, measured
in a separate process. Without its CUDA kernels Mamba 2 runs its reference scan in PyTorch, one sequence
at a time to limit memory: its time ratios hold for this device only, and its memory is not comparable.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from toeplix.experiments.engine import style
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, model
from toeplix.experiments.engine.rows import Found, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure

CLAIMS, MEASURES_TIME = ("C18",), True
COST = "5 minutes on two idle cores"
COMPARED = ("paper flat", "paper 4 heads", "toeplitz", "masked", "hyena", "llama", "mamba2")
BATCH, CONTEXT = 8, 512
ONE_BY_ONE = ("mamba2",)  # computed one sequence at a time in profiling.bench.training


@dataclass(frozen=True, kw_only=True)
class Case:
    """All models at one width."""

    dim: int
    depth: int
    context: int
    batch: int
    vocab: int
    timing: float
    memory: bool


class ThroughputRow(TypedDict, total=False):
    """A case, and speed and memory of every model by its name."""

    dim: int
    depth: int
    context: int
    batch: int
    vocab: int
    device: str  # of published rows
    steps_per_second: dict[str, float]
    ratio: dict[str, float]
    spread: dict[str, list[float]]
    peak_bytes: dict[str, int]


def cases(scale: Scale, rows: list[ThroughputRow]) -> list[Case]:
    small = scale.name == "smoke"
    return [
        Case(
            dim=dim,
            depth=scale.depth,
            context=scale.context if small else CONTEXT,
            batch=scale.batch if small else max(BATCH, scale.batch // 16),
            vocab=scale.vocab,
            timing=scale.timing,
            memory=scale.memory,
        )
        for dim in scale.dims
    ]


def measure(case: Case, work: Path) -> Found:
    from toeplix.profiling import timing
    from toeplix.profiling.bench.training import prepare

    sizes = {
        "dim": case.dim,
        "depth": case.depth,
        "context": case.context,
        "vocab": case.vocab,
    }
    configs = {name: model(MODELS[name], **sizes) for name in COMPARED}
    calls = {name: prepare(name, config, case.batch) for name, config in configs.items()}
    times = timing.interleaved(calls, seconds=case.timing, least=3)
    del calls
    base = times[COMPARED[0]]
    return {
        "steps_per_second": {name: 1 / statistics.median(times[name]) for name in COMPARED},
        "ratio": {name: timing.median_ratio(times[name], base) for name in COMPARED},
        "spread": {name: _spread(times[name], base) for name in COMPARED},
        "peak_bytes": {
            name: timing.peak_extra_bytes(prepare, name, config, case.batch)
            for name, config in (configs if case.memory else {}).items()
        },
    }


def _spread(times: list[float], base: list[float]) -> list[float]:
    """Return the lowest and highest ratio over rounds."""
    ratios = [slow / fast for slow, fast in zip(times, base, strict=False)]
    return [min(ratios), max(ratios)]


def figure(rows: list[ThroughputRow], published: list[ThroughputRow]) -> Figure:
    drawing = style.canvas(2)
    axes = drawing.subplots(1, 2)
    for place, what in zip(axes, ("ratio", "memory"), strict=True):
        for name in COMPARED:
            for source, hollow in ((rows, False), (published, True)):
                points = sorted(
                    (row["dim"], relative(row, name, what))
                    for row in source
                    if relative(row, name, what)
                )
                if points:
                    fill = {"markerfacecolor": "none", "alpha": 0.6} if hollow else {}
                    label = None if hollow else name
                    place.plot(*zip(*points, strict=True), **style.look(name, label=label, **fill))
        place.set_xscale("log", base=2)
    style.finish(axes[0], x="width", y="time of a step over flat TMM", title="hollow: published")
    style.finish(axes[1], x="width", y="peak memory over flat TMM", title="hollow: published")
    return drawing


def relative(row: ThroughputRow, name: str, what: str) -> float | None:
    """Return time or memory divided by that of the paper's flat model in the same row."""
    if what == "ratio":
        return row["ratio"].get(name)
    own, base = row["peak_bytes"].get(name), row["peak_bytes"].get(COMPARED[0])
    return own / base if own and base else None


def table(rows: list[ThroughputRow]) -> Table:
    return [
        {
            "width": row["dim"],
            "model": name,
            "steps per second": f"{row['steps_per_second'][name]:.2f}",
            "time / flat": f"{row['ratio'][name]:.2f}",
            "memory / flat": f"{relative(row, name, 'memory') or float('nan'):.2f}",
        }
        for row in sorted(rows, key=lambda row: row["dim"])
        for name in row["ratio"]
    ]


def holds(rows: list[ThroughputRow]) -> dict[str, Verdict]:
    if not rows:
        return {}
    row = max(rows, key=lambda row: row["dim"])
    answers, words = [], []
    for other in ("hyena", "mamba2"):
        low, high = row["spread"][other]
        memory = None if other in ONE_BY_ONE else relative(row, other, "memory")
        answers.append(low > 1 and (memory is None or memory > 1))
        share = "" if memory is None else f", {memory:.2f} times its memory"
        words.append(
            f"{other} takes {row['ratio'][other]:.2f} ({low:.2f} to {high:.2f}) times the time of flat "
            f"TMM{share}"
        )
    return {"C18": Verdict(holds=all(answers), ours=f"d = {row['dim']}: " + "; ".join(words))}
