"""Throughput and memory in training (Tables S1 to S4), by width, as ratios to the flat Toeplitz model.

A training step is forward pass, loss, backward pass, gradient clipping and AdamW on random tokens; the
timings of models of one width are interleaved. Memory is the peak of a step beyond the weights, measured
in a separate process. Without its CUDA kernels Mamba 2 runs a scan in PyTorch (in rows before 2026-11-18
that of Hugging Face, which takes longer), one sequence at a time to limit memory: its time ratios hold
for this device only, and its memory is not comparable.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from toeplix.experiments.engine import intervals, style
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, model
from toeplix.experiments.engine.rows import Found, Table, provenance
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.verdicts import Comparison, decide, not_testable, slower

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
    device: str  # not in old rows, which are of a CPU
    steps_per_second: dict[str, float]
    ratio: dict[str, float]
    spread: dict[str, list[float]]  # of older rows: lowest and highest ratio over rounds
    rounds: dict[str, list[float]]  # ratio of every round
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
        "rounds": {name: timing.round_ratios(times[name], base) for name in COMPARED},
        "device": provenance()["device"],
        "peak_bytes": {
            name: timing.peak_extra_bytes(prepare, name, config, case.batch)
            for name, config in (configs if case.memory else {}).items()
        },
    }


def figure(rows: list[ThroughputRow], published: list[ThroughputRow]) -> Figure:
    drawing, axes = style.panels(2, width=4.2)
    looks = style.looks(COMPARED)
    widths: set[int] = set()
    for place, what in zip(axes, ("ratio", "memory"), strict=True):
        for name in COMPARED:
            for source, hollow in ((rows, False), (published, True)):
                points = sorted(
                    (row["dim"], value) for row in source if (value := relative(row, name, what))
                )
                widths |= {dim for dim, _ in points}
                if points:
                    fill: dict[str, Any] = (
                        {"markerfacecolor": "none", "alpha": 0.6} if hollow else {}
                    )
                    label = None if hollow else name
                    own: dict[str, Any] = looks[name] | {"label": label, "markersize": 4.5, **fill}
                    place.plot(*zip(*points, strict=True), **own)
    for place, y in zip(axes, ("time of a step", "peak memory"), strict=True):
        style.plain_ticks(place, widths)
        style.finish(place, x="width", y=f"{y} / paper flat", title=y)
    caption = (
        "Training step relative to the paper's flat model: medians of interleaved steps on this "
        "machine (filled), and the published tables S1 to S4 on a GPU (hollow)."
    )
    return style.compose(drawing, caption)


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
    found: dict[str, list[Comparison] | Verdict] = {
        "C18a": _slower(row, "hyena"),
        "C18b": _slower(row, "mamba2"),
    }
    if row.get("device", "cpu") == "cpu":
        known = _slower(row, "mamba2")
        words = known.ours if isinstance(known, Verdict) else str(known[0])
        found["C18b"] = not_testable(
            "without its CUDA kernels Mamba 2 runs a scan in PyTorch", words
        )
    if memory := relative(row, "hyena", "memory"):
        name = f"peak memory of hyena over that of flat TMM, d = {row['dim']}"
        ratio = intervals.exact(memory)
        found["C18c"] = [Comparison(name=name, interval=ratio, bound=1.0, above=True)]
    return decide(found)


def _slower(row: ThroughputRow, name: str) -> list[Comparison] | Verdict:
    """Compare the time of a step with that of flat TMM."""
    return slower(
        f"time of {name} over that of flat TMM, d = {row['dim']}",
        row["ratio"][name],
        row.get("rounds", {}).get(name, ()),
        row.get("spread", {}).get(name, ()),
    )
