"""Decoding: latency and state size of a decode step by the number of tokens before it.

Four methods: near-linear decoding (exact, this library's), the paper's cached inputs contracted at every
step ("history"), a Transformer's KV cache, and Mamba 2's state. The paper says that generation costs as
much as a Transformer's, O(n) per token; near-linear decoding costs O(log^2 n) per token on average.
"""

import math
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from toeplix.experiments.engine import intervals, style
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.verdicts import Comparison, decide

CLAIMS, MEASURES_TIME = ("C20",), True
COST = "1 minute on two idle cores"
LONG = 512  # tokens from which a context counts as long
WAYS = ("near-linear", "history", "llama", "mamba2")
TIMED_STEPS = {"near-linear": 512}  # its decode steps differ in cost, so more of them are averaged
DEFAULT_TIMED_STEPS = 24
WARMUP_STEPS = 8  # warmup steps: spectra and caches are made at first use


@dataclass(frozen=True, kw_only=True)
class Case:
    """One decoding method after one number of tokens."""

    way: str
    context: int
    dim: int
    depth: int
    tokens: int


class DecodingRow(TypedDict):
    """A case, and the latency and state of a decode step."""

    way: str
    context: int
    dim: int
    depth: int
    tokens: int
    mean_ms: float
    median_ms: float
    worst_ms: float
    state_bytes: int


def cases(scale: Scale, rows: list[DecodingRow]) -> list[Case]:
    lengths = [length for length in scale.contexts if length <= 2**15] or list(scale.contexts)
    return [
        Case(
            way=way,
            context=context,
            dim=max(32, scale.dim),
            depth=scale.depth,
            tokens=min(TIMED_STEPS.get(way, DEFAULT_TIMED_STEPS), context) + WARMUP_STEPS,
        )
        for context in lengths
        for way in WAYS
    ]


def measure(case: Case, work: Path) -> Found:
    import torch

    from toeplix.profiling.bench.inference import ready

    token, taken = torch.zeros(1, 1, dtype=torch.long), []
    with torch.no_grad():
        model, state = ready(case.way, case.context, case.dim, case.depth)
        for _ in range(case.tokens):
            start = time.perf_counter()
            _, state = model.step(token, state)
            taken.append(time.perf_counter() - start)
    taken = taken[WARMUP_STEPS:]
    return {
        "mean_ms": statistics.fmean(taken) * 1e3,
        "median_ms": statistics.median(taken) * 1e3,
        "worst_ms": max(taken) * 1e3,
        "state_bytes": held_bytes(state, model),
    }


def held_bytes(state: Any, model: Any) -> int:
    """Return the bytes of all tensors that a decoding state holds and its model does not, each once."""
    import torch

    known = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    storages: dict[int, int] = {}
    seen: set[int] = set()
    pending = [state]
    while pending:
        thing = pending.pop()
        if id(thing) in seen or isinstance(thing, torch.nn.Module | type | str):
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            storage = thing.untyped_storage()
            if storage.data_ptr() not in known:
                storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(thing, dict):
            pending += thing.values()
        elif isinstance(thing, list | tuple | set):
            pending += thing
        elif type(thing).__module__.startswith(("toeplix", "transformers")):
            pending += [getattr(thing, name) for name in _slots(thing) if hasattr(thing, name)]
    return sum(storages.values())


def _slots(thing: Any) -> list[str]:
    named = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*named, *getattr(thing, "__dict__", {})]


def figure(rows: list[DecodingRow], published: list[Row]) -> Figure:
    drawing, axes = style.panels(2, width=4.2)
    names = {"near-linear": "toeplitz", "history": "paper"}
    contexts = sorted({row["context"] for row in rows})
    for way in WAYS:
        here = sorted((row for row in rows if row["way"] == way), key=lambda row: row["context"])
        latencies = [(row["context"], row["mean_ms"]) for row in here]
        sizes = [(row["context"], float(row["state_bytes"])) for row in here]
        for place, points in zip(axes, (latencies, sizes), strict=True):
            if points:
                line_style = style.look(names.get(way, way), label=way, markersize=4.5)
                place.plot(*zip(*points, strict=True), **line_style)
    labels = {"latency": "milliseconds per token", "decoding state": "bytes"}
    for place, (title, label) in zip(axes, labels.items(), strict=True):
        style.plain_ticks(place, contexts)
        style.log_ticks(place, y=True)
        style.finish(place, x="tokens before", y=label, title=title)
    return style.compose(drawing, "Mean time of a decode step and size of its state, by context.")


def table(rows: list[DecodingRow]) -> Table:
    found = []
    for context in sorted({row["context"] for row in rows}):
        here = {row["way"]: row for row in rows if row["context"] == context}
        found.append(
            {"tokens before": context}
            | {way: f"{here[way]['mean_ms']:.2f} ms" for way in WAYS if way in here}
        )
    return found


def holds(rows: list[DecodingRow]) -> dict[str, Verdict]:
    """Judge C20: at long contexts the paper's decoding takes between half and twice attention's time.

    Lengths are timed once each, and the ratio may depend on the length: the interval is that of the mean
    over long contexts, of which these are a sample, and not that of repeated timings of one length.
    """
    times: dict[int, dict[str, float]] = {}
    for row in rows:
        times.setdefault(row["context"], {})[row["way"]] = row["mean_ms"]
    long = {n: each for n, each in times.items() if n >= LONG and set(WAYS) <= set(each)}
    if not long:
        return {}
    ratios = intervals.mean([math.log2(each["llama"] / each["history"]) for each in long.values()])
    last = long[max(long)]
    near = f"{last['llama'] / last['near-linear']:.1f} times near-linear decoding's at {max(long)}"
    lengths = f"{len(long)} lengths from {min(long)}"
    name = f"log2 of attention's time per token over TMM's (1: twice, -1: half), mean of {lengths}"
    twice = Comparison(name=name, interval=ratios, bound=1.0, detail=near)
    return decide({"C20c": [twice, replace(twice, bound=-1.0, above=True)]})
