"""Time and memory against context length (sections 4 and 5): exponents, and prefill against attention.

Three measurements at lengths from 128 to 65536: one product of the operator by its dense and FFT paths; a
training step of one layer; prefill of a prompt by the whole model. A power of n is fitted to lengths from
2048 on, where n log n fits as about n^1.1. Intervals of exponents are those of the fit, over lengths;
those of ratios of times are over rounds of timing.
"""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from toeplix.experiments.engine import style
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.intervals import Interval, exact
from toeplix.experiments.engine.models import MODELS, model
from toeplix.experiments.engine.rows import Found, Row, Table, provenance
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.thresholds import BETWEEN_POWERS
from toeplix.experiments.engine.verdicts import Comparison, counted, decide, not_testable, slower

CLAIMS, MEASURES_TIME = ("C19", "C20"), True
COST = "8 minutes on two idle cores"
COMPARED = ("toeplitz", "paper flat", "hyena", "masked", "llama")
MAX_CONTEXT = {
    "masked": 8192,
    "llama": 16384,
    "dense": 8192,
}  # longer ones take minutes or too much memory
FIT_SPAN = 32  # exponents are fitted from longest / FIT_SPAN on; below, overhead of calls dominates
SHORT = 1024  # lengths up to which the paper computes dense products
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
    spread: NotRequired[dict[str, list[float]]]  # of older rows: lowest and highest ratio
    rounds: NotRequired[dict[str, list[float]]]  # ratio to flat TMM in every round; not in old rows
    device: NotRequired[str]  # not in old rows, which are of a CPU


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
        "rounds": round_ratios(times),
        "device": provenance()["device"],
        "peak_bytes": {
            name: timing.peak_extra_bytes(prepare, case, name) for name in fitting if case.memory
        },
    }


def round_ratios(times: dict[str, list[float]], base: str = "paper flat") -> dict[str, list[float]]:
    """Return the ratio to the base in every round, for all models but the base."""
    from toeplix.profiling import timing

    return {
        name: timing.round_ratios(taken, times[base])
        for name, taken in times.items()
        if base in times and name != base
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
    return Interval(line.slope, line.slope - half, line.slope + half, len(points) - 2)


def figure(rows: list[ComplexityRow], published: list[Row]) -> Figure:
    drawing, axes = style.panels(3, 2)
    contexts = sorted({row["context"] for row in rows})
    for column, what in enumerate(("operator", "training", "prefill")):
        for line, (field, unit) in enumerate(COLUMNS):
            place = axes[3 * line + column]
            here = sorted(
                (row for row in rows if row["what"] == what), key=lambda row: row["context"]
            )
            names = list(dict.fromkeys(name for row in here for name in row[field]))
            looks = style.looks(names)
            for name in names:
                points = [
                    (row["context"], row[field][name]) for row in here if row[field].get(name)
                ]
                if not points:
                    continue
                own: dict[str, Any] = looks[name] | {"label": name, "markersize": 4}
                place.plot(*zip(*points, strict=True), **own)
                if (exponent := fitted(rows, what, name, field)) is not None:
                    beside: dict[str, Any] = {"xytext": (4, -3), "color": own["color"]}
                    style.word(place, points[-1], f"{exponent.value:.2f}", **beside)
            style.plain_ticks(place, contexts[::2])
            place.set_xlim(contexts[0] / 1.3, contexts[-1] * 2.5)
            place.set_yscale("log")
            style.finish(place, x="context", y=unit, title=what)
    caption = (
        f"Time and memory by context. Numbers are exponents fitted from 1/{FIT_SPAN} of the longest "
        "context on; the table has their intervals."
    )
    return style.compose(drawing, caption)


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
    return decide(_growth(rows)) | decide(_prefill(rows))


def _growth(rows: list[ComplexityRow]) -> dict[str, list[Comparison] | Verdict]:
    """Judge C19. A power between those of n log n, about 1.1, and of n^2 is the bound of exponents."""
    exponents = {what: fitted(rows, what, "paper flat") for what in ("training", "prefill")}
    space = fitted(rows, "prefill", "paper flat", "peak_bytes")
    found: dict[str, list[Comparison] | Verdict] = {
        "C19a": [
            Comparison(name=f"{what}: exponent of time", interval=each, bound=BETWEEN_POWERS)
            for what, each in exponents.items()
            if each is not None
        ]
    }
    if space is not None:
        name = "prefill: exponent of memory"
        found["C19b"] = [Comparison(name=name, interval=space, bound=BETWEEN_POWERS)]
    short = [row for row in rows if row["what"] == "operator" and row["context"] <= SHORT]
    if short:
        dense = [row["seconds"]["dense"] < row["seconds"]["fft"] for row in short]
        words = f"{sum(dense)} of {len(dense)} lengths up to {SHORT}"
        found["C19c"] = (
            not_testable(
                "the claim is about tensor cores",
                f"on this CPU the dense path is faster at {words}",
            )
            if short[0].get("device", "cpu") == "cpu"
            else counted(all(dense), words, "the dense path is faster")
        )
    return found


def _prefill(rows: list[ComplexityRow]) -> dict[str, list[Comparison] | Verdict]:
    """Judge prefill at the longest context that attention can take."""
    both = [row for row in rows if row["what"] == "prefill" and "llama" in row["seconds"]]
    if not both:
        return {}
    row = max(both, key=lambda row: row["context"])
    ratio = row["seconds"]["llama"] / row["seconds"]["paper flat"]
    of = f"of attention over that of flat TMM, prefill of {row['context']} tokens"
    found: dict[str, list[Comparison] | Verdict] = {
        "C20a": slower(
            f"time {of}",
            ratio,
            row.get("rounds", {}).get("llama", ()),
            row.get("spread", {}).get("llama", ()),
        )
    }
    peaks = row["peak_bytes"]
    if peaks.get("llama") and peaks.get("paper flat"):
        memory = exact(peaks["llama"] / peaks["paper flat"])
        found["C20b"] = [Comparison(name=f"memory {of}", interval=memory, bound=1.0, above=True)]
    return found
