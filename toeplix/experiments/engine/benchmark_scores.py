"""Scores on the paper's benchmarks in rows: how far they are above chance, and verdicts on C14.

A line of the paper's table counts if a model is above chance in it, most of its prompts fit into the
context, and its questions are those of the benchmark. Intervals of differences are those over seeds,
widened by the standard error over questions, which all seeds share.
"""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TypedDict

from toeplix.evaluation import paper
from toeplix.evaluation.harness import NULL_MODEL
from toeplix.evaluation.paper import TABLE
from toeplix.experiments.engine import intervals, text_rows, tuning
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.thresholds import (
    EQUAL_SCORES,
    MAX_TRUNCATED,
    MIN_STANDARD_ERRORS,
)
from toeplix.experiments.engine.verdicts import Comparison, decide, not_testable, untrained

TMM = "paper flat"  # the paper evaluates its model without heads
COMPARED = (TMM, "toeplitz", "hyena", "llama")
CONTROLS = (NULL_MODEL, "untrained")
RETRIEVAL = TABLE[: [line.label for line in TABLE].index("ARC-Easy")]  # and in-context learning
OTHERS = TABLE[len(RETRIEVAL) :]
TRUNCATED = r"(\w+): (prompts|contexts|continuations) truncated (\d+) of (\d+)"
SCORES = "benchmarks"  # `part` of the rows with scores; the other rows tune learning rates


class ScoreEntry(TypedDict):
    """A line of the paper's table as a row stores it: fields of `Score`, None instead of NaN."""

    value: float
    error: float | None
    questions: int
    tasks: int
    note: str


class BenchmarkRow(text_rows.TextRow, total=False):
    """A row of a run, and the scores of its model."""

    tasks: list[str]
    scores: dict[str, ScoreEntry]
    constant_answers: dict[str, float | None]  # by line; not in rows of scale laptop
    wikitext_bits_per_byte: float | None
    truncated: list[str]


Models = Mapping[str, Sequence[BenchmarkRow]]


def evaluated(rows: Sequence[BenchmarkRow]) -> dict[str, list[BenchmarkRow]]:
    """Return the rows with scores by model, controls included, for the longest list of tasks.

    Each model has its best learning rate: a rate at which a run diverged is given up.
    """
    scored = text_rows.of_one_text([row for row in rows if row["part"] == SCORES])
    longest: list[str] = max((row["tasks"] for row in scored), key=len, default=[])
    return {
        name: tuning.at_best(
            [row for row in scored if row["model"] == name and row["tasks"] == longest]
        )
        for name in (*COMPARED, *CONTROLS)
    }


def of_line(rows: Sequence[BenchmarkRow], line: paper.Row) -> list[ScoreEntry]:
    return [row["scores"][line.label] for row in rows if line.label in row["scores"]]


def above_chance(models: Models, name: str, line: paper.Row) -> float | None:
    """Return how many standard errors a model's mean over seeds is above chance; None without scores."""
    scores = of_line(models[name], line)
    if not scores:
        return None
    value = statistics.fmean(score["value"] for score in scores)
    return (value - chance(models, line)) / question_error(scores)


def question_error(scores: Sequence[ScoreEntry]) -> float:
    """Return the standard error over questions of a mean over seeds, in percent.

    All seeds answer the same questions, so more seeds do not reduce it. It is at least one question.
    """
    least = 100 / scores[0]["questions"]
    return max(least, *(score["error"] or 0.0 for score in scores))


def chance(models: Models, line: paper.Row) -> float:
    """Return the chance level in percent: the score of the best baseline.

    In GLUE, guessing is counted as 50%: tasks have two or three choices. More is known where all answers
    are the same, since one answer can be more frequent. A constant answer has a Matthews correlation of
    zero.
    """
    guessing = 50.0 if line.label == "GLUE" else line.chance or 0.0
    constant = [
        value
        for rows in models.values()
        for row in rows
        if (value := row.get("constant_answers", {}).get(line.label)) is not None
    ]
    controls = [of_line(models[name], line) for name in CONTROLS]
    means = [statistics.fmean(s["value"] for s in scores) for scores in controls if scores]
    return max(guessing, *constant, *means, 0.0)


