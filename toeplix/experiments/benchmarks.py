"""Benchmarks (Figure 1, right): scores of small models on the tasks of the paper's table.

The models are those of the `training` experiment at equal width, at their best learning rate, with all
seeds; models that are already trained are reused. The claim compares the paper's flat TMM, the one that
the paper evaluates, with Hyena; this library's "toeplitz" has a gate and is shown beside them. Tasks are
evaluated if their published data files are found in $TOEPLIX_BENCHMARKS; without it only the validation
text is evaluated. Models trained on a few hundred thousand tokens can be expected to score near chance
level, so every score is given as the number of standard errors above chance. The chance level is the best
of three baselines: guessing among the choices, a null model with empty completions
(`toeplix.evaluation.null_model`), and untrained models.
"""

import contextlib
import functools
import io
import math
import os
import re
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from toeplix.data.store import TOKENIZER
from toeplix.evaluation import paper
from toeplix.evaluation.harness import NULL_MODEL
from toeplix.evaluation.paper import TABLE, Score
from toeplix.experiments.engine import corpora, intervals, style, text_rows, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.thresholds import EQUAL_SCORES, MIN_STANDARD_ERRORS
from toeplix.experiments.engine.verdicts import Comparison, decide, not_testable, untrained

CLAIMS, MEASURES_TIME = ("C14",), False
COST = "about 25 minutes on two cores with --jobs 2, after `training`; data in $TOEPLIX_BENCHMARKS"
TMM = "paper flat"  # the paper evaluates its model without heads
COMPARED = (TMM, "toeplitz", "hyena", "llama")
CONTROLS = (NULL_MODEL, "untrained")
QUESTION_LIMIT = {"paper": None, "desk": 200, "laptop": 100, "smoke": 2}  # questions per task
RETRIEVAL = TABLE[: [line.label for line in TABLE].index("ARC-Easy")]  # and in-context learning
OTHERS = TABLE[len(RETRIEVAL) :]
SCORES = "benchmarks"  # `part` of the rows with scores; the other rows tune learning rates
NO_SCORES: dict[str, Any] = {
    "scores": {},
    "truncated": [],
    "notes": {},
}  # result of a case without scores


@dataclass(frozen=True, kw_only=True)
class Case(text_rows.Case):
    """A training run, and the tasks on which its model is evaluated."""

    tasks: tuple[str, ...] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(self.tasks))  # JSON has lists


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
    wikitext_bits_per_byte: float | None
    truncated: list[str]


def data_root() -> Path | None:
    place = os.environ.get("TOEPLIX_BENCHMARKS")
    return Path(place) if place else None


@functools.lru_cache
def available(root: Path | None) -> tuple[str, ...]:
    """Return the tasks of the table, and WikiText, whose data files are found in `root`."""
    if root is None:
        return ()
    from toeplix.evaluation.data import MissingData, sources
    from toeplix.evaluation.harness import manager

    names = [*paper.TASKS, "wikitext"]
    known, found = manager(names), []
    with warnings.catch_warnings(), sources(root):
        warnings.simplefilter("ignore")  # those of the tasks' libraries are not the user's
        for name in names:
            with contextlib.suppress(MissingData):
                known.load([name])
                found.append(name)
    return tuple(found)


def cases(scale: Scale, rows: list[BenchmarkRow]) -> list[Case]:
    compared = {name: MODELS[name] for name in COMPARED}
    found = [Case(**asdict(case)) for case in text_training.tuned(scale, compared, rows)]
    rates = {name: text_training.settled(rows, name, MODELS[name], scale).rate for name in COMPARED}
    if None in rates.values():
        return found
    tasks = available(data_root())
    for name, rate in rates.items():
        for seed in scale.seeds:
            case = text_rows.Case.of(scale, name, MODELS[name], part=SCORES, lr=rate, seed=seed)
            found.append(Case(**asdict(case), tasks=tasks, limit=QUESTION_LIMIT[scale.name]))
    for name in CONTROLS:
        for seed in scale.seeds[: 1 if name == NULL_MODEL else None]:
            case = text_rows.Case.of(scale, name, {}, part=SCORES, lr=0.0, seed=seed, steps=0)
            found.append(Case(**asdict(case), tasks=tasks, limit=QUESTION_LIMIT[scale.name]))
    return found


def measure(case: Case, work: Path) -> Found:
    if case.model in CONTROLS:
        nothing = {"loss": None, "bits_per_byte": None}
        model = NULL_MODEL if case.model == NULL_MODEL else str(_untrained(case, work))
        return nothing | _scores(case, model)
    plain = {key: value for key, value in asdict(case).items() if key not in ("tasks", "limit")}
    learned = text_training.measure(text_rows.Case(**plain), work)
    if case.part != SCORES or learned["loss"] is None:
        return {**learned, **NO_SCORES}
    return {**learned, **_scores(case, str(work / "runs" / learned["run"] / "model"))}


