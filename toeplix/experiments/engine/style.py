"""Style of the figures: colours, panel letters, legends outside the panels, captions, reference lines.

    drawing, axes = style.panels(3)         one row of three panels, lettered (a), (b), (c)
    axes[0].plot(...)                       with a label for every model
    style.finish(axes[0], x=..., y=..., title=...)
    style.compose(drawing, "What is shown")     one legend above all panels, the caption below

One model has one colour and marker in all figures (`looks`). Text has at least MIN_POINTS points.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from toeplix.files import MARK

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # names for annotations; matplotlib is imported when a figure is made
    Axes = Figure = object

COLOURS = {
    "toeplitz": "#0072b2",
    "free": "#0072b2",
    "version": "#0072b2",  # 0.1, with free filters
    "paper": "#56b4e9",
    "flat": "#56b4e9",
    "hybrid": "#b2182b",
    "recurrent": "#e07b91",
    "lookup": "#b2182b",
    "masked": "#009e73",
    "hyena": "#d55e00",
    "mamba2": "#cc79a7",
    "llama": "#222222",
    "window": "#8a8a8a",
    "window n/8": "#a8a8a8",
    "window n/4": "#7d7d7d",
    "window n/2": "#505050",
    "linear": "#e69f00",
    "frozen": "#7b3294",
    "ones": "#a6761d",
    "dense": "#999933",
    "blocked": "#882255",
    "fft": "#44aa99",
}
MARKERS = {
    "toeplitz": "o",
    "free": "o",
    "version": "o",
    "paper": "s",
    "flat": "s",
    "hybrid": "h",
    "recurrent": "p",
    "lookup": "h",
    "masked": "D",
    "hyena": "^",
    "mamba2": "v",
    "llama": "X",
    "window": "P",
    "window n/8": "d",
    "window n/4": "P",
    "window n/2": "8",
    "linear": "*",
    "frozen": "<",
    "ones": ">",
}
OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222", "#8a8a8a")
LINES = ("-", "--", ":", "-.")
MIN_POINTS, TITLE_POINTS = 8, 9
LETTERS_PER_INCH = 17  # of a caption in MIN_POINTS points
LEGEND_INCHES = 1.5  # of one column of a legend
MIN_SEEDS = 3  # from which intervals are drawn: those of two seeds are wider than all differences
INTERVALS = (
    "Lines and large markers are means over seeds; bands and bars are 95% t intervals over seeds, "
    "shown from three seeds on."
)
RASTER_DPI = 80  # of lines and matrices with too many points for vectors
GREY = "0.45"
REFERENCE: dict[str, Any] = {  # lines
    "color": GREY,
    "linewidth": 0.9,
    "linestyle": (0, (4, 2)),
    "zorder": 1,
}
MAX_LABEL = 40  # letters in one line of a label of x
NAME_HEIGHT = 0.065  # of a panel: one line of a name beside a point
NEAR = 0.1  # names of points closer than this fraction of a panel's width may overlap


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour, marker and line style of models, all different.

    The colour and the marker follow from the name if it has its own, or from its first word. Models of
    one family differ in the line style, and heads are dashed, never solid. Families without a colour get
    those that are left, in order.
    """
    found: dict[str, dict[str, Any]] = {}
    several = list(dict.fromkeys(names))
    families = {name: name if name in COLOURS else name.split()[0].rstrip(",") for name in several}
    used = {COLOURS[family] for family in families.values() if family in COLOURS}
    left = [colour for colour in OTHERS if colour not in used] or list(OTHERS)
    others = [name for name in several if families[name] not in COLOURS]
    taken: set[tuple[str, str]] = set()
    for name in several:
        family = families[name]
        colour = COLOURS.get(family)
        if colour is None:
            colour = left[others.index(name) % len(left)]
        lines = LINES[1:] if "heads" in name else (LINES[0], *LINES[2:], LINES[1])
        line = next((each for each in lines if (colour, each) not in taken), lines[0])
        taken.add((colour, line))
        found[name] = {"color": colour, "marker": MARKERS.get(family, "o"), "linestyle": line}
    return found


