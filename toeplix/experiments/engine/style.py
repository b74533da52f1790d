"""Style of the figures: one colour and marker per architecture, the same in all figures."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from toeplix.files import MARK

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # names for annotations; matplotlib is imported when a figure is made
    Axes = Figure = object

COLOURS = {
    "toeplitz": "#0072b2",
    "paper": "#56b4e9",
    "masked": "#009e73",
    "hyena": "#d55e00",
    "mamba2": "#cc79a7",
    "llama": "#222222",
    "window": "#8a8a8a",
    "linear": "#e69f00",
    "frozen": "#7b3294",
    "ones": "#a6761d",
}
MARKERS = {
    "toeplitz": "o",
    "paper": "s",
    "masked": "D",
    "hyena": "^",
    "mamba2": "v",
    "llama": "X",
    "window": "P",
    "linear": "*",
    "frozen": "<",
    "ones": ">",
}
OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222", "#8a8a8a")


def look(name: str, **other: object) -> dict[str, Any]:
    """Return colour, marker and line style of a model by the first word of its name; heads are dashed."""
    family = name.split()[0]
    colour = COLOURS.get(family, OTHERS[hash_of(name) % len(OTHERS)])
    line = "--" if "heads" in name else "-"
    return {"color": colour, "marker": MARKERS.get(family, "o"), "linestyle": line} | other


def hash_of(name: str) -> int:
    """Return a hash that, unlike `hash`, is the same in every process."""
    return sum(index * ord(letter) for index, letter in enumerate(name, 1))


def canvas(columns: int = 1, rows: int = 1, *, width: float = 4.6, height: float = 3.4) -> Figure:
    """Return an empty figure with room for `rows` x `columns` panels."""
    from matplotlib.figure import Figure

    return Figure(figsize=(columns * width, rows * height), layout="constrained")


def finish(axes: Axes, *, x: str, y: str, title: str = "") -> None:
    """Set labels, grid, and a legend if any line has a label."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, frameon=False)


def svg(drawing: Figure) -> str:
    """Return a figure as SVG; the same rows give the same bytes: no date, no random names inside."""
    import matplotlib

    content = io.StringIO()
    metadata = {"Date": None, "Description": MARK}
    with matplotlib.rc_context({"svg.hashsalt": "toeplix", "svg.fonttype": "none"}):
        drawing.savefig(content, format="svg", metadata=metadata)
    return content.getvalue()
