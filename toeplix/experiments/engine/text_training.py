"""Training on text, which most experiments use: a model is trained, and its validation loss is recorded.

Every model of a random seed sees the same tokens in the same order for the same number of steps; the seed
changes the initialisation and the data order. Learning rates are tuned for each model on one grid with
the first seed (`tuning`), at scale desk with shorter runs, whose choice full runs of the first seed
check. The best learning rate is repeated with the other seeds. The loss of a row is that of the reported
half of the validation documents, `tune_loss` that of the tuning half.

Time is measured relative to a reference, the paper's flat Toeplitz model of the case's sizes: steps of
the model and of the reference are timed interleaved, so that load on the machine slows both.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from toeplix.config import Model
from toeplix.experiments.engine import corpora, intervals, models, tuning
from toeplix.experiments.engine.models import Settings
from toeplix.experiments.engine.repeated_bigrams import split_loss
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.text_rows import (
    Case,
    TextFound,
    TextRow,
    at_best,
    losses,
    rates_of,
    same_case,
)
from toeplix.experiments.engine.text_runs import directory, run_of, trained, tune_loss


class Pair(NamedTuple):
    """Two models that are compared: the loss of `first` minus that of `second`, and its bound."""

    first: str
    second: str
    bound: float = 0.0
    decides: bool = True  # a claim


def measure(case: Case, work: Path, *, variant: str = "") -> TextFound:
    """Train, or take the model that is there, and say what it learned at which price.

    `variant` names what distinguishes the run from others of the same record (`decays`).
    """
    from toeplix.architectures import forward_flops, parameters
    from toeplix.training import logs
    from toeplix.training.loop import Diverged

    run = run_of(case, work)
    diverged = None
    folder = directory(run, work, variant)
    try:
        trained(run, work, variant)
    except Diverged as problem:
        diverged = str(problem).split(" (batch")[0]
    evaluations = [row for row in logs.read(folder) if "val_loss" in row]
    forward = forward_flops(run.model, case.context, case.batch)
    tokens = case.steps * case.batch * case.context
    ngrams = corpora.ngram_losses(Path(run.data), tokens)
    return {
        "diverged": diverged,
        "loss": None if diverged else evaluations[-1]["val_loss"],
        "tune_loss": None if diverged else tune_loss(run, folder),
        "unigram_loss": ngrams["unigram_loss"],
        "bigram_loss": ngrams["bigram_loss"],
        "split_loss": None if diverged or case.tuning_run else split_loss(run, folder),
        "bits_per_byte": None if diverged else evaluations[-1]["val_bits_per_byte"],
        "curve": [[row["step"], round(row["val_loss"], 5)] for row in evaluations],
        "parameters": parameters(run.model),
        "flops_per_step": 3 * forward,
        "training_bytes": training_bytes(run.model, case.batch),
        "relative_time": relative_time(case, run.model),
        "run": run.digest,
    }


def training_bytes(config: Model, batch: int) -> int:
    """Weights, gradients and two moments in float32, and what is kept for backward."""
    from toeplix.architectures import parameters
    from toeplix.profiling.memory import activation_bytes

    return 16 * parameters(config) + activation_bytes(config, batch, config.context)


def relative_time(case: Case, config: Model) -> float:
    """Return the time of a training step relative to the paper's flat model at the scale's sizes."""
    from toeplix.profiling import timing
    from toeplix.profiling.bench.training import prepare

    sizes = {"depth": config.depth, "context": config.context, "vocab": config.vocab}
    reference = models.model(models.PAPER_FLAT, dim=case.reference, **sizes)
    calls = {
        "case": prepare("case", config, case.batch),
        "reference": prepare("reference", reference, case.batch),
    }
    times = timing.interleaved(calls, seconds=case.timing / len(calls) / 3, least=3)
    return round(timing.median_ratio(times["case"], times["reference"]), 4)


def tuned(
    scale: Scale,
    compared: Mapping[str, Settings],
    rows: Sequence[TextRow],
    *,
    pairs: Sequence[Pair] = (),
    near: Mapping[str, float | None] | None = None,
    **other: Any,
) -> list[Case]:
    """Return cases of every learning rate with the first seed; once the best is known, with all seeds.

    Args:
        scale: the sizes.
        compared: settings by the name of the model.
        rows: what is measured already.
        pairs: comparisons that get more seeds (`unsettled`).
        near: the best learning rate of each model at another size, around which the grid is laid; models
            whose rate is not known yet (None) wait for it.
        other: fields of the cases that differ from the scale's.
    """
    part = other.get("part", "")
    found = []
    for name, settings in compared.items():
        center = None if near is None else near[name]
        if near is not None and center is None:
            continue
        make = partial(Case.of, scale, name, settings, **other)
        first = _tuning_case(scale, name, settings, **other)
        tried = rates_of(rows, first)
        for lr in tuning.rates(_grid(scale, center), tried) if scale.rates else ():
            found.append(replace(first, lr=lr))
        rate, needed = settled(rows, name, settings, scale, near=center, **other)
        like = make(lr=rate or 0.0, seed=scale.seeds[0])
        found += [replace(like, lr=lr) for lr in needed]
        # other seeds at rates that were given up stay cases of the experiment
        known = [row for row in rows if row["lr"] in needed and same_case(row, like)]
        found += [replace(like, lr=row["lr"], seed=row["seed"]) for row in known]
        if rate is not None:
            more = name in unsettled(scale, rows, pairs, part, like=like)
            found += [replace(like, seed=seed) for seed in tuning.seeds(scale, more)]
    return list({json.dumps(vars(case), sort_keys=True): case for case in found}.values())


def shortened(case: Case, fraction: float) -> Case:
    """Return a run of a fraction of the steps that only chooses a learning rate."""
    steps = max(2, round(case.steps * fraction))
    warmup = min(case.warmup, max(1, round(case.warmup * fraction)))
    return replace(case, steps=steps, warmup=warmup, timing=0.0, tuning_run=True)


def _tuning_case(scale: Scale, name: str, settings: Settings, **other: Any) -> Case:
    """Return the case of a model that chooses its learning rate; that of the case is 0."""
    case = Case.of(scale, name, settings, **(other | {"lr": 0.0, "seed": scale.seeds[0]}))
    return case if scale.tuning == 1 else shortened(case, scale.tuning)


def _grid(scale: Scale, center: float | None) -> tuple[float, ...]:
    return scale.rates if center is None else tuning.around(center, scale.rates)


def unsettled(
    scale: Scale,
    rows: Sequence[TextRow],
    pairs: Sequence[Pair],
    part: str = "",
    *,
    like: Case | None = None,
) -> set[str]:
    """Return the models of comparisons that need more than the scale's seeds.

    These are all that decide a claim if the scale has `all_seeds`, and otherwise those whose interval
    over the scale's seeds contains their bound (`tuning`). Only these first seeds are looked at: a
    comparison that stopped as soon as it was decided would be decided too often. If a case is given, only
    rows of its setting count.
    """
    found: set[str] = set()
    groups = at_best(rows, part, like=like)
    for first, second, bound, decides in pairs:
        if scale.all_seeds and decides:
            found |= {first, second}
            continue
        known = [losses(groups.get(name, [])) for name in (first, second)]
        if any(set(scale.seeds) - set(each) for each in known):
            continue
        here, there = ({seed: each[seed] for seed in scale.seeds} for each in known)
        if tuning.undecided(intervals.difference(here, there), bound):
            found |= {first, second}
    return found


def rates_tried(
    rows: Sequence[TextRow], name: str, scale: Scale, part: str = "", **other: Any
) -> dict[float, float]:
    """Return tuning losses of a model with the first seed by learning rate.

    `other` are fields of the cases that differ from the scale's.
    """
    case = _tuning_case(scale, name, {}, **({"part": part} | other))
    mine = [row for row in rows if row["model"] == name]
    # the name of a model stands for its settings
    return rates_of([{**row, "settings": case.settings} for row in mine], case)  # type: ignore[typeddict-unknown-key]


def best_rate(
    rows: Sequence[TextRow],
    name: str,
    settings: Settings,
    scale: Scale,
    part: str = "",
    near: float | None = None,
    **other: Any,
) -> float | None:
    """Return the learning rate of the best tuning run of the first seed; None until all are measured.

    Around it lie the grids of other sizes (`near`). `other` are fields of the cases that differ from the
    scale's.
    """
    if not scale.rates:
        return models.published_rate(settings)
    tried = rates_of(rows, _tuning_case(scale, name, settings, **({"part": part} | other)))
    return tuning.best(_grid(scale, near), tried)


def settled(
    rows: Sequence[TextRow],
    name: str,
    settings: Settings,
    scale: Scale,
    near: float | None = None,
    **other: Any,
) -> tuning.Settled:
    """Return the learning rate of the reported runs, and the rates at which it needs full runs.

    It is the best of tuning runs if full runs of the first seed do not prefer a lower one, and no seed
    diverges (`tuning.settled`). `other` are fields of the cases that differ from the scale's.
    """
    rate = best_rate(rows, name, settings, scale, near=near, **other)
    if rate is None or not scale.rates:
        return tuning.Settled(rate, () if rate is None else (rate,))
    full = Case.of(scale, name, settings, **(other | {"lr": 0.0, "seed": scale.seeds[0]}))
    tried = rates_of(rows, _tuning_case(scale, name, settings, **other))
    diverged = [row for row in rows if row.get("diverged") and same_case(row, full)]
    levels = rates_of(rows, full) | {row["lr"]: math.inf for row in diverged}
    return tuning.settled(rate, tuning.rates(_grid(scale, near), tried), levels)
