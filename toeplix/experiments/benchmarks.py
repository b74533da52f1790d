"""Benchmarks (Figure 1, right): scores of small models on the tasks of the paper's table.

The models are those of the `training` experiment at equal compute, at their best learning rate; models
that are already trained are reused. The claim compares the paper's flat TMM, the one that the paper
evaluates, with Hyena; this library's "toeplitz" has a gate and is shown beside them. Scale desk has only
the two that are compared, with three seeds, and only benchmarks of which at most half of the prompts are
longer than its context, averaged over tasks; of the retrieval tasks this is xWinograd alone. Tasks are
evaluated if their published data files are found in $TOEPLIX_BENCHMARKS; without it only the validation
text is evaluated. Models trained on a few million tokens can be expected to score near chance level, so
every score is given as the number of standard errors above chance. The chance level is the best of four
baselines: guessing among the choices, the best constant choice, a null model with empty completions
(`toeplix.evaluation.null_model`), and untrained models. `engine/benchmark_scores.py` says which lines of
the table decide.
"""

import contextlib
import functools
import io
import math
import os
import statistics
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from toeplix.data.store import TOKENIZER
from toeplix.evaluation import paper
from toeplix.evaluation.harness import NULL_MODEL
from toeplix.evaluation.paper import TABLE, Score
from toeplix.experiments import training
from toeplix.experiments.engine import (
    benchmark_scores,
    corpora,
    style,
    text_rows,
    text_training,
)
from toeplix.experiments.engine.benchmark_scores import (
    COMPARED,
    CONTROLS,
    OTHERS,
    SCORES,
    TMM,
    BenchmarkRow,
    ScoreEntry,
    above_chance,
    evaluated,
    of_line,
    truncated,
)
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.thresholds import MIN_STANDARD_ERRORS

CLAIMS, MEASURES_TIME = ("C14",), False
COST = (
    "25 minutes on two cores with --jobs 2, after `training`, at scale desk 40 minutes; data in "
    "$TOEPLIX_BENCHMARKS"
)
COMPUTE = "compute"  # the part of `training` whose models are evaluated
QUESTION_LIMIT = {"paper": None, "desk": 200, "laptop": 100, "smoke": 2}  # questions per task
# at scale desk: at scale laptop more than half of the prompts of all other tasks were truncated
SHORT_PROMPTS = (
    *("xwinograd_en", "wikitext"),
    *(task for line in OTHERS for task in line.tasks if task != "lambada_openai"),
)
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
    """Return the runs that tune learning rates, as in `training`, and then those with scores."""
    desk = scale.name == "desk"
    compared = {name: MODELS[name] for name in ((TMM, "hyena") if desk else COMPARED)}
    runs = text_training.tuned(scale, compared, rows)
    if scale.tuning != 1:  # full runs at the scale's width are not evaluated
        runs = [case for case in runs if case.tuning_run]
    # a run with scores that diverged lowers the rate, as it does in `training`
    scored_runs = [row for row in rows if row["part"] == SCORES and row["model"] in compared]
    full = [*rows, *(row | {"part": COMPUTE} for row in scored_runs)]
    wide, rates = {}, {}
    for name, settings in compared.items():
        wide[name] = training.parts(scale, name, settings).get(COMPUTE, {"dim": scale.dim})
        near = text_training.best_rate(rows, name, settings, scale)
        sizes: dict[str, Any] = {"part": COMPUTE, **wide[name]}
        own = {name: settings}
        runs += text_training.tuned(scale, own, full, near={name: near}, **sizes)
        rates[name] = (
            None
            if near is None
            else text_training.settled(full, name, settings, scale, near, **sizes).rate
        )
    found = [Case(**asdict(case)) for case in runs if case.seed == scale.seeds[0]]
    if None in rates.values():
        return found
    tasks, limit = available(data_root()), QUESTION_LIMIT[scale.name]
    if desk:
        tasks = tuple(task for task in tasks if task in SHORT_PROMPTS)
    make = partial(text_rows.Case.of, scale, part=SCORES)
    scored = [
        make(name, MODELS[name], lr=rate, seed=seed, **wide[name])
        for name, rate in rates.items()
        for seed in scale.seeds
    ]
    scored += [
        make(name, {}, lr=0.0, seed=seed, steps=0)
        for name in CONTROLS
        for seed in scale.seeds[: 1 if name == NULL_MODEL else None]
    ]
    return found + [Case(**asdict(case), tasks=tasks, limit=limit) for case in scored]


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
        "constant_answers": {line.label: line.constant_answer(found) for line in TABLE},
        "wikitext_bits_per_byte": text and text["value"],
        "truncated": [line.partition(": ")[2] for line in report.truncations],
        "notes": report.notes,
    }


def _finite(score: Score) -> dict[str, Any]:
    """Return a score as a dict with None instead of NaN, which JSON does not have."""
    error = None if math.isnan(score.error) else score.error
    return score._asdict() | {"error": error}


holds = benchmark_scores.holds


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
            scores = of_line(seeds, line)
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
                share = truncated(seeds[0], line)
                cells["truncated"] = "" if share is None else f"{share:.0%}"
            part = f"{scores[0]['tasks']} of {len(line.tasks)} tasks"
            parts = [part] if scores[0]["tasks"] < len(line.tasks) else []
            cells["data"] = "; ".join([*parts, *filter(None, [scores[0]["note"]])])
            found.append(cells)
    return found


def _star(score: ScoreEntry) -> str:
    """Return a star if the questions are not those of the benchmark."""
    return " *" if score["note"] else ""


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
        line.label + next((_star(score) for score in of_line(models["hyena"], line)), "")
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
        "(a) Mean score over seeds minus that of the best baseline (guessing, constant answers, empty "
        "completions, untrained models), in standard errors over questions; * other questions than the "
        "benchmark's. (b) The paper's scores."
    )
    return style.compose(drawing, caption)