def truncated(row: BenchmarkRow, line: paper.Row) -> float | None:
    """Return the fraction of prompts truncated to the context, if any: the mean over a line's tasks.

    Rows have no count of tasks whose prompts all fit. Where a continuation was truncated, nothing of its
    prompt was left.
    """
    cut: Counter[str] = Counter()
    seen: defaultdict[str, dict[bool, int]] = defaultdict(dict)
    for counted in row["truncated"]:
        match = re.fullmatch(TRUNCATED, counted)
        if match and match[1] in line.tasks:
            cut[match[1]] += int(match[3])
            # a task may have prompts to complete, and contexts with continuations to score
            seen[match[1]][match[2] == "prompts"] = int(match[4])
    tasks = [task for task in line.tasks if task in row["tasks"]]
    shares = [cut[task] / sum(seen[task].values()) for task in cut]
    return sum(shares) / max(1, len(tasks)) if shares else None


def counts(models: Models, line: paper.Row) -> bool:
    """Return whether the prompts of a line fit mostly, and its questions are the benchmark's."""
    rows = [row for name in (TMM, "hyena") for row in models[name]]
    fits = all((truncated(row, line) or 0.0) <= MAX_TRUNCATED for row in rows)
    return fits and not any(score["note"] for score in of_line(rows, line))


def gap(models: Models, lines: Sequence[paper.Row]) -> intervals.Interval | None:
    """Return the score of the paper's TMM minus Hyena's in percent, mean over lines, paired by seed."""

    def means(name: str) -> dict[int, float]:
        return {
            row["seed"]: statistics.fmean(row["scores"][line.label]["value"] for line in there)
            for row in models[name]
            if (there := [line for line in lines if line.label in row["scores"]])
        }

    first, second = means(TMM), means("hyena")
    if not set(first) & set(second):
        return None
    errors = [
        question_error(scores)
        for line in lines
        for name in (TMM, "hyena")
        if (scores := of_line(models[name], line))
    ]
    shared = math.hypot(*errors) / len(lines)
    return intervals.widened(intervals.difference(first, second), shared)


def holds(rows: list[BenchmarkRow]) -> dict[str, Verdict]:
    """Judge C14 by the lines in which TMM or Hyena is above chance; the others measure nothing."""
    models = evaluated(rows)
    both = ("C14a", "C14b")
    if not all(models[name] for name in ("hyena", *CONTROLS)):
        return {}
    if not models["hyena"][0]["tasks"]:
        return dict.fromkeys(both, not_testable("no data files of benchmarks were found"))
    if not models[TMM]:
        return dict.fromkeys(both, not_testable("the paper's model has no scores here"))
    parts: dict[str, list[Comparison] | Verdict] = {}
    for part, lines, bound in zip(both, (RETRIEVAL, OTHERS), (0.0, -EQUAL_SCORES), strict=True):
        parts[part] = _part(models, [line for line in lines if counts(models, line)], bound)
    return decide(parts)


def _part(models: Models, lines: Sequence[paper.Row], bound: float) -> list[Comparison] | Verdict:
    measured = [line for line in lines if of_line(models["hyena"], line)]
    if not measured:
        return not_testable(
            f"of these benchmarks none has its own questions and at most {MAX_TRUNCATED:.0%} of "
            "prompts that are longer than the context"
        )
    clear = {
        f"{name} in {line.label} ({errors:.1f} standard errors)": line
        for name in (TMM, "hyena")
        for line in measured
        if (errors := above_chance(models, name, line)) is not None and errors > MIN_STANDARD_ERRORS
    }
    difference = gap(models, [line for line in measured if line in clear.values()])
    if difference is None:
        return untrained("neither model is above chance in any of these benchmarks")
    name = f"{TMM} minus hyena; above chance: {', '.join(clear)}"
    return [Comparison(name=name, interval=difference, bound=bound, above=True, unit="percent")]
