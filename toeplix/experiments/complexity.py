"""Time and memory against context length (sections 4 and 5): exponents, and prefill against attention.

Three measurements at lengths from 128 to 65536: one product of the operator by its dense and FFT paths; a
training step of one layer; prefill of a prompt by the whole model. A power of n is fitted to lengths from
2048 on, where n log n fits as about n^1.1.
"""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from toeplix.experiments.engine import style
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.intervals import Interval
from toeplix.experiments.engine.models import MODELS, model
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure

CLAIMS, MEASURES_TIME = ("C19", "C20"), True
COST = "8 minutes on two idle cores"
COMPARED = ("toeplitz", "paper flat", "hyena", "masked", "llama")
MAX_CONTEXT = {
    "masked": 8192,
    "llama": 16384,
    "dense": 8192,
}  # longer ones take minutes or too much memory
FIT_SPAN = 32  # exponents are fitted from longest / FIT_SPAN on; below, overhead of calls dominates
PATHS = ("dense", "blocked", "fft")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measurement at one length."""

    what: str  # "operator", "training" or "prefill"
    context: int
    dim: int
    depth: int
    vocab: int
    timing: float
    memory: bool


Column = Literal["seconds", "peak_bytes"]

COLUMNS: tuple[tuple[Column, str], ...] = (("seconds", "seconds"), ("peak_bytes", "bytes"))


class ComplexityRow(TypedDict):
    """A case, and time and memory of every contender by its name."""

    what: str
    context: int
    dim: int
    depth: int
    vocab: int
    seconds: dict[str, float]
    peak_bytes: dict[str, int]


def cases(scale: Scale, rows: list[ComplexityRow]) -> list[Case]:
    depth = {"operator": 1, "training": 1, "prefill": scale.depth}
    return [
        Case(
            what=what,
            context=context,
            dim=max(16, scale.dim),
            depth=depth[what],
            vocab=scale.vocab,
            timing=scale.timing,
            memory=scale.memory,
        )
        for what in depth
        for context in scale.contexts
    ]


def measure(case: Case, work: Path) -> Found:
    from toeplix.profiling import timing

    names = PATHS if case.what == "operator" else COMPARED
    fitting = [name for name in names if case.context <= MAX_CONTEXT.get(name, math.inf)]
    calls = {name: prepare(case, name) for name in fitting}
    times = timing.interleaved(calls, seconds=case.timing, least=3, most=15)
    del calls
    return {
        "seconds": {name: statistics.median(times[name]) for name in fitting},
        "peak_bytes": {
            name: timing.peak_extra_bytes(prepare, case, name) for name in fitting if case.memory
        },
    }


def prepare(case: Case, name: str) -> Any:
    """Return the function that is timed, with its inputs and model prepared."""
    import torch

    from toeplix.architectures import build
    from toeplix.inference.generation import prefill
    from toeplix.ops import toeplitz
    from toeplix.profiling.timing import randn

    if case.what == "operator":
        x, kernel = randn(1, case.context, 1, case.dim), randn(1, case.context)
        return lambda: toeplitz(x, kernel, path=name)
    sizes = {"dim": case.dim, "depth": case.depth, "context": case.context, "vocab": case.vocab}
    config = model(MODELS[name], **sizes)
    if case.what == "training":
        from toeplix.profiling.bench import training

        return training.prepare(name, config, 1)
    torch.manual_seed(0)
    built = build(config).eval()
    tokens = torch.randint(config.vocab, (1, case.context))

    @torch.no_grad()
    def read() -> object:
        return prefill(built, tokens, case.context)

    return read


def fitted(
    rows: list[ComplexityRow], what: str, name: str, column: Column = "seconds"
) -> Interval | None:
    """Fit the exponent of n to lengths from longest / `FIT_SPAN` on, with its 95% interval."""
    points = sorted(
        (math.log(row["context"]), math.log(row[column][name]))
        for row in rows
        if row["what"] == what and row[column].get(name)
    )
    longest = max((row["context"] for row in rows), default=0)
    long = [point for point in points if point[0] >= math.log(longest / FIT_SPAN)]
    points = long if len(long) > 2 else points[-3:]
    if len(points) < 3:
        return None
    from scipy.stats import linregress, t

    line = linregress(*zip(*points, strict=True))
    half = t.ppf(0.975, len(points) - 2) * line.stderr
    return Interval(line.slope, line.slope - half, line.slope + half)


def figure(rows: list[ComplexityRow], published: list[Row]) -> Figure:
    drawing = style.canvas(3, 2)
    axes = drawing.subplots(2, 3)
    for column, what in enumerate(("operator", "training", "prefill")):
        for line, (field, unit) in enumerate(COLUMNS):
            place = axes[line][column]
            here = sorted(
                (row for row in rows if row["what"] == what), key=lambda row: row["context"]
            )
            for name in dict.fromkeys(name for row in here for name in row[field]):
                points = [
                    (row["context"], row[field][name]) for row in here if row[field].get(name)
                ]
                exponent = fitted(rows, what, name, field)
                label = name if exponent is None else f"{name}: n^{exponent.value:.2f}"
                if points:
                    place.plot(*zip(*points, strict=True), **style.look(name, label=label))
            place.set_xscale("log", base=2)
            place.set_yscale("log")
            style.finish(place, x="context", y=unit, title=what)
    return drawing


def table(rows: list[ComplexityRow]) -> Table:
    found = []
    for what in ("operator", "training", "prefill"):
        names = dict.fromkeys(
            name for row in rows if row["what"] == what for name in row["seconds"]
        )
        for name in names:
            exponents = [fitted(rows, what, name, column) for column in ("seconds", "peak_bytes")]
            found.append(
                {"what": what, "model": name}
                | {
                    label: "" if exponent is None else str(exponent)
                    for label, exponent in zip(("time ~ n^", "memory ~ n^"), exponents, strict=True)
                }
            )
    return found


def holds(rows: list[ComplexityRow]) -> dict[str, Verdict]:
    found = {}
    ours = {what: fitted(rows, what, "paper flat") for what in ("training", "prefill")}
    space = fitted(rows, "prefill", "paper flat", "peak_bytes")
    short = [row for row in rows if row["what"] == "operator" and row["context"] <= 1024]
    if all(ours.values()) and space and short:
        dense = [row["seconds"]["dense"] < row["seconds"]["fft"] for row in short]
        words = "; ".join(f"{what}: time ~ n^{value}" for what, value in ours.items())
        words += f"; memory of prefill ~ n^{space}; dense faster than FFT at "
        words += f"{sum(dense)} of {len(dense)} lengths up to 1024"
        near = all(value is not None and value.value < 1.35 for value in ours.values())
        found["C19"] = Verdict(holds=near and space.value < 1.35 and all(dense), ours=words)
    both = [row for row in rows if row["what"] == "prefill" and "llama" in row["seconds"]]
    if both:
        row = max(both, key=lambda row: row["context"])
        time = row["seconds"]["llama"] / row["seconds"]["paper flat"]
        peaks = row["peak_bytes"]
        lean = peaks["llama"] / peaks["paper flat"] if peaks.get("llama") else None
        words = f"prefill of {row['context']} tokens: attention takes {time:.1f} times as long"
        words += "" if lean is None else f" and {lean:.1f} times the memory"
        found["C20"] = Verdict(holds=time > 1 and (lean or 2) > 1, ours=words)
    return found
