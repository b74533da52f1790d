"""Filters as matrices (Figure S5), and their recency bias.

Recency is the fraction of a filter's energy in the newest eighth of its taps: 1/8 for noise, 1 for a
filter whose receptive field is an eighth of the context.
"""

import statistics
from pathlib import Path

import torch

from toeplix.experiments.engine import intervals, style, trained_filters
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.trained_filters import Case, FilterRow, chosen, groups, rounded

CLAIMS, MEASURES_TIME = ("C17",), False
COST = "seconds after `index`"
NEWEST_DIVISOR = 8
NO_BIAS_MARGIN = 0.05  # recency up to 1/8 plus this counts as no bias
PLOTTED_LAYERS = 4  # layers in the figure


def cases(scale: Scale, rows: list[FilterRow]) -> list[Case]:
    return trained_filters.cases(scale, rows)


def measure(case: Case, work: Path) -> Found:
    """Return taps, recency, mean lag and nearest shift of every filter."""
    from toeplix.reports.filters import layers
    from toeplix.spectral.lags import lags

    weights, score = trained_filters.train(case, work)
    found = []
    for layer in layers(weights):
        for name, _, _, kernel in layer.filters():
            energy = kernel.double() ** 2
            newest = max(1, len(kernel) // NEWEST_DIVISOR)
            read = lags(kernel, name)
            found.append(
                {
                    "layer": name,
                    "taps": rounded(kernel),
                    "recency": float(energy[:newest].sum() / energy.sum()),
                    "centre": read.centre,
                    "mode": read.mode,
                    "likeness": read.likeness,
                }
            )
    return score | {"filters": found}


def figure(rows: list[FilterRow], published: list[Row]) -> Figure:
    """Plot the first layers of each model: the whole matrices, then their corners at the diagonal."""
    from toeplix.spectral.singular import matrix

    by_label = groups(rows)
    wide = min(PLOTTED_LAYERS, max(len(group[0]["filters"]) for group in by_label.values()))
    drawing = style.canvas(2 * wide, len(by_label), width=1.5, height=1.7)
    axes = drawing.subplots(len(by_label), 2 * wide, squeeze=False)
    for line, (name, group) in zip(axes, by_label.items(), strict=True):
        for panel in line:
            panel.set_xticks([])
            panel.set_yticks([])
        filters = group[0]["filters"]
        for number, entry in enumerate(filters[:wide]):
            kernel = torch.tensor(entry["taps"], dtype=torch.float64)
            near = max(2, len(kernel) // NEWEST_DIVISOR)
            for panel, taps in ((line[number], kernel), (line[wide + number], kernel[:near])):
                most = float(taps.abs().quantile(0.98)) or float(taps.abs().max()) or 1.0
                panel.imshow(matrix(taps).numpy(), cmap="RdBu_r", vmin=-most, vmax=most)
        line[0].set_ylabel(name, fontsize=6)
        line[0].set_title("whole", fontsize=7)
        line[wide].set_title(f"newest 1/{NEWEST_DIVISOR}", fontsize=7)
    return drawing


def recency(rows: list[FilterRow]) -> dict[int, float]:
    """Return the mean recency over the filters of a model, by seed."""
    return {
        row["seed"]: statistics.fmean(entry["recency"] for entry in row["filters"]) for row in rows
    }


def _mean(rows: list[FilterRow]) -> intervals.Interval:
    return intervals.mean(list(recency(rows).values()))


def table(rows: list[FilterRow]) -> Table:
    found = []
    for name, group in groups(rows).items():
        filters = [entry for row in group for entry in row["filters"]]
        context = group[0]["context"]
        found.append(
            {
                "model": name,
                "n": context,
                f"energy in the newest 1/{NEWEST_DIVISOR}": str(_mean(group)),
                "mean lag / n": f"{statistics.fmean(e['centre'] for e in filters) / context:.3f}",
                "nearest shifts": ", ".join(str(entry["mode"]) for entry in group[0]["filters"]),
            }
        )
    return found


def holds(rows: list[FilterRow]) -> dict[str, Verdict]:
    untrained, language = chosen(rows, "untrained"), chosen(rows, "language")
    coders = chosen(rows, "autoencoder")
    if not (untrained and language and coders):
        return {}
    bias = intervals.difference(recency(language), recency(untrained))
    none = _mean(coders)
    answer = intervals.every(
        intervals.below(bias.flipped), intervals.below(none, 1 / NEWEST_DIVISOR + NO_BIAS_MARGIN)
    )
    words = (
        f"energy in the newest 1/{NEWEST_DIVISOR} of the taps: language {_mean(language)}, "
        f"untrained {_mean(untrained)}, autoencoder {none}"
    )
    return {"C17": Verdict(holds=answer, ours=words)}
