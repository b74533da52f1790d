"""Figures of `toeplix spectrum`: symbols, matrices, singular values, indices beside those of noise."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from toeplix.reports.filters import Layer
from toeplix.reports.spectrum_rows import Row
from toeplix.reports.symbol_plot import draw_symbols, panel_grid, symbol_panels
from toeplix.spectral.rational import RationalFilter
from toeplix.spectral.singular import matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_MATRIX = 512  # rows and columns of a matrix in a figure, at most
NEAR_DIAGONAL = 16  # rows and columns next to the diagonal
PANELS = 64  # in one figure, at most


def _flat(found: Sequence[Layer]) -> list[tuple[str, Tensor]]:
    """Return names and taps of all filters that are not zero."""
    every = ((name, kernel) for layer in found for name, _, _, kernel in layer.filters())
    return [(name, kernel.double()) for name, kernel in every if kernel.any()]


def _exact(found: Sequence[Layer]) -> list[tuple[str, Tensor | RationalFilter]]:
    """Return names of all filters that are not zero, and the filters at all of their lags."""
    return [
        (name, layer.exact(head, number, name))
        for layer in found
        for name, head, number, kernel in layer.filters()
        if kernel.any()
    ]


def symbols(found: Sequence[Layer]) -> "Figure":
    """Return the symbol of each filter in a panel of its own."""
    return symbol_panels(_exact(found)[:PANELS])


def superimposed(found: Sequence[Layer]) -> "Figure":
    """Return all symbols in one plot, each divided by the sum of |taps|, coloured by layer."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.4), layout="constrained")
    axis = figure.subplots()
    last = max(1, len(found) - 1)
    shown = [
        (filter, colormaps["viridis"](number / last))
        for number, layer in enumerate(found)
        for _, filter in _exact([layer])
    ]
    kernels, colours = [filter for filter, _ in shown], [colour for _, colour in shown]
    draw_symbols(axis, kernels, colours=colours, normalise=True, alpha=0.8)
    axis.set(xlabel="real", ylabel="imaginary", title="symbols divided by the sum of |taps|")
    _layer_colours(figure, axis, len(found))
    return figure


def _layer_colours(figure: "Figure", axis: "Axes", layers: int) -> None:
    """Add the bar of the colours of layers, which are numbered from 0."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    colours = ScalarMappable(Normalize(0, max(1, layers - 1)), colormaps["viridis"])
    figure.colorbar(colours, ax=axis, label="layer", ticks=MaxNLocator(integer=True))


def matrices(found: Sequence[Layer]) -> "Figure":
    """Return the n x n matrix T(w) of each filter; colours saturate at the 99th percentile of |taps|."""
    return _matrices(found, lambda kernel: (_thinned(kernel), float(kernel.abs().quantile(0.99))))


def near_diagonal(found: Sequence[Layer]) -> "Figure":
    """Return the entries of T(w) next to the diagonal, each filter on its own colour scale."""
    return _matrices(
        found,
        lambda kernel: (matrix(kernel[:NEAR_DIAGONAL]), float(kernel[:NEAR_DIAGONAL].abs().max())),
    )


def _matrices(
    found: Sequence[Layer], picture: Callable[[Tensor], tuple[Tensor, float]]
) -> "Figure":
    shown = _flat(found)[:PANELS]
    figure, axes = panel_grid(len(shown))
    for axis, (name, kernel) in zip(axes, shown, strict=False):
        values, most = picture(kernel)
        most = most or float(kernel.abs().max())
        axis.imshow(values.numpy(), cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
        axis.set_title(name, fontsize=7)
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def _thinned(kernel: Tensor) -> Tensor:
    """Return evenly spaced rows and columns of T(w) without building the whole matrix."""
    step = math.ceil(len(kernel) / MAX_MATRIX)
    time = torch.arange(0, len(kernel), step)
    lag = time[:, None] - time
    return kernel[lag.clamp(min=0)] * (lag >= 0)


def indices(rows: Sequence[Row]) -> "Figure":
    """Return the index of each filter by layer, and the band of the indices of noise for free filters."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["layer"] for row in rows))
    figure = Figure(figsize=(max(5, 0.35 * len(names) + 2), 4), layout="constrained")
    axis = figure.subplots()
    free = [row for row in rows if row.get("z_noise") is not None]
    known = [row for row in rows if row["index"] is not None]
    bands = {row["layer"]: row for row in free}  # recurrent filters have none
    for number, (name, row) in enumerate(bands.items()):
        sides = [names.index(name) - 0.5, names.index(name) + 0.5]
        for width in (1, 2):
            away = width * row["noise_deviation"]
            low, high = row["noise_mean"] - away, row["noise_mean"] + away
            label = None if number or width == 2 else "noise: 1 and 2 standard deviations"
            axis.fill_between(sides, low, high, color="0.5", alpha=0.25, label=label, linewidth=0)
    axis.plot([names.index(row["layer"]) for row in known], [row["index"] for row in known], "o")
    for row in rows:
        if row["index"] is None:
            axis.axvline(names.index(row["layer"]), color="C3", linestyle=":", linewidth=1)
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axis.set(ylabel="index", title="index (dotted: none)")
    if free:
        axis.legend(fontsize=7)
    return figure


def singular_values(rows: Sequence[Row]) -> "Figure | None":
    """Return the singular values of the n x n matrices; None if the filters are too long for them."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    known = [row for row in rows if row.get("singular_values")]
    if not known:
        return None
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    axis = figure.subplots()
    names = list(dict.fromkeys(row["layer"] for row in rows))
    for row in known:
        colour = colormaps["viridis"](names.index(row["layer"]) / max(1, len(names) - 1))
        values = row["singular_values"]
        share = [max(value / values[0], 1e-18) for value in values]
        axis.semilogy(range(1, len(values) + 1), share, color=colour, linewidth=0.9)
    axis.axhline(known[0]["eps"], color="0.4", linestyle=":", linewidth=1)
    axis.set(xlabel="number", ylabel="singular value / largest", title="singular values")
    _layer_colours(figure, axis, len(names))
    return figure
