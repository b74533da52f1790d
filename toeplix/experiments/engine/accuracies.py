"""Plots and tables of task training: accuracy during training, and steps to the target accuracy."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from toeplix.experiments.engine import intervals, style
from toeplix.experiments.engine.chance import chance
from toeplix.experiments.engine.intervals import Interval
from toeplix.experiments.engine.rows import Table
from toeplix.experiments.engine.style import Axes
from toeplix.experiments.engine.task_training import LearningRow, TaskRow
from toeplix.experiments.engine.task_tuning import by_seed, edge, groups
from toeplix.experiments.engine.thresholds import TARGET_ACCURACY
from toeplix.experiments.engine.verdicts import Comparison

ACCURACY = "validation accuracy"
SHIFTED = (
    "Points at one length or width are drawn side by side; lines are interrupted where a model is not "
    "measured."
)
LOW = 0.6  # highest accuracy up to which a panel does not extend to 1


def draw(
    axes: Axes, found: Iterable[Sequence[LearningRow]], *, title: str = "", samples: bool = False
) -> None:
    """Plot the accuracy during training: mean and interval over seeds.

    A run that ended early because it made no errors keeps its last accuracy.
    """
    groups = [group for group in found if any(row["curve"] for row in group)]
    looks = style.looks(group[0]["model"] for group in groups)
    for group in groups:
        runs = [row["curve"] for row in group if row["curve"]]
        steps = sorted({step for curve in runs for step, *_ in curve})
        values = [np.interp(steps, *np.array(curve).T[[0, 2]]) for curve in runs]
        means = [intervals.mean(each) for each in np.stack(values, 1).tolist()]
        places = [step * (group[0]["batch"] if samples else 1) for step in steps]
        _band(axes, places, means, group[0]["model"], looks[group[0]["model"]])
    _limits(axes)
    style.finish(axes, x="samples" if samples else "steps", y=ACCURACY, title=title)


def _band(
    axes: Axes, places: list[float], means: list[Interval], name: str, own: dict[str, Any]
) -> None:
    """Plot means as a line and their intervals as a band within 0 and 1.

    Intervals of few seeds, one of which learned late, are as high as the panel: bands are pale, have
    edges, and are behind all lines.
    """
    every = max(1, len(places) // 8)
    line: dict[str, Any] = {"markersize": 3.5, "markevery": every, "linewidth": 1.2, **own}
    axes.plot(places, [each.value for each in means], label=name, **line)
    if means[0].dof >= style.MIN_SEEDS - 1:
        low = [max(0.0, each.low) for each in means]
        high = [min(1.0, each.high) for each in means]
        colours: dict[str, Any] = {
            "facecolor": (own["color"], 0.09),
            "edgecolor": (own["color"], 0.4),
        }
        axes.fill_between(places, low, high, linewidth=0.5, zorder=1, **colours)


def _limits(axes: Axes) -> None:
    """Show all accuracies from 0 to 1, or to somewhat more than the highest if all are low."""
    heights = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]
    highest = float(np.nanmax(np.concatenate([*heights, [0.0]])))
    top = 1.05 if highest > LOW else 1.4 * max(highest, 0.02)
    axes.set_ylim(-0.03 * top, top)


def reference(axes: Axes, found: Iterable[Sequence[TaskRow]]) -> None:
    """Draw the chance level of the rows' task; of several tasks or sizes, the highest."""
    levels = [chance(group[0]) for group in found]
    if levels:
        value, name = max(levels)
        style.level(axes, value, f"{name}: {value:.2g}")


def along(
    axes: Axes,
    found: Iterable[list[TaskRow]],
    field: str,
    *,
    x: str,
    title: str = "",
    y: str = ACCURACY,
    measured: Literal["accuracy", "area"] = "accuracy",
) -> None:
    """Plot the final accuracy (or the area) against a size: means, with intervals within 0 and 1.

    Points are side by side, and a line is interrupted at sizes of other models (SHIFTED).
    """
    lines: dict[str, list[tuple[float, Interval]]] = {}
    levels: dict[float, tuple[float, str]] = {}
    for group in found:
        row: Mapping[str, Any] = group[0]
        place = row.get(field, row["options"].get(field))
        mean = intervals.mean([row[measured] for row in group])
        lines.setdefault(group[0]["model"], []).append((place, mean))
        levels[place] = chance(row)
    sizes = sorted(levels)
    looks = style.looks(lines)
    for number, (name, points) in enumerate(lines.items()):
        known = dict(points)
        inside = [size for size in sizes if min(known) <= size <= max(known)]
        middle = (len(lines) - 1) / 2
        beside = 2 ** (0.125 * (number - middle) / max(1, middle))  # bars side by side
        means = [known[size].value if size in known else math.nan for size in inside]
        bars = np.array([_bar(known.get(size)) for size in inside]).T
        line: dict[str, Any] = {"markersize": 4, "linewidth": 1.1, "elinewidth": 0.8, **looks[name]}
        places = [size * beside for size in inside]
        axes.errorbar(places, means, yerr=bars, label=name, **line)
    style.plain_ticks(axes, levels)
    _limits(axes)
    _chance(axes, levels)
    style.finish(axes, x=x, y=y, title=title)