def _untrained(case: Case, work: Path) -> Path:
    """Return the checkpoint of a Toeplitz model at its initialisation."""
    import torch

    from toeplix import build, save
    from toeplix.data import Tokenizer

    store = corpora.store(case, work)
    folder = work / "untrained" / f"{case.dim}-{case.depth}-{case.context}-{case.seed}"
    with corpora.exclusive(work, f"untrained-{folder.name}"):
        torch.manual_seed(case.seed)
        save(build(case.config(store.vocab)), folder)
        Tokenizer.load(store.directory / TOKENIZER).save(folder)
    return folder


def _scores(case: Case, model: str) -> dict[str, Any]:
    if not case.tasks:
        return NO_SCORES
    from toeplix.evaluation.harness import evaluate

    with contextlib.redirect_stderr(io.StringIO()):  # hide the progress bar of each task
        report = evaluate([model], case.tasks, root=data_root(), limit=case.limit)
    found = {(row["task"], row["metric"]): row for row in report.rows}
    scores = {line.label: score for line in TABLE if (score := line.score(found))}
    text = found.get(("wikitext", "bits_per_byte"))
    return {
        "scores": {label: _finite(score) for label, score in scores.items()},
        "wikitext_bits_per_byte": text and text["value"],
        "truncated": [line.partition(": ")[2] for line in report.truncations],
        "notes": report.notes,
    }


def _finite(score: Score) -> dict[str, Any]:
    """Return a score as a dict with None instead of NaN, which JSON does not have."""
    error = None if math.isnan(score.error) else score.error
    return score._asdict() | {"error": error}


def evaluated(rows: list[BenchmarkRow]) -> dict[str, list[BenchmarkRow]]:
    """Return the rows with scores by model, controls included, for the longest list of tasks."""
    scored = text_rows.of_one_text([row for row in rows if row["part"] == SCORES])
    longest: list[str] = max((row["tasks"] for row in scored), key=len, default=[])
    return {
        name: [row for row in scored if row["model"] == name and row["tasks"] == longest]
        for name in (*COMPARED, *CONTROLS)
    }


def above_chance(models: dict[str, list[BenchmarkRow]], name: str, line: paper.Row) -> float | None:
    """Return how many standard errors a model's mean over seeds is above chance; None without scores."""
    scores = _line(models[name], line)
    if not scores:
        return None
    value = statistics.fmean(score["value"] for score in scores)
    # all seeds answer the same questions, so more seeds do not reduce the standard error
    least = 100 / scores[0]["questions"]
    error = max(least, *(score["error"] or 0.0 for score in scores))
    return (value - chance(models, line)) / error


def chance(models: dict[str, list[BenchmarkRow]], line: paper.Row) -> float:
    """Return the chance level in percent: the score of the best baseline.

    GLUE has two or three choices, and a constant answer has a Matthews correlation of zero. The mean over
    some of its tasks is compared with 50%, which is at least the score of guessing.
    """
    guessing = 50.0 if line.label == "GLUE" else line.chance or 0.0
    controls = [_line(models[name], line) for name in CONTROLS]
    means = [statistics.fmean(s["value"] for s in scores) for scores in controls if scores]
    return max(guessing, *means, 0.0)


def _line(rows: list[BenchmarkRow], line: paper.Row) -> list[ScoreEntry]:
    return [row["scores"][line.label] for row in rows if line.label in row["scores"]]


def gap(rows: list[BenchmarkRow], lines: Sequence[paper.Row]) -> intervals.Interval | None:
    """Return the score of the paper's TMM minus Hyena's in percent, mean over lines, paired by seed."""
    models = evaluated(rows)

    def means(name: str) -> dict[int, float]:
        return {
            row["seed"]: statistics.fmean(row["scores"][line.label]["value"] for line in there)
            for row in models[name]
            if (there := [line for line in lines if line.label in row["scores"]])
        }

    first, second = means(TMM), means("hyena")
    return intervals.difference(first, second) if set(first) & set(second) else None


def holds(rows: list[BenchmarkRow]) -> dict[str, Verdict]:
    """Judge C14 by the lines in which TMM or Hyena is above chance; the others measure nothing."""
    models = evaluated(rows)
    if not all(models[name] for name in ("hyena", *CONTROLS)):
        return {}
    if not models[TMM]:
        return dict.fromkeys(("C14a", "C14b"), not_testable("the paper's model has no scores here"))
    clear = {
        f"{name} in {line.label} ({errors:.1f} standard errors)": line
        for name in (TMM, "hyena")
        for line in TABLE
        if (errors := above_chance(models, name, line)) is not None and errors > MIN_STANDARD_ERRORS
    }
    parts: dict[str, list[Comparison] | Verdict] = {}
    for part, lines, bound in (("C14a", RETRIEVAL, 0.0), ("C14b", OTHERS, -EQUAL_SCORES)):
        decisive = [line for line in lines if line in clear.values()]
        difference = gap(rows, decisive)
        if difference is None:
            parts[part] = untrained("neither model is above chance in any of these benchmarks")
            continue
        where = ", ".join(name for name, line in clear.items() if line in decisive)
        name = f"{TMM} minus hyena; above chance: {where}"
        parts[part] = [
            Comparison(name=name, interval=difference, bound=bound, above=True, unit="percent")
        ]
    return decide(parts)


