"""Symbols of filters (Figures 1 left and S4): closed curves around the origin, by layer.

Every curve is divided by the sum of |taps| of its filter. Winding numbers cannot be read reliably from a
plot; the experiment `index` certifies them.
"""

from pathlib import Path
from typing import Any

import torch

from toeplix.experiments.engine import style, trained_filters
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.trained_filters import Case, FilterRow, first_heads, groups, rounded

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "seconds after `index`"
COLUMNS = 4
COLOURS = "viridis"  # by layer


def cases(scale: Scale, rows: list[FilterRow]) -> list[Case]:
    """Return the cases of the first seed only, because each panel of the figure shows one model."""
    return [case for case in trained_filters.cases(scale, rows) if case.seed == scale.seeds[0]]


def measure(case: Case, work: Path) -> Found:
    """Return the taps of every filter, and the minimum and maximum of its |symbol|."""
    from toeplix.reports.filters import layers
    from toeplix.spectral import symbol

    weights, _ = trained_filters.train(case, work)
    found = []
    for layer in layers(weights):
        for name, _, _, kernel in layer.filters():
            size = symbol(kernel.double(), 16 * 2 ** (len(kernel) - 1).bit_length()).abs()
            size /= kernel.double().abs().sum()
            ends = {"least": float(size.min()), "most": float(size.max())}
            found.append({"layer": name, "taps": rounded(kernel), **ends})
    return {"filters": found}


def figure(rows: list[FilterRow], published: list[Row]) -> Figure:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm

    from toeplix.reports.symbol_plot import draw_symbols

    by_label = groups(rows)
    lines = -(-len(by_label) // COLUMNS)
    drawing, axes = style.panels(COLUMNS, lines, width=2.4, height=2.4, used=len(by_label))
    most = max(len(first_heads(group[0])) for group in by_label.values())
    shaded = colormaps[COLOURS].resampled(most)
    for panel, (name, group) in zip(axes, by_label.items(), strict=True):
        kernels = [
            torch.tensor(entry["taps"], dtype=torch.float64) for entry in first_heads(group[0])
        ]
        colours = [shaded(k) for k in range(len(kernels))]
        thin: dict[str, Any] = {"linewidth": 0.4, "alpha": 0.8, "rasterized": True}
        draw_symbols(panel, kernels, colours=colours, points=4096, normalise=True, **thin)
        panel.set_aspect("equal", "datalim")
        style.finish(panel, x="", y="", title=name)
    shades = ScalarMappable(BoundaryNorm(range(most + 1), most), shaded)
    bar = drawing.colorbar(shades, ax=axes, shrink=0.6, pad=0.02)
    bar.set_ticks([k + 0.5 for k in range(most)], labels=[str(k + 1) for k in range(most)])
    bar.set_label("layer", fontsize=style.TITLE_POINTS)
    bar.ax.tick_params(labelsize=style.MIN_POINTS)
    caption = (
        "Symbols of the filters of one model each (first seed) in the complex plane, divided by the "
        "sum of |taps|; the dot is the origin, around which `index` certifies the winding number. "
        "In autoencoders the layers of the decoder come first; of heads, the first is shown."
    )
    return style.compose(drawing, caption, axes=axes)


def table(rows: list[FilterRow]) -> Table:
    return [
        {
            "model": name,
            "filters": len(group[0]["filters"]),
            "nearest to 0": f"{min(entry['least'] for entry in group[0]['filters']):.2g}",
            "farthest": f"{max(entry['most'] for entry in group[0]['filters']):.2g}",
        }
        for name, group in groups(rows).items()
    ]


def holds(rows: list[FilterRow]) -> dict[str, Verdict]:
    """Return no verdicts: this experiment only plots."""
    return {}
