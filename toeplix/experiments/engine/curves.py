"""Plots and tables of training runs: curves of validation loss, and final losses."""

import math
import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toeplix.experiments.engine import intervals, style, tuning
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.style import Axes, Figure
from toeplix.experiments.engine.text_rows import (
    SplitKind,
    TextRow,
    at_best,
    edge,
    losses,
    split_losses,
    tokens_per_parameter,
)
from toeplix.experiments.engine.thresholds import MIN_TOKENS_PER_PARAMETER
from toeplix.experiments.engine.verdicts import Comparison

LOSS = "validation loss (nats per token)"
SHOWN_FROM = 0.35  # fraction of the steps from which the losses of a curve fit into its panel
FAR = 5.0  # a panel leaves out models so many times as far from the median as the best one is
NAMES_SHARE, NAME_LETTERS = 0.5, 21  # of a panel's width, in one line: published curves
TIME = "training time (1 = a step of the paper's flat TMM)"
AXES: dict[str, Callable[[TextRow, float], float]] = {
    "steps": lambda row, step: step,
    "FLOPs": lambda row, step: step * row["flops_per_step"],
    TIME: lambda row, step: step * row["relative_time"],
}
SPLIT: dict[SplitKind, str] = {  # columns of the table
    "repeated": "loss on repeated bigrams",
    "rare_repeated": "on rare ones",
    "other": "loss on others",
}
CAPTION = "Validation loss of each model at its best learning rate."
Looks = dict[str, dict[str, Any]]  # of `style.looks`


def bars(means: Iterable[intervals.Interval]) -> list[float]:
    """Return half the widths of intervals, 0 of those over fewer seeds than are shown."""
    return [
        (each.high - each.low) / 2 if each.dof >= style.MIN_SEEDS - 1 else 0.0 for each in means
    ]


def draw(
    axes: Axes, rows: Sequence[TextRow], along: str, *, title: str = "", part: str = ""
) -> None:
    """Plot the validation loss of each model at its best learning rate: mean and interval over seeds.

    Runs that diverged are left out. The axis of losses shows the later part of training, in which the
    models differ; axes other than steps are logarithmic.
    """
    groups = at_best(rows, part)
    looks = style.looks(groups)
    shown: dict[str, list[float]] = {}
    for name, group in groups.items():
        runs = [row for row in group if row["curve"] and row["loss"] is not None]
        if not runs:
            continue
        shared = set.intersection(*({step for step, _ in row["curve"]} for row in runs))
        steps = sorted(shared)
        by_step = [{point[0]: point[1] for point in row["curve"]} for row in runs]
        values = [[each[step] for each in by_step] for step in steps]
        means = [intervals.mean(each) for each in values]
        places = [AXES[along](runs[0], step) for step in steps]
        axes.plot(
            places, [each.value for each in means], label=name, markersize=3, lw=1.2, **looks[name]
        )
        if len(runs) >= style.MIN_SEEDS:
            low, high = [each.low for each in means], [each.high for each in means]
            axes.fill_between(places, low, high, color=looks[name]["color"], alpha=0.15, lw=0)
        late = steps[-1] * SHOWN_FROM
        shown[name] = [each.value for step, each in zip(steps, means, strict=True) if step >= late]
    limit = _limit([values[-1] for values in shown.values()])
    fitting = [value for values in shown.values() if values[-1] <= limit for value in values]
    if fitting:
        margin = 0.08 * (max(fitting) - min(fitting)) + 1e-3
        axes.set_ylim(min(fitting) - margin, max(fitting) + margin)
    if along != "steps":
        axes.set_xscale("log")
    starts = [
        start for line in axes.lines if (start := _start(line.get_xydata(), axes)) is not None
    ]
    if starts:
        axes.set_xlim(left=min(starts))
    if along != "steps":
        style.log_ticks(axes)
    style.finish(axes, x=along, y=LOSS, title=title)


def _start(points: Any, axes: Axes) -> float | None:
    """Return where a line comes into the panel from above, None if it does not."""
    top = axes.get_ylim()[1]
    for (before, above), (after, loss) in zip([points[0], *points], points, strict=False):
        if loss <= top:
            share = (above - top) / (above - loss) if above > top else 1.0
            return float(before + share * (after - before))
    return None