def look(name: str, **other: object) -> dict[str, Any]:
    """Return colour, marker and line style of one model; `other` properties override them."""
    return looks([name])[name] | other


def canvas(columns: int = 1, rows: int = 1, *, width: float = 3.3, height: float = 2.7) -> Figure:
    """Return an empty figure with room for `rows` x `columns` panels, a legend and a caption."""
    from matplotlib.figure import Figure

    return Figure(figsize=(columns * width, rows * height + 0.9), layout="constrained")


def panels(
    columns: int = 1, rows: int = 1, *, width: float = 3.3, height: float = 2.7, used: int = 0
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, line by line; of a grid only the first `used` are kept."""
    drawing = canvas(columns, rows, width=width, height=height)
    axes = list(drawing.subplots(rows, columns, squeeze=False).flat)
    for empty in axes[used or len(axes) :]:
        empty.remove()
    return drawing, axes[: used or len(axes)]


def finish(axes: Axes, *, x: str, y: str, title: str = "") -> None:
    """Set labels, title, grid and sizes of text; a long label of x gets a line for its brackets."""
    long = len(x) > MAX_LABEL
    axes.set_xlabel(x.replace(" (", "\n(", 1) if long else x, fontsize=TITLE_POINTS)
    axes.set_ylabel(y, fontsize=TITLE_POINTS)
    axes.set_title(title, fontsize=TITLE_POINTS, loc="left")
    axes.tick_params(labelsize=MIN_POINTS)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def compose(drawing: Figure, caption: str, *, axes: Sequence[Axes] = ()) -> Figure:
    """Letter the panels, put one legend above them and the caption below; return the figure.

    `axes` are the panels with letters, by default all.
    """
    several = list(axes) or drawing.axes
    if len(several) > 1:
        for letter, each in zip("abcdefghijklmnopqrstuvwxyz", several, strict=False):
            title = each.get_title(loc="left")
            each.set_title(f"({letter}) {title}".rstrip(), fontsize=TITLE_POINTS, loc="left")
    handles: dict[str, Any] = {}
    for each in several:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    width, height = drawing.get_size_inches()
    columns = 1
    if handles:
        longest = max(map(len, handles)) / 15
        columns = max(1, min(len(handles), int(width / (LEGEND_INCHES * max(1.0, longest)))))
        drawing.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=columns,
            fontsize=MIN_POINTS,
            frameon=False,
            handlelength=2.4,
            columnspacing=1.2,
        )
    lines = textwrap.wrap(caption, max(30, int(width * LETTERS_PER_INCH)))
    drawing.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=MIN_POINTS, color="0.2")
    legend = -(-len(handles) // columns)
    drawing.set_size_inches(width, height + 0.13 * (len(lines) - 2) + 0.17 * max(0, legend - 2))
    return drawing


def level(axes: Axes, value: float, text: str, *, vertical: bool = False) -> None:
    """Draw a labelled reference line at a height, or at a place of the x axis."""
    words: dict[str, Any] = {
        "color": GREY,
        "fontsize": MIN_POINTS,
        "textcoords": "offset points",
        "zorder": 4,
        "bbox": {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.8},
    }
    if vertical:
        axes.axvline(value, **REFERENCE)
        across = axes.get_xaxis_transform()
        note = axes.annotate(
            text, (value, 1.0), xycoords=across, xytext=(2, -2), va="top", rotation=90, **words
        )
    else:
        axes.axhline(value, **REFERENCE)
        across = axes.get_yaxis_transform()
        note = axes.annotate(
            text, (1.0, value), xycoords=across, xytext=(-2, 2), ha="right", va="bottom", **words
        )
    note.set_in_layout(False)  # a value outside the axes must not shrink them


def word(
    axes: Axes, point: tuple[float, float], text: str, *, outside: bool = False, **other: Any
) -> None:
    """Write a short text beside a point; if it is `outside` of the axes, the figure makes room for it."""
    how: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": MIN_POINTS,
        "color": GREY,
        "xytext": (2, 3),
    }
    axes.annotate(text, point, **(how | other)).set_in_layout(outside)


def names(axes: Axes, several: Iterable[tuple[tuple[float, float], str, str]]) -> None:
    """Write names right of points (point, name, colour), moved apart vertically where they overlap.

    A name that was moved is joined to its point by a thin line. The limits of the axes must be final.
    """
    inside = axes.transData - axes.transAxes
    found = [(inside.transform(point), text, colour) for point, text, colour in several]
    found.sort(key=lambda each: float(each[0][1]))
    points = [(float(x), float(y)) for (x, y), _, _ in found]
    sizes = [NAME_HEIGHT * (1 + text.count("\n")) for _, text, _ in found]
    heights = _apart(points, sizes)
    for (x, y), (_, text, colour), height in zip(points, found, heights, strict=True):
        beside = max(right for right, each in points if right < x + NEAR and abs(each - y) < NEAR)
        moved = abs(height - y) > NAME_HEIGHT / 4 or beside > x
        line: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.5, "color": colour, "shrinkA": 0}
        axes.annotate(
            text,
            (x, y),
            xycoords="axes fraction",
            xytext=(beside + 0.035, height),
            textcoords="axes fraction",
            va="center",
            fontsize=MIN_POINTS,
            color=colour,
            arrowprops=line | {"shrinkB": 2.5, "relpos": (0, 0.5)} if moved else None,
            bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5},
        ).set_in_layout(False)


def _apart(points: Sequence[tuple[float, float]], sizes: Sequence[float]) -> list[float]:
    """Return heights of names: those of their points, in order of height, moved apart by their sizes."""
    least = [size / 2 + 0.02 for size in sizes]
    heights = [max(y, low) for (_, y), low in zip(points, least, strict=True)]
    for _ in range(200):  # sweeps: each halves what overlaps
        for low, high in itertools.combinations(range(len(points)), 2):
            overlap = (sizes[low] + sizes[high]) / 2 - (heights[high] - heights[low])
            if overlap > 0 and abs(points[low][0] - points[high][0]) < NEAR:
                heights[low] = max(least[low], heights[low] - overlap / 2)
                heights[high] += overlap / 2
    return heights


def plain_ticks(axes: Axes, places: Iterable[float], *, base: int = 2) -> None:
    """Give the x axis a logarithmic scale with ticks at `places`, written as numbers, not as powers."""
    from matplotlib.ticker import NullFormatter, NullLocator

    several = sorted(set(places))
    axes.set_xscale("log", base=base)
    if several:
        axes.set_xticks(several, [f"{place:,g}" for place in several])
        axes.set_xlim(several[0] / 1.25, several[-1] * 1.25)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def log_ticks(axes: Axes, *, y: bool = False) -> None:
    """Give the x axis (or the y axis) a logarithmic scale with few ticks that do not overlap."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.yaxis if y else axes.xaxis
    if y:
        axes.set_yscale("log")
    else:
        axes.set_xscale("log")
    low, high = sorted(axes.get_ylim() if y else axes.get_xlim())
    decades = math.log10(high / low) if low > 0 else 1.0
    subs = (1.0, 2.0, 5.0) if decades < 1.2 else (1.0, 3.0) if decades < 2.2 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
    axis.set_minor_formatter(NullFormatter())


def _number(value: float) -> str:
    """Return a tick label: a plain number, or a power of ten if it is long.

    >>> _number(500.0), _number(2e11)
    ('500', '2e11')
    """
    return (
        f"{value:,g}"
        if 1e-3 <= value < 1e5
        else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    )


def svg(drawing: Figure) -> str:
    """Return a figure as SVG; the same rows give the same bytes: no date, no random names inside."""
    import matplotlib

    content = io.StringIO()
    metadata = {"Date": None, "Description": MARK}
    settings: Any = {"svg.hashsalt": "toeplix", "svg.fonttype": "none"}
    with matplotlib.rc_context(settings):
        drawing.savefig(content, format="svg", metadata=metadata, dpi=RASTER_DPI)
    return content.getvalue()
