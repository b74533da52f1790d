"""Indices of filters (Table 1): certified, and compared with the index of untrained filters.

The published table is plotted hollow. It was computed by a routine with a sign error, and its large
indices are those of filters initialised with noise: see `toeplix spectrum --errata`. The filters of our
default model have index 0 at initialisation, so it is trained as well.
"""

import statistics
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from toeplix.experiments.engine import intervals, style, trained_filters
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Axes, Figure
from toeplix.experiments.engine.trained_filters import Case, FilterRow, chosen, groups

CLAIMS, MEASURES_TIME = ("C15", "C16"), False
COST = "8 minutes on two cores with --jobs 2; `symbols` and `filters` reuse its models"
NEAR_ZERO, LARGE_INDEX = (
    0.02,
    0.1,
)  # -index / (n - 1) up to which an index is near 0, and from which it is large
PERFECT_ACCURACY = 0.99  # accuracy from which a model copies perfectly


def cases(scale: Scale, rows: list[FilterRow]) -> list[Case]:
    return trained_filters.cases(scale, rows)


def measure(case: Case, work: Path) -> Found:
    """Return the index of every filter, the index of their composition, and the score on the task."""
    from toeplix.reports.filters import layers
    from toeplix.spectral import index
    from toeplix.spectral.null_distribution import noise

    weights, score = trained_filters.train(case, work)
    found: list[dict[str, Any]] = []
    stacks: dict[str, list[torch.Tensor]] = {}
    for layer in layers(weights):
        part = layer.name.split(".")[0] if case.task == "autoencoder" else ""
        for name, _, _, kernel in layer.filters():
            proof = index(kernel, name=name)
            null = noise(len(kernel))
            found.append(
                {
                    "layer": name,
                    "part": part,
                    "index": proof.index,
                    "status": proof.status,
                    "margin": proof.margin,
                    "z": None if proof.index is None else round(null.z(proof.index), 3),
                }
            )
            stacks.setdefault(part, []).append(kernel.double())
    composed = {part: _composed(kernels) for part, kernels in stacks.items()}
    return score | {"filters": found, "composed": composed}


def _composed(kernels: list[torch.Tensor]) -> int | None:
    """Return the index of the composition of all filters, which is that of their convolution."""
    from toeplix.spectral import index

    def convolved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = torch.nn.functional.conv1d(
            torch.nn.functional.pad(a, (len(b) - 1, len(b) - 1))[None, None], b.flip(0)[None, None]
        )[0, 0]
        return product / product.abs().max()

    return index(reduce(convolved, kernels), eps=1e-9).index


def shares(rows: list[FilterRow], part: str | None = None) -> list[float]:
    """Return the mean of -index / (n - 1) of each model, for one part or all; 1/2 for noise."""
    found = []
    for row in rows:
        values = [
            -entry["index"] / max(1, row["context"] - 1)
            for entry in row["filters"]
            if entry["index"] is not None and part in (None, entry["part"])
        ]
        if values:
            found.append(statistics.fmean(values))
    return found


def zs(rows: list[FilterRow], part: str | None = None) -> list[float]:
    """Return the z-scores of the filters of all rows against noise."""
    return [
        entry["z"]
        for row in rows
        for entry in row["filters"]
        if entry["z"] is not None and part in (None, entry["part"])
    ]


def parts(rows: list[FilterRow]) -> list[str]:
    return list(dict.fromkeys(entry["part"] for entry in rows[0]["filters"]))


def figure(rows: list[FilterRow], published: list[Row]) -> Figure:
    """Plot -index / (n - 1) of every filter; the grey band is noise."""
    columns = 2 if published else 1
    drawing = style.canvas(columns, width=6.2, height=4.2)
    axes = drawing.subplots(1, columns, squeeze=False)[0]
    places: list[str] = []
    for name, group in groups(rows).items():
        for part in parts(group):
            place = len(places)
            places.append(f"{name} {part}".strip())
            for number, row in enumerate(group):
                span = max(1, row["context"] - 1)
                known = [
                    -entry["index"] / span
                    for entry in row["filters"]
                    if entry["index"] is not None and entry["part"] == part
                ]
                axes[0].plot(known, [place + 0.12 * number] * len(known), "o", markersize=3)
            _band(axes[0], group[0]["context"], place)
    axes[0].set_yticks(range(len(places)), places, fontsize=7)
    axes[0].invert_yaxis()
    style.finish(axes[0], x="-index / (n - 1)", y="", title="certified; grey: noise, ± 2 std")
    if published:
        for place, theirs in enumerate(published):
            span = theirs["context"] - 1
            values = [-value / span for value in theirs["indices"]]
            axes[1].plot(values, [place] * len(values), "o", markersize=4, markerfacecolor="none")
            _band(axes[1], theirs["context"], place)
        names = [row["label"] for row in published]
        axes[1].set_yticks(range(len(names)), names, fontsize=7)
        axes[1].invert_yaxis()
        style.finish(axes[1], x="-index / (n - 1)", y="", title="published (with a sign error)")
    return drawing


