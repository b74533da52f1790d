"""Plots of symbols: the curve of a filter's symbol in the complex plane, with the origin marked.

    symbol(theta) = sum over lags l of w[l] exp(i l theta),      theta from 0 to 2 pi

All figures with symbols use `draw_symbols`: the report of a run, `toeplix spectrum` and the experiments.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from toeplix.spectral.rational import RationalFilter
from toeplix.spectral.rational_sums import Sums
from toeplix.spectral.symbols import symbol

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 8192  # of a curve, at least
POINTS_PER_TAP = 8
PANEL_INCHES = 1.9
MAX_COLUMNS = 8


def symbol_curve(
    kernel: Float[Tensor, " n"] | RationalFilter,
    *,
    points: int = POINTS,
    max_drawn: int | None = None,
    normalise: bool = False,
) -> Complex[Tensor, " p"]:
    """Return the symbol of a filter as a closed curve.

    Args:
        kernel: the taps, or a recurrent filter, whose points lie closer together near theta = 0.
        points: the symbol is computed at so many points, or at 8 for each tap if that is more.
        max_drawn: keep about so many of the points, evenly spaced, which makes an SVG smaller.
        normalise: divide by the sum of |taps|, so that the curve lies in the unit disc.
    """
    if isinstance(kernel, RationalFilter):
        curve, total = _rational_curve(kernel, points)
    else:
        kernel = kernel.double()
        curve = symbol(kernel, max(points, POINTS_PER_TAP * len(kernel)))
        total = float(kernel.abs().sum())
    if normalise:
        curve = curve / total
    if max_drawn is not None:
        curve = curve[:: math.ceil(len(curve) / max_drawn)]
    return torch.cat([curve, curve[:1]])


def _rational_curve(filter: RationalFilter, points: int) -> tuple[Complex[Tensor, " p"], float]:
    """Return the symbol of a recurrent filter where it is finite, and the sum of |taps|."""
    half = filter.symbol(filter.angles(points // 2))
    half = half[half.isfinite()]
    total = float(Sums(filter).absolute()) if filter.summable else float(half.abs().max())
    return torch.cat([half, half.conj().flip(0)]), total


def draw_symbols(
    axes: Any,
    kernels: Sequence[Float[Tensor, " n"] | RationalFilter],
    *,
    colours: Sequence[Any],
    points: int = POINTS,
    max_drawn: int | None = None,
    normalise: bool = False,
    **line: Any,
) -> None:
    """Draw the symbols of filters, one colour each, and mark the origin; `line` goes to `Axes.plot`."""
    for kernel, colour in zip(kernels, colours, strict=True):
        curve = symbol_curve(kernel, points=points, max_drawn=max_drawn, normalise=normalise)
        style = {"linewidth": 0.6, "color": colour} | line
        axes.plot(curve.real.numpy(), curve.imag.numpy(), **style)
    axes.plot(0, 0, "r.", markersize=5)
    axes.set_aspect("equal", "datalim")


def symbol_panels(
    titled: Sequence[tuple[str, Float[Tensor, " n"] | RationalFilter]],
    *,
    colour: str = "C0",
    columns: int | None = None,
    max_drawn: int | None = None,
) -> "Figure":
    """Return a figure with one panel for each pair of a title and a filter."""
    figure, panels = panel_grid(len(titled), columns)
    for axes, (title, kernel) in zip(panels, titled, strict=False):
        draw_symbols(axes, [kernel], colours=[colour], max_drawn=max_drawn)
        axes.set_title(title, fontsize=7)
        axes.tick_params(labelsize=5)
    return figure


def panel_grid(panels: int, columns: int | None = None) -> tuple["Figure", list[Any]]:
    """Return a figure with at least so many square panels, nearly as many rows as columns."""
    from matplotlib.figure import Figure

    columns = columns or max(1, min(MAX_COLUMNS, math.ceil(math.sqrt(panels))))
    lines = math.ceil(panels / columns)
    size = (PANEL_INCHES * columns, PANEL_INCHES * lines + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for empty in axes[panels:]:
        empty.set_axis_off()
    return figure, axes