def _bar(mean: Interval | None) -> tuple[float, float]:
    """Return how far the interval of an accuracy extends below and above it; 0 if it is not shown."""
    if mean is None or mean.dof < style.MIN_SEEDS - 1:
        return 0.0, 0.0
    return mean.value - max(0.0, mean.low), min(1.0, mean.high) - mean.value


def _chance(axes: Axes, levels: Mapping[float, tuple[float, str]]) -> None:
    """Draw the chance level at every size, across the panel."""
    heights = [levels[size][0] for size in sorted(levels)]
    names = {name for _, name in levels.values()}
    if len(set(heights)) == 1:
        style.level(axes, heights[0], f"{'/'.join(names)}: {heights[0]:.2g}")
    elif levels:
        left, right = axes.get_xlim()
        places = [left, *sorted(levels), right]
        axes.plot(places, [heights[0], *heights, heights[-1]], **style.REFERENCE)
        style.word(axes, (min(levels), heights[0]), "/".join(names))


def steps_to_target(rows: list[TaskRow]) -> str:
    """Return the steps to the target as text, with an interval and the number of successful seeds."""
    solved = list(by_seed(rows, "solved").values())
    if not solved:
        return f"not in {rows[0]['steps']}"
    mean = intervals.mean(solved)
    wide = f" ± {(mean.high - mean.low) / 2:.0f}" if len(solved) > 1 else ""
    several = f" ({len(solved)} of {len(rows)} seeds)" if len(solved) < len(rows) else ""
    return f"{mean.value:.0f}{wide}{several}"


def table(rows: list[TaskRow]) -> Table:
    """Return a table of the final accuracy of every model, by part."""
    return [line for _, line in lines(rows)]


def lines(rows: list[TaskRow]) -> list[tuple[list[TaskRow], dict[str, object]]]:
    """Return the lines of the table, each with the rows that it summarises."""
    found = []
    parts = list(dict.fromkeys(row["part"] for row in rows))
    for group in sorted(groups(rows), key=lambda group: parts.index(group[0]["part"])):
        row = group[0]
        sizes = {
            name: value for name, value in row["options"].items() if not isinstance(value, bool)
        }
        words = ", ".join(f"{name} {value}" for name, value in sizes.items())
        line = {
            "part": row["part"],
            "sizes": ", ".join(filter(None, [f"n={row['context']}", words])),
            "model": row["model"],
            "width": row["dim"],
            "learning rate": f"{row['lr']:g}",
            "among those tried": edge(rows, group),
            "seeds": len(group),
            "accuracy": intervals.shown([each["accuracy"] for each in group]),
            f"steps to {TARGET_ACCURACY:.0%}": steps_to_target(group),
        }
        if longer := list(by_seed(group, "longer").values()):
            line["twice as long"] = intervals.shown(longer)
        found.append((group, line))
    return found


def one(rows: list[TaskRow], **wanted: object) -> list[TaskRow]:
    """Return the first group of rows with these fields, or an empty list."""
    found = groups(rows, **wanted)
    return found[0] if found else []


def gap(
    first: list[TaskRow], second: list[TaskRow], name: str = "area"
) -> intervals.Interval | None:
    """Return field `name` of `first` minus that of `second`, paired by seed; None if one is missing."""
    here, there = by_seed(first, name), by_seed(second, name)
    return intervals.difference(here, there) if set(here) & set(there) else None


def compare(
    first: list[TaskRow],
    second: list[TaskRow],
    name: str,
    *,
    field: str = "area",
    bound: float = 0.0,
    above: bool = False,
    control: list[TaskRow] | None = None,
) -> Comparison | None:
    """Return the comparison of field `field` of two groups; None if one is missing.

    `control` is the group that must reach the target accuracy, or else nothing is decided.
    """
    difference = gap(first, second, field)
    if difference is None:
        return None
    if field == "area":
        name = f"mean accuracy over {first[0]['steps']} steps, {name}"
    return Comparison(
        name=name,
        interval=difference,
        bound=bound,
        above=above,
        control="" if control is None else untrained(control),
    )


def untrained(rows: list[TaskRow]) -> str:
    """Return why a control counts as not trained, or nothing: it must reach the target accuracy."""
    accuracy = statistics.fmean(row["accuracy"] for row in rows)
    if accuracy >= TARGET_ACCURACY:
        return ""
    return f"{rows[0]['model']} reaches an accuracy of {accuracy:.2f}, below {TARGET_ACCURACY}"