def _limit(finals: Sequence[float]) -> float:
    """Return the final loss beyond which a model is too far from the others for their panel."""
    if not finals:
        return math.inf
    middle = statistics.median(finals)
    return middle + FAR * (middle - min(finals))


def ends(
    axes: Axes,
    groups: dict[str, list[TextRow]],
    *,
    title: str = "",
    width: bool = False,
    looks: Looks | None = None,
) -> None:
    """Plot final losses: the mean of each model with its interval, and one small dot per seed."""
    looks = style.looks(groups) if looks is None else looks
    found = {name: list(losses(group).values()) for name, group in groups.items()}
    limit = _limit([statistics.fmean(values) for values in found.values() if values])
    every: list[float] = []
    for place, (name, values) in enumerate(found.items()):
        if not values:
            continue
        mean = intervals.mean(values)
        if mean.value > limit:
            edge_of = axes.get_yaxis_transform()
            how: dict[str, Any] = {
                "xycoords": edge_of,
                "ha": "right",
                "va": "center",
                "xytext": (0, 0),
            }
            style.word(axes, (1.0, place), f"{mean} \N{RIGHTWARDS ARROW}", **how)
            continue
        every += values
        colour = looks[name]["color"]
        axes.plot(values, [place + 0.25] * len(values), ".", color=colour, markersize=3, alpha=0.7)
        own: dict[str, Any] = {"marker": looks[name]["marker"], "color": colour, "markersize": 5}
        # an interval narrower than its marker is seen by its caps
        caps: dict[str, Any] = {"capsize": 4, "capthick": 1.1, "elinewidth": 1.4}
        wide = bars([mean]) if len(values) >= style.MIN_SEEDS else None
        axes.errorbar(mean.value, place, xerr=wide, **own, **caps)
    if every:
        # intervals of few seeds can be wider than all differences: they are clipped
        margin = 0.3 * (max(every) - min(every)) + 1e-3
        axes.set_xlim(min(every) - margin, max(every) + margin)
    names = [f"{name}, d={rows[0]['dim']}" if width else name for name, rows in groups.items()]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.locator_params(axis="x", nbins=6)
    style.finish(axes, x=LOSS, y="", title=title)


