"""Filters as matrices (Figure S5), and their recency bias.

Recency is the fraction of a filter's energy in the newest eighth of its taps: 1/8 for noise, 1 for a
filter whose receptive field is an eighth of the context. At scale desk only the models that decide claims
are measured.
"""

import statistics
from pathlib import Path
from typing import Any

import torch

from toeplix.experiments.engine import intervals, style, trained_filters
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Axes, Figure
from toeplix.experiments.engine.thresholds import MIN_TAPS, noise_recency
from toeplix.experiments.engine.trained_filters import (
    LABELS,
    Case,
    FilterEntry,
    FilterRow,
    as_in_the_paper,
    chosen,
    first_heads,
    groups,
    rounded,
    unlearned,
    unread,
)
from toeplix.experiments.engine.verdicts import Comparison, decide, not_testable

CLAIMS, MEASURES_TIME = ("C17",), False
COST = "seconds after `index`"
NEWEST_DIVISOR = 8
COLOURS = "RdBu_r"
PLOTTED_LAYERS = 4  # layers in the figure
SIDES = ("encoder", "decoder")  # of an autoencoder; names of its layers begin with them


def cases(scale: Scale, rows: list[FilterRow]) -> list[Case]:
    every = trained_filters.cases(scale, rows)
    if scale.name != "desk":
        return every
    language = [case for case in every if case.task == "language" and case.model == "paper flat"]
    wide = [case for case in language if case.dim == scale.dim]
    return wide + [case for case in every if case.task in ("untrained", "autoencoder")]


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
    return score | {"filters": found} | trained_filters.bigram_loss(case, work)


def figure(rows: list[FilterRow], published: list[Row]) -> Figure:
    """Plot the first layers of each model as matrices, and the energy of its taps by lag."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    from toeplix.spectral.singular import matrix

    by_label = groups(rows)
    wide = min(PLOTTED_LAYERS, max(len(first_heads(group[0])) for group in by_label.values()))
    drawing = style.canvas(wide + 1, len(by_label), width=1.9, height=1.6)
    ratios = [1.0] * wide + [1.5]
    axes = drawing.subplots(len(by_label), wide + 1, squeeze=False, width_ratios=ratios)
    for line, (name, group) in zip(axes, by_label.items(), strict=True):
        filters = first_heads(group[0])
        for panel in line[:wide]:
            panel.set_xticks([])
            panel.set_yticks([])
        titles = _layer_names(filters)
        for number, entry in enumerate(filters[:wide]):
            kernel = torch.tensor(entry["taps"], dtype=torch.float64)
            most = float(kernel.abs().quantile(0.98)) or float(kernel.abs().max()) or 1.0
            shown = matrix((kernel / most).clamp(-1, 1)).numpy()
            line[number].imshow(
                shown, cmap=COLOURS, vmin=-1, vmax=1, rasterized=True, interpolation="antialiased"
            )
            line[number].set_title(titles[number], fontsize=style.MIN_POINTS)
            line[number].set_xlabel("input position", fontsize=style.MIN_POINTS)
        line[0].set_ylabel("output position", fontsize=style.MIN_POINTS)
        words: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (-18, 0), "color": "black"}
        words |= {"ha": "right", "va": "center", "outside": True}
        style.word(line[0], (0, 0.5), name.replace(", ", "\n"), **words)
        _energy(line[wide], group)
    shades = ScalarMappable(Normalize(-1, 1), COLOURS)
    bar = drawing.colorbar(shades, ax=axes[:, :wide], location="bottom", shrink=0.5, aspect=40)
    bar.set_label("tap / 98% quantile of |taps|", fontsize=style.TITLE_POINTS)
    bar.ax.tick_params(labelsize=style.MIN_POINTS)
    bar.set_ticks([-1, -0.5, 0, 0.5, 1])
    caption = (
        "Left: filters of one model each (first seed; of heads, the first) as lower-triangular "
        "matrices; taps beyond the colour bar are clipped. Right: cumulative energy of the taps by lag, "
        "mean over filters and seeds (of autoencoders, encoder and decoder), with 95% t intervals over "
        f"seeds; dotted: energy spread evenly, grey: the newest 1/{NEWEST_DIVISOR} of the taps."
    )
    return style.compose(drawing, caption, axes=[axes[0][0]])


def _layer_names(filters: list[FilterEntry]) -> list[str]:
    """Return names of the layers of filters, with the side of an autoencoder's; layers count from 1."""
    layers = [entry["layer"] for entry in filters]
    sides = [next((side for side in SIDES if name.startswith(side)), "") for name in layers]
    return [
        f"{side} layer {sides[:number].count(side) + 1}".strip()
        for number, side in enumerate(sides)
    ]