def table(rows: list[BenchmarkRow]) -> Table:
    models = evaluated(rows)
    found: list[dict[str, object]] = []
    for name, seeds in models.items():
        texts = {
            "validation text": [row.get("bits_per_byte") for row in seeds],
            "WikiText": [row.get("wikitext_bits_per_byte") for row in seeds],
        }
        for label, several in texts.items():
            values = [value for value in several if value]
            if values:
                score = f"{statistics.fmean(values):.3f}"
                found.append(
                    {"benchmark": f"{label}, bits per byte", "model": name, "score": score}
                )
        for line in TABLE:
            scores = _line(seeds, line)
            if not scores:
                continue
            cells: dict[str, object] = {
                "benchmark": line.label + _star(scores[0]),
                "model": name,
                "questions": scores[0]["questions"],
                "score": f"{statistics.fmean(score['value'] for score in scores):.1f}",
            }
            if name in COMPARED:
                errors = above_chance(models, name, line)
                cells["above chance, standard errors"] = f"{errors:.1f}"
                cells["truncated"] = truncated(seeds[0], line)
            part = f"{scores[0]['tasks']} of {len(line.tasks)} tasks"
            parts = [part] if scores[0]["tasks"] < len(line.tasks) else []
            cells["data"] = "; ".join([*parts, *filter(None, [scores[0]["note"]])])
            found.append(cells)
    return found


def _star(score: ScoreEntry) -> str:
    """Return a star if the questions are not those of the benchmark."""
    return " *" if score["note"] else ""


def truncated(row: BenchmarkRow, line: paper.Row) -> str:
    """Return the fraction of prompts of a line's tasks that were truncated to the context."""
    counts = [
        (int(count), int(seen))
        for counted in row["truncated"]
        if (match := re.fullmatch(r"(\w+): (?:prompts|contexts) truncated (\d+) of (\d+)", counted))
        and match[1] in line.tasks
        for count, seen in [match.groups()[1:]]
    ]
    return (
        f"{sum(count for count, _ in counts) / sum(seen for _, seen in counts):.0%}"
        if counts
        else ""
    )


def figure(rows: list[BenchmarkRow], published: list[Row]) -> Figure:
    """Plot scores above chance in standard errors, and the published scores in percent (hollow)."""
    drawing, (ours, theirs) = style.panels(2, width=4.6, height=4.6)
    models = evaluated(rows)
    shift = 0.18  # between the dots of the models of one benchmark
    for number, name in enumerate(COMPARED):
        points = [(above_chance(models, name, line), place) for place, line in enumerate(TABLE)]
        there = [(x, y + shift * (number - 1)) for x, y in points if x is not None]
        if there:
            dots = style.look(name, linestyle="none", label=name, markersize=4)
            ours.plot(*zip(*there, strict=True), **dots)
    names = {"toeplitz": "paper flat", "transformer": "llama"}
    for number, row in enumerate(published):
        arch: str = row["model"]
        values = [(row["percent"].get(line.label), place) for place, line in enumerate(TABLE)]
        known = [(x, y + shift * (number - 1)) for x, y in values if x is not None]
        hollow: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none", "markersize": 4}
        dots = style.look(names.get(arch, arch), **hollow, label=f"published: {arch}")
        theirs.plot(*zip(*known, strict=True), **dots)
    guesses = [(line.chance, place) for place, line in enumerate(TABLE) if line.chance]
    if guesses:
        bars: dict[str, Any] = {
            "color": style.GREY,
            "markersize": 9,
            "linestyle": "none",
            "label": "guessing",
        }
        theirs.plot(*zip(*guesses, strict=True), "|", **bars)
    labels = [
        line.label + next((_star(score) for score in _line(models["hyena"], line)), "")
        for line in TABLE
    ]
    for axes in (ours, theirs):
        axes.set_yticks(range(len(TABLE)), labels if axes is ours else [""] * len(TABLE))
        axes.set_ylim(len(TABLE) - 0.5, -0.5)
    style.finish(ours, x="standard errors above chance", y="", title="evaluated here")
    style.finish(theirs, x="percent", y="", title="published")
    style.level(ours, 0.0, "chance", vertical=True)
    style.level(ours, MIN_STANDARD_ERRORS, "counts as above", vertical=True)
    caption = (
        "(a) Mean score over seeds minus that of the best baseline (guessing, empty completions, "
        "untrained models), in standard errors over questions; * other questions than the "
        "benchmark's. (b) The paper's scores."
    )
    return style.compose(drawing, caption)