def published(axes: Axes, rows: list[Row], *, title: str = "published, from logs") -> None:
    """Plot the authors' published curves with hollow markers, each with its name beside its end."""
    looks = style.looks(map(_published_name, rows))
    for row in rows:
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 3.5, "linewidth": 0.9}
        axes.plot(*zip(*row["curve"], strict=True), **(looks[_published_name(row)] | hollow))
    late = [
        loss for row in rows for step, loss in row["curve"] if step >= 0.15 * row["curve"][-1][0]
    ]
    if late:
        axes.set_ylim(min(late) - 0.1, max(late) + 0.1)
        last = max(row["curve"][-1][0] for row in rows)
        axes.set_xticks([0, last / 2, last])
        axes.set_xlim(0, last / (1 - NAMES_SHARE))
        words = [textwrap.fill(row["label"], NAME_LETTERS) for row in rows]
        colours = [looks[_published_name(row)]["color"] for row in rows]
        points = [tuple(row["curve"][-1]) for row in rows]
        style.names(axes, zip(points, words, colours, strict=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    style.finish(axes, x="steps", y=LOSS, title=title)


def _published_name(row: Row) -> str:
    """Return a name by which a published model looks like ours: windows are fractions of the context."""
    family, _, size = row["model"].partition(" ")
    if family == "window":
        return f"window n/{row['context'] // int(size)}"
    return f"{row['model']}, {row['label']}"


def pair(
    rows: Sequence[TextRow], hollow: list[Row], title: str, *, more: Iterable[str] = ()
) -> Figure:
    """Return the standard figure: loss by steps, by time, final losses, and published curves if any."""
    if hollow:
        drawing, axes = style.panels(2, 2, width=4.6)
        published(axes[3], hollow)
    else:
        drawing, axes = style.panels(3)
    draw(axes[0], rows, "steps", title="by steps")
    draw(axes[1], rows, TIME, title="by time")
    ends(axes[2], at_best(rows), title="final losses")
    caption = f"{title.capitalize()}: {CAPTION[0].lower()}{CAPTION[1:]}"
    return compose(drawing, caption, more=more)


def compose(drawing: Figure, caption: str = CAPTION, *, more: Iterable[str] = ()) -> Figure:
    """Finish a figure of training runs with a caption that says what its intervals are."""
    return style.compose(drawing, " ".join([caption, style.INTERVALS, *more]))


def table(rows: Sequence[TextRow]) -> list[dict[str, object]]:
    """Return a table of the final loss of every model, by part."""
    parts = list(dict.fromkeys(row["part"] for row in rows))
    found: list[dict[str, object]] = []
    for part in parts:
        for name, group in at_best(rows, part).items():
            values = list(losses(group).values())
            diverged = len(group) - len(values)
            words = [str(intervals.mean(values))] if values else []
            words += [f"{diverged} of {len(group)} diverged"] if diverged else []
            split = {
                column: str(intervals.mean(list(known.values())))
                for kind, column in SPLIT.items()
                if (known := split_losses(group, kind))
            }
            place: dict[str, object] = {"part": part or "equal width"} if len(parts) > 1 else {}
            found.append(
                place
                | {
                    "model": name,
                    "width": group[0]["dim"],
                    "parameters": f"{group[0]['parameters']:,}",
                    "tokens per parameter": f"{tokens_per_parameter(group[0]):.1f}",
                    "learning rate": f"{group[0]['lr']:g}",
                    "among those tried": edge(rows, name, part),
                    "seeds": len(group),
                    "loss": ", ".join(words),
                    "step time": f"{statistics.fmean(row['relative_time'] for row in group):.2f}",
                }
                | split
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


def compare(
    rows: Sequence[TextRow],
    first: str,
    second: str,
    part: str = "",
    *,
    bound: float = 0.0,
    above: bool = False,
    name: str = "",
) -> Comparison | None:
    """Compare the loss of `first` with that of `second`, its control; None if one is missing."""
    difference, groups = gap(rows, first, second, part), at_best(rows, part)
    if difference is None:
        return None
    return Comparison(
        name=name or f"{first} minus {second}",
        interval=difference,
        bound=bound,
        above=above,
        unit="nats",
        control=untrained(second, groups[second]) or some_diverged(first, groups[first]),
    )


def best_of(rows: Sequence[TextRow], names: Sequence[str], part: str = "") -> str | None:
    """Return the model with the lowest mean tuning loss; None if one of them is missing.

    The reported loss of the chosen model would be too low if it were the reason of the choice. Rows of
    the first protocol have no other. Runs that diverged do not count.
    """
    groups = at_best(rows, part)
    levels = {
        name: [tuning.level(row) for row in groups.get(name, []) if row["loss"] is not None]
        for name in names
    }
    if not all(levels.values()):
        return None
    return min(names, key=lambda name: statistics.fmean(levels[name]))


def some_diverged(name: str, rows: Sequence[TextRow]) -> str:
    """Return how many runs diverged if any did: the mean of the others would be too good."""
    count = sum(row["loss"] is None for row in rows)
    return f"{count} of {len(rows)} runs of {name} diverged" if count else ""


def untrained(name: str, rows: Sequence[TextRow]) -> str:
    """Return why a control counts as not trained, or nothing: it must be better than a bigram model.

    Rows of the first protocol have no bigram loss; they must have one training token per parameter.
    """
    if diverged := some_diverged(name, rows):
        return diverged
    values = losses(rows).values()
    loss, read = statistics.fmean(values), tokens_per_parameter(rows[0])
    bigrams = [row["bigram_loss"] for row in rows if "bigram_loss" in row]
    if bigrams and loss >= statistics.fmean(bigrams):
        return (
            f"the loss of {name}, {loss:.2f}, is not below that of a bigram model, "
            f"{statistics.fmean(bigrams):.2f}"
        )
    if not bigrams and read < MIN_TOKENS_PER_PARAMETER:
        return f"{name} has read {read:.1f} tokens per parameter"
    return ""
