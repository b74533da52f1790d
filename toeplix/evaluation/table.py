"""Tables of scores with standard errors, and a mark on differences that are within noise.

A score is marked ~ when it is less than two standard errors of the difference away from the best score of
the models evaluated here. The standard errors of the paper's values are computed from their number of
questions.
"""

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from toeplix.evaluation import paper
from toeplix.evaluation.paper import Score

NOISE_STANDARD_ERRORS = 2.0  # standard errors of a difference
PUBLISHED = {"toeplitz": "paper: TMM", "hyena": "paper: Hyena", "transformer": "paper: Transformer"}


def noisy(one: Score, other: Score) -> bool:
    """Return whether the difference of two scores is within noise."""
    return abs(one.value - other.value) <= NOISE_STANDARD_ERRORS * math.hypot(
        _error(one), _error(other)
    )


def _error(score: Score) -> float:
    """Return the standard error, at least one question: 0 of 100 correct is no proof of 0."""
    return max(100 / score.questions, 0.0 if math.isnan(score.error) else score.error)


def by_model(rows: Sequence[dict[str, Any]]) -> dict[str, dict[tuple[str, str], dict[str, Any]]]:
    """Return rows by (task, metric) for each model, in order of appearance."""
    found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["model"], {})[row["task"], row["metric"]] = row
    return found


def paper_table(rows: Sequence[dict[str, Any]]) -> Table | None:
    """Return the evaluated lines of the paper's table in percent; None if there are none."""
    models = by_model(rows)
    drawn = Table(
        title="the paper's table, in percent, ± standard error; ~ within noise of the best here; "
        "* not the paper's questions"
    )
    for column in ("benchmark", "questions", *models, *PUBLISHED.values()):
        first = column == "benchmark"
        drawn.add_column(column, justify="left" if first else "right", no_wrap=first)
    for line in paper.TABLE:
        scores = {name: score for name in models if (score := line.score(models[name]))}
        if not scores:
            continue
        top = max(scores.values(), key=lambda score: score.value)
        cells = []
        for name in models:
            cells.append(_cell(scores[name], top) if name in scores else "-")
        partial = top.tasks < len(line.tasks) or top.questions < sum(line.sizes) or bool(top.note)
        for arch in PUBLISHED:
            if (value := line.published.get(arch)) is None:
                cells.append("-")
                continue
            known = Score(value, line.published_error(value), len(line.tasks), sum(line.sizes))
            # another selection of questions: nothing to compare
            cells.append(f"{value:.1f}{'' if partial or not noisy(known, top) else ' ~'}")
        part = f" ({top.tasks} of {len(line.tasks)} tasks)" if top.tasks < len(line.tasks) else ""
        star = " *" if partial else ""
        drawn.add_row(line.label + part + star, str(top.questions), *cells)
    return drawn if drawn.row_count else None


def _cell(score: Score, top: Score) -> str:
    error = "" if math.isnan(score.error) else f" ± {score.error:.1f}"
    return f"{score.value:.1f}{error}" + (" ~" if score is not top and noisy(score, top) else "")


def full_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a table of every task and metric of the harness, with one column for each model."""
    filters: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        filters.setdefault((row["task"], row["metric"]), set()).add(row["filter"])
    named = [
        row | {"metric": f"{row['metric']} ({row['filter']})"}
        if len(filters[row["task"], row["metric"]]) > 1
        else row
        for row in rows
    ]
    models = by_model(named)
    drawn = Table(title="tasks and metrics, as the harness reports them")
    for column in ("task", "metric", "questions", *models):
        drawn.add_column(column, justify="left" if column in ("task", "metric") else "right")
    for key in dict.fromkeys(key for found in models.values() for key in found):
        there = [found[key] for found in models.values() if key in found]
        cells = [_plain(found[key]) if key in found else "-" for found in models.values()]
        drawn.add_row(*key, str(there[0]["count"]), *cells)
    return drawn


def _plain(row: dict[str, Any]) -> str:
    error = "" if row["stderr"] is None else f" ± {row['stderr']:.3g}"
    return f"{row['value']:.4g}{error}"
