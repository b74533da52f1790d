"""Plots and tables of training runs: curves of validation loss, and final losses."""

import statistics
from collections.abc import Callable, Sequence

from toeplix.experiments.engine import intervals, style
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.style import Axes, Figure
from toeplix.experiments.engine.text_training import TextRow, at_best, losses

LOSS = "validation loss (nats per token)"
AXES: dict[str, Callable[[TextRow, float], float]] = {
    "steps": lambda row, step: step,
    "FLOPs": lambda row, step: step * row["flops_per_step"],
    "time (steps of the paper's flat TMM)": lambda row, step: step * row["relative_time"],
}


def draw(
    axes: Axes, rows: Sequence[TextRow], along: str, *, title: str = "", part: str = ""
) -> None:
    """Plot the validation loss of each model at its best learning rate, one line per seed."""
    for name, group in at_best(rows, part).items():
        for number, row in enumerate(row for row in group if row["curve"]):
            points = [(AXES[along](row, step), loss) for step, loss in row["curve"]]
            line_style = style.look(name, label=None if number else name, markersize=2.5, alpha=0.8)
            axes.plot(*zip(*points, strict=True), **line_style)
    style.finish(axes, x=along, y=LOSS, title=title)


def ends(
    axes: Axes, groups: dict[str, list[TextRow]], *, title: str = "", width: bool = False
) -> None:
    """Plot final losses, one dot per seed, with a line at their mean."""
    for place, (name, group) in enumerate(groups.items()):
        values = list(losses(group).values())
        axes.plot(values, [place] * len(values), **style.look(name, linestyle="none", markersize=4))
        if values:
            axes.plot(statistics.fmean(values), place, "|", color="black", markersize=12)
    names = [f"{name}, d={rows[0]['dim']}" if width else name for name, rows in groups.items()]
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    style.finish(axes, x=LOSS, y="", title=title)


def published(axes: Axes, rows: list[Row], *, title: str = "published, from logs") -> None:
    """Plot the authors' published curves with hollow markers."""
    for row in rows:
        hollow = {"markerfacecolor": "none", "markersize": 4, "linewidth": 0.8}
        line_style = style.look(row["model"], label=row["label"], **hollow)
        axes.plot(*zip(*row["curve"], strict=True), **line_style)
    axes.locator_params(axis="x", nbins=5)
    style.finish(axes, x="steps", y=LOSS, title=title)


def pair(rows: Sequence[TextRow], hollow: list[Row], title: str) -> Figure:
    """Return the standard figure: loss by steps, loss by time, and published curves if there are any."""
    columns = 3 if hollow else 2
    drawing = style.canvas(columns)
    axes = drawing.subplots(1, columns)
    for place, along in zip(axes, ("steps", "time (steps of the paper's flat TMM)"), strict=False):
        draw(place, rows, along, title=title)
    if hollow:
        published(axes[2], hollow)
    return drawing


def table(rows: Sequence[TextRow]) -> Table:
    """Return a table of the final loss of every model, by part."""
    parts = list(dict.fromkeys(row["part"] for row in rows))
    found = []
    for part in parts:
        for name, group in at_best(rows, part).items():
            values = list(losses(group).values())
            diverged = len(group) - len(values)
            words = [str(intervals.mean(values))] if values else []
            words += [f"{diverged} of {len(group)} diverged"] if diverged else []
            place = {"part": part or "equal width"} if len(parts) > 1 else {}
            found.append(
                place
                | {
                    "model": name,
                    "width": group[0]["dim"],
                    "parameters": f"{group[0]['parameters']:,}",
                    "learning rate": f"{group[0]['lr']:g}",
                    "loss": ", ".join(words),
                    "step time": f"{statistics.fmean(row['relative_time'] for row in group):.2f}",
                }
            )
    return found


def gap(
    rows: Sequence[TextRow], first: str, second: str, part: str = ""
) -> intervals.Interval | None:
    """Return the loss of `first` minus that of `second`, each at its best learning rate, paired by seed.

    The result is None if one of them is missing.
    """
    groups = at_best(rows, part)
    one, other = (losses(groups.get(name, [])) for name in (first, second))
    return intervals.difference(one, other) if set(one) & set(other) else None