def _energy(axes: Axes, group: list[FilterRow]) -> None:
    """Plot the cumulative share of the energy by lag, of each side of an autoencoder."""
    axes.axvspan(0, 1 / NEWEST_DIVISOR, color="0.85", linewidth=0)
    axes.plot([0, 1], [0, 1], color=style.GREY, linewidth=0.9, linestyle=":")
    sides = [side for side in SIDES if _of_side(group[0], side)] or [""]
    for number, (side, colour) in enumerate(zip(sides, style.OTHERS, strict=False)):
        _energy_of_side(axes, group, side, colour)
        how: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (-3, 3 + 10 * number)}
        style.word(axes, (1.0, 0.0), side, ha="right", color=colour, **how)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    style.finish(axes, x="lag / n", y="cumulative\nenergy")


def _energy_of_side(axes: Axes, group: list[FilterRow], side: str, colour: str) -> None:
    """Plot the mean over filters and seeds, and its interval over seeds."""
    curves = []
    for row in group:
        entries = _of_side(row, side)
        taps = torch.tensor([entry["taps"] for entry in entries], dtype=torch.float64)
        shares = (taps**2).cumsum(-1) / (taps**2).sum(-1, keepdim=True)
        curves.append(shares.mean(0).tolist())
    means = [intervals.mean(each) for each in zip(*curves, strict=True)]
    places = [(lag + 1) / len(means) for lag in range(len(means))]
    axes.plot(places, [each.value for each in means], color=colour, linewidth=1.2)
    if len(curves) >= style.MIN_SEEDS:
        low, high = [max(0, each.low) for each in means], [min(1, each.high) for each in means]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


def recency(rows: list[FilterRow], side: str = "") -> dict[int, float]:
    """Return the mean recency over the filters of a model or of one side of it, by seed."""
    return {
        row["seed"]: statistics.fmean(entry["recency"] for entry in _of_side(row, side))
        for row in rows
    }


def _of_side(row: FilterRow, side: str) -> list[FilterEntry]:
    return [entry for entry in row["filters"] if entry["layer"].startswith(side)]


def _mean(rows: list[FilterRow], side: str = "") -> intervals.Interval:
    return intervals.mean(list(recency(rows, side).values()))


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
                "nearest shifts": ", ".join(str(entry["mode"]) for entry in first_heads(group[0])),
            }
        )
    return found


def holds(rows: list[FilterRow]) -> dict[str, Verdict]:
    untrained, language = chosen(rows, "untrained"), chosen(rows, "language")
    coders = chosen(rows, "autoencoder")
    if not (untrained and language and coders):
        return {}
    eighth = f"energy in the newest 1/{NEWEST_DIVISOR} of the taps"
    bias = Comparison(
        name=f"{eighth}, language minus untrained",
        interval=intervals.difference(recency(language), recency(untrained)),
        above=True,
        control=unread(language),
    )
    context, heads = coders[0]["context"], LABELS[coders[0]["model"]]
    newest = max(1, context // NEWEST_DIVISOR)
    several = [
        Comparison(
            name=f"{eighth} of the {side} of autoencoders{heads}",
            interval=_mean(coders, side),
            bound=noise_recency(context, newest, len(_of_side(coders[0], side))),
            control=unlearned(coders),
        )
        for side in SIDES
    ]
    none = as_in_the_paper(coders, several)
    if context < MIN_TAPS:
        few = f"the newest 1/{NEWEST_DIVISOR} of {context} taps is {newest}"
        none = not_testable(few, f"{eighth} of autoencoders: {_mean(coders)}")
    return decide({"C17a": [bias], "C17b": none})
