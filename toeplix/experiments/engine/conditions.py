"""The conditions under which rows were measured, as text: tokens per parameter, seeds, learning rates."""

from collections.abc import Mapping, Sequence
from typing import cast

from toeplix.experiments.engine import task_tuning, text_rows, tuning
from toeplix.experiments.engine.frontier_rows import FrontierRow, edge, frontier
from toeplix.experiments.engine.retention_verdicts import RetentionRow, decoders
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.task_training import TaskRow
from toeplix.experiments.engine.text_rows import TextRow

MAX_NAMED = 6  # models at an edge that are named

AT_EDGE = ("lowest", "highest")


def conditions(rows: Sequence[Row]) -> list[str]:
    """Return what a reader should know of an experiment's rows before its numbers."""
    found: list[str] = []
    rows, left_out = _one_text(rows)
    if left_out:
        found.append(f"{len(left_out)} rows on other texts are left out")
    runs = [row for row in rows if "seed" in row and not row.get("tuning_run")]
    if not runs:
        return found
    groups, edges = _groups(rows)
    read = [
        row["steps"] * row["batch"] * row["context"] / row["parameters"]
        for row in [row for group in groups for row in group] or runs
        if row.get("parameters") and "task" not in row
    ]
    if read:
        found.append(f"tokens per parameter: {_span(min(read), max(read))}")
    counts = _seeds(rows, groups)
    if counts:
        few, many = min(counts), max(counts)
        found.append(f"seeds: {few if few == many else f'{few} to {many}'}")
    tried = [place for place in edges.values() if place != "only"]
    if tried:
        at = [name for name, place in edges.items() if place in AT_EDGE]
        names = ", ".join(at[:MAX_NAMED]) + (", ..." if len(at) > MAX_NAMED else "")
        found.append(
            f"learning rates at an edge of those tried: {len(at)} of {len(tried)}"
            + (f" ({names})" if at else "")
        )
    return found


def _one_text(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows on the text that is reported in their part (`at_best`), and the others."""
    if not all("relative_time" in row for row in rows):
        return list(rows), []
    reported = {}
    for part in dict.fromkeys(row["part"] for row in rows):
        texts = cast("list[TextRow]", [row for row in rows if row["part"] == part])
        shown: Sequence[Mapping[str, object]] = text_rows.fullest(
            [row for row in texts if not row.get("tuning_run")] or texts, text_rows.setting
        )
        reported[part] = shown[0].get("data")
    left_out = [row for row in rows if row.get("data") != reported[row["part"]]]
    return [row for row in rows if row not in left_out], left_out


def _span(low: float, high: float) -> str:
    return f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} to {high:.2g}"


def _groups(rows: Sequence[Row]) -> tuple[list[list[Row]], dict[str, str]]:
    """Return the groups that are reported, and where the learning rate of each lies among those tried."""
    if all("options" in row and "solved" in row for row in rows):
        tasks = cast("list[TaskRow]", list(rows))
        of_tasks = task_tuning.groups(tasks)
        edges = {_name(group[0]): task_tuning.edge(tasks, group) for group in of_tasks}
        return cast("list[list[Row]]", of_tasks), edges
    if all("budget" in row for row in rows):
        return _of_frontier(cast("list[FrontierRow]", list(rows)))
    if all("probe" in row for row in rows):
        return _of_decoders(cast("list[RetentionRow]", list(rows)))
    groups: list[list[TextRow]] = []
    edges = {}
    if all("relative_time" in row for row in rows):
        texts = cast("list[TextRow]", list(rows))
        for part in dict.fromkeys(row["part"] for row in texts):
            for name in dict.fromkeys(row["model"] for row in texts if row["part"] == part):
                here = _one_width(texts, name, part)
                for group in text_rows.at_best(here, part).values():
                    groups.append(group)
                    edges[f"{name} {part}".strip()] = text_rows.edge(here, name, part)
    return cast("list[list[Row]]", groups), edges


def _of_frontier(rows: list[FrontierRow]) -> tuple[list[list[Row]], dict[str, str]]:
    groups: list[list[FrontierRow]] = []
    edges = {}
    for name, budgets in frontier(rows).items():
        for budget, group in budgets.items():
            groups.append(group)
            edges[f"{name}, {budget:.2g} FLOPs"] = edge(rows, group)
    return cast("list[list[Row]]", groups), edges


def _of_decoders(rows: list[RetentionRow]) -> tuple[list[list[Row]], dict[str, str]]:
    groups: list[list[RetentionRow]] = []
    edges = {}
    for (part, name, training), tried in decoders(rows).items():
        best = tuning.at_best(tried)
        groups.append(best)
        said = f"decoders on {name}, {training}, {part}"
        edges[said] = tuning.place(best[0]["lr"], (row["lr"] for row in tried))
    return cast("list[list[Row]]", groups), edges


def _seeds(rows: Sequence[Row], groups: Sequence[Sequence[Row]]) -> list[int]:
    """Return the number of seeds of every group; without groups, of every model, task and part."""
    if groups:
        return [len(group) for group in groups]
    seeds: dict[tuple[object, ...], set[int]] = {}
    for row in rows:
        if "seed" in row:
            compared = tuple(row.get(name) for name in ("part", "task", "model", "dim"))
            seeds.setdefault(compared, set()).add(row["seed"])
    counts = [len(each) for each in seeds.values()]
    # runs that only choose a learning rate, and baselines without weights, have one seed by design
    return [count for count in counts if count > 1] or counts


def _one_width(rows: Sequence[TextRow], name: str, part: str) -> list[TextRow]:
    """Return the rows of a model at the width that has most of them: others were only searched."""
    by_width: dict[int, list[TextRow]] = {}
    for row in rows:
        if row["model"] == name and row["part"] == part:
            by_width.setdefault(row["dim"], []).append(row)
    return max(by_width.values(), key=len)


def _name(row: TaskRow) -> str:
    return f"{row['model']} {row['part']} n={row['context']} d={row['dim']}"