def _band(axes: Axes, context: int, place: float) -> None:
    from toeplix.spectral.null_distribution import noise

    null, span = noise(context), max(1, context - 1)
    low, high = ((-null.mean + sign * 2 * null.deviation) / span for sign in (-1, 1))
    axes.fill_betweenx([place - 0.35, place + 0.45], low, high, color="0.5", alpha=0.2, linewidth=0)


def table(rows: list[FilterRow]) -> Table:
    found = []
    for name, group in groups(rows).items():
        for part in parts(group):
            values = [
                entry["index"]
                for row in group
                for entry in row["filters"]
                if entry["index"] is not None and entry["part"] == part
            ]
            if not values:
                continue
            scores = [row["accuracy"] for row in group if row["accuracy"] is not None]
            found.append(
                {
                    "model": f"{name} {part}".strip(),
                    "n": group[0]["context"],
                    "filters": len(values),
                    "index, median": statistics.median(values),
                    "from, to": f"{min(values)}, {max(values)}",
                    "z against noise, mean": f"{statistics.fmean(zs(group, part)):+.1f}",
                    "accuracy": f"{statistics.fmean(scores):.1%}" if scores else "-",
                }
            )
    return found


def holds(rows: list[FilterRow]) -> dict[str, Verdict]:
    language, copy = chosen(rows, "language"), chosen(rows, "copy")
    coders = chosen(rows, "autoencoder")
    if not (shares(language) and shares(copy) and shares(coders)):
        return {}
    near = intervals.mean(shares(language))
    large = {"copy": intervals.mean(shares(copy))}
    large |= {part: intervals.mean(shares(coders, part)) for part in parts(coders)}
    answer = intervals.every(
        intervals.below(near, NEAR_ZERO),
        *(intervals.below(value.flipped, -LARGE_INDEX) for value in large.values()),
    )
    ours = chosen(rows, "language", "toeplitz")
    words = [f"-index/(n-1), noise 0.5: language {near}"]
    words += [f"{name} {value}" for name, value in large.items()]
    if ours:
        words.append(f"language, our initialisation {intervals.mean(shares(ours))}")
    z = {"language": zs(language), "copy": zs(copy), "autoencoder": zs(coders)}
    words.append(
        "mean z against noise: "
        + ", ".join(f"{name} {statistics.fmean(values):+.1f}" for name, values in z.items())
    )
    return {"C15": Verdict(holds=answer, ours="; ".join(words)), "C16": _retention(rows)}


def _retention(rows: list[FilterRow]) -> Verdict:
    """Judge C16 by the models that copy perfectly and the filters among theirs with an index below 0."""
    perfect = [row for row in rows if (row["accuracy"] or 0.0) >= PERFECT_ACCURACY]
    singular = [
        row for row in perfect if any(entry["index"] not in (0, None) for entry in row["filters"])
    ]
    added = total = 0
    for row in rows:
        for part, value in row["composed"].items():
            each = [entry["index"] for entry in row["filters"] if entry["part"] == part]
            known = [index for index in each if index is not None]
            if value is not None and len(known) == len(each):
                total, added = total + 1, added + (value == sum(known))
    words = (
        f"{len(perfect)} models reach {PERFECT_ACCURACY:.0%}, {len(singular)} of them with filters of "
        f"index below 0; the index of the composed layers is the sum of theirs "
        f"in {added} of {total} stacks"
    )
    if not perfect:
        return Verdict(holds=None, ours=words)
    return Verdict(holds=bool(singular) and added == total, ours=words)
