"""Plots and tables of task training: accuracy during training, and steps to the target accuracy."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toeplix.experiments.engine import intervals, style
from toeplix.experiments.engine.rows import Table
from toeplix.experiments.engine.style import Axes
from toeplix.experiments.engine.task_training import (
    TARGET_ACCURACY,
    LearningRow,
    TaskRow,
    by_seed,
    groups,
)

ACCURACY = "validation accuracy"


def draw(
    axes: Axes, found: Iterable[Sequence[LearningRow]], *, title: str = "", samples: bool = False
) -> None:
    """Plot the accuracy during training, one line per seed."""
    for group in found:
        for number, row in enumerate(row for row in group if row["curve"]):
            points = [
                (step * (row["batch"] if samples else 1), right) for step, _, right in row["curve"]
            ]
            label = None if number else row["model"]
            line_style = style.look(row["model"], label=label, markersize=2.5, alpha=0.8)
            axes.plot(*zip(*points, strict=True), **line_style)
    style.finish(axes, x="samples" if samples else "steps", y=ACCURACY, title=title)


def along(
    axes: Axes,
    found: Iterable[list[TaskRow]],
    field: str,
    *,
    x: str,
    title: str = "",
    y: str = ACCURACY,
) -> None:
    """Plot the final accuracy against a size: means, with error bars from the worst to the best seed."""
    lines: dict[str, list[tuple[float, list[float]]]] = {}
    for group in found:
        row: Mapping[str, Any] = group[0]
        place = row.get(field, row["options"].get(field))
        values = [row["accuracy"] for row in group]
        lines.setdefault(group[0]["model"], []).append((place, values))
    for name, points in lines.items():
        points.sort()
        places = [place for place, _ in points]
        means = [statistics.fmean(values) for _, values in points]
        ends = [[mean - min(v) for mean, (_, v) in zip(means, points, strict=True)]]
        ends += [[max(v) - mean for mean, (_, v) in zip(means, points, strict=True)]]
        axes.errorbar(places, means, yerr=ends, label=name, **style.look(name, markersize=3))
    axes.set_xscale("log", base=2)
    style.finish(axes, x=x, y=y, title=title)


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
            "accuracy": str(intervals.mean([each["accuracy"] for each in group])),
            f"steps to {TARGET_ACCURACY:.0%}": steps_to_target(group),
        }
        if longer := list(by_seed(group, "longer").values()):
            line["twice as long"] = str(intervals.mean(longer))
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
