"""Training on text, which most experiments use: a model is trained, and its validation loss is recorded.

Every model of a random seed sees the same tokens in the same order for the same number of steps; the seed
changes the initialisation and the data order. Learning rates are tuned for each model on one grid with
the first seed (`tuning`); the best learning rate is repeated with the other seeds. The loss of a row is
that of the reported half of the validation documents, `tune_loss` that of the tuning half.

A file of rows may have runs on several corpora, or of several numbers of steps. Cases are compared with
rows of the same case only (`same_case`), and models of a part with rows of one setting only (`at_best`):
the same corpus, and as many training tokens unless the part is one of EQUAL_COST.

Time is measured relative to a reference, the paper's flat Toeplitz model of the case's sizes: steps of
the model and of the reference are timed interleaved, so that load on the machine slows both.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

from toeplix.config import Model
from toeplix.experiments.engine import corpora, intervals, models, tuning
from toeplix.experiments.engine.models import Settings
from toeplix.experiments.engine.repeated_bigrams import SplitLoss, split_loss
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.text_runs import Sized, directory, run_of, trained, tune_loss

if TYPE_CHECKING:
    from typing_extensions import Self

# fields that all models of a part have in common, beside the number of training tokens
SETTING = ("data", "vocab", "val_fraction", "protocol", "eval_sequences")
# how names of parts end whose models have different numbers of steps, so that they cost the same
EQUAL_FLOPS, EQUAL_TIME = "equal FLOPs", "equal time"
EQUAL_COST = (EQUAL_FLOPS, EQUAL_TIME)


@dataclass(frozen=True, kw_only=True)
class Case(Sized):
    """One training run on text."""

    timing: float
    reference: int  # width of the reference model for relative times
    part: str = ""  # part of the experiment, if it has several

    @classmethod
    def of(cls, scale: Scale, name: str, settings: Settings, **other: Any) -> "Self":
        return super().of(scale, name, settings, **({"reference": scale.dim} | other))


class TextFound(TypedDict):
    """The measurements of one training run on text."""

    diverged: str | None  # the reason
    loss: float | None  # final validation loss in nats per token; None if the run diverged
    tune_loss: NotRequired[float | None]  # on the tuning half; not in rows of the first protocol
    unigram_loss: NotRequired[float]  # of n-gram models of as many training tokens
    bigram_loss: NotRequired[float]
    split_loss: NotRequired[SplitLoss | None]  # by repeated bigrams; not in older rows
    bits_per_byte: float | None
    curve: list[list[float]]  # step and validation loss
    parameters: int
    flops_per_step: float
    training_bytes: int
    relative_time: float
    run: str  # digest of its record


class TextRow(TextFound):
    """Fields of a `Case` and the measurements of its run."""

    model: str
    part: str
    dim: int
    context: int
    vocab: int
    batch: int
    steps: int
    lr: float
    seed: int
    tuning_run: NotRequired[bool]


AnyText = TypeVar("AnyText", bound=TextRow)


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
    forward = forward_flops(run.model, case.context)
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
        "flops_per_step": 3 * case.batch * forward,
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
        rate = best_rate(rows, name, settings, scale, near=center, **other)
        if rate is not None:
            like = make(lr=rate, seed=scale.seeds[0])
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


def same_case(row: Mapping[str, Any], case: Case) -> bool:
    """Return whether a row is of a case at any learning rate and seed.

    Fields that a row does not have are not compared: older rows lack those that were added later.
    """
    names = (field.name for field in fields(Case) if field.name not in ("lr", "seed"))
    return all(_same(row[name], getattr(case, name)) for name in names if name in row)


def _same(one: object, other: object) -> bool:
    """Compare values as JSON has them: a tuple is a list."""
    return one == other or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def identity(row: Mapping[str, Any]) -> str:
    """Return a key of all fields of a case except learning rate and seed."""
    names = [field.name for field in fields(Case) if field.name not in ("lr", "seed")]
    return json.dumps([row.get(name) for name in names], sort_keys=True)


def setting(row: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a row must have in common with rows of other models to be compared with them."""
    known = tuple(row.get(name) for name in SETTING)
    sizes = ("steps", "batch", "context")
    if row["part"].endswith(EQUAL_COST) or not all(name in row for name in sizes):
        return known
    return (*known, math.prod(row[name] for name in sizes))


def of_setting(rows: Sequence[AnyText], case: Case) -> list[AnyText]:
    """Return the rows that models of a case's setting are compared with."""
    wanted = vars(case)
    return [
        row
        for row in rows
        if setting({**wanted, **row}) == setting({**wanted, "part": row["part"]})
    ]


def fullest(rows: Sequence[AnyText], key: Callable[[Mapping[str, Any]], object]) -> list[AnyText]:
    """Return the rows of one key: the one with most models, then with most rows, then the latest."""
    groups: dict[object, list[AnyText]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return max(
        reversed(groups.values()),
        key=lambda group: (len({row["model"] for row in group}), len(group)),
        default=[],
    )


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


def rates_of(rows: Sequence[TextRow], case: Case) -> dict[float, float]:
    """Return tuning losses of a case with its seed by learning rate; of diverged runs, infinity."""
    return {
        row["lr"]: tuning_level(row)
        for row in rows
        if row["seed"] == case.seed
        and row.get("tuning_run", False) == case.tuning_run
        and same_case(row, case)
    }


def tuning_level(row: TextRow) -> float:
    """Return the loss that chooses learning rates; rows of the first protocol have one loss only."""
    loss = row.get("tune_loss", row["loss"])
    return math.inf if loss is None else loss


def best_rate(
    rows: Sequence[TextRow],
    name: str,
    settings: Settings,
    scale: Scale,
    part: str = "",
    near: float | None = None,
    **other: Any,
) -> float | None:
    """Return the learning rate with the lowest loss for the first seed; None until all are measured.

    `other` are fields of the cases that differ from the scale's.
    """
    if not scale.rates:
        return models.published_rate(settings)
    first = _tuning_case(scale, name, settings, **({"part": part} | other))
    return tuning.best(_grid(scale, near), rates_of(rows, first))


def at_best(
    rows: Sequence[TextRow], part: str = "", *, like: Case | None = None
) -> dict[str, list[TextRow]]:
    """Return the rows of each model at its best learning rate, with all seeds.

    All are of one setting: that of a case if it is given, otherwise the one with most models and rows.
    """
    found: dict[str, list[TextRow]] = {}
    full_runs = [row for row in rows if row["part"] == part and not row.get("tuning_run")]
    full_runs = fullest(full_runs, setting) if like is None else of_setting(full_runs, like)
    for name in dict.fromkeys(row["model"] for row in full_runs):
        by_rate: dict[float, list[TextRow]] = {}
        for row in fullest([row for row in full_runs if row["model"] == name], identity):
            by_rate.setdefault(row["lr"], []).append(row)
        most = max(len(group) for group in by_rate.values())
        full = [group for group in by_rate.values() if len(group) == most]
        found[name] = min(full, key=_level)
    return found


def edge(rows: Sequence[TextRow], name: str, part: str = "") -> str:
    """Return where the best learning rate of a model lies among those tried (`tuning.edge`)."""
    mine = [row for row in rows if row["model"] == name and row["part"] == part]
    shorter = any(row.get("tuning_run") for row in mine)
    shown = at_best(rows, part).get(name)
    if shown:
        same = _without_length if shorter else identity
        mine = [row for row in mine if same(row) == same(shown[0])]
    mine = [row for row in mine if row.get("tuning_run", False) == shorter]
    first = min((row["seed"] for row in mine), default=0)
    return tuning.edge({row["lr"]: tuning_level(row) for row in mine if row["seed"] == first})


def _without_length(row: Mapping[str, Any]) -> str:
    """Return the identity of a row without what distinguishes shorter runs."""
    length = ("steps", "warmup", "timing", "tuning_run")
    return identity({name: value for name, value in row.items() if name not in length})


def losses(rows: Sequence[TextRow]) -> dict[int, float]:
    """Return final validation losses by seed, in nats per token, without diverged runs."""
    return {row["seed"]: row["loss"] for row in rows if row["loss"] is not None}


SplitKind = Literal["repeated", "rare_repeated", "other"]


def split_losses(rows: Sequence[TextRow], kind: SplitKind) -> dict[int, float]:
    """Return losses on (rare) repeated bigrams or on other tokens by seed; older rows have none."""
    found = {}
    for row in rows:
        split = row.get("split_loss")
        loss = split.get(kind) if split else None
        if loss is not None:
            found[row["seed"]] = loss
    return found


def tokens_per_parameter(row: TextRow) -> float:
    return row["steps"] * row["batch"] * row["context"] / row["parameters"]


def _level(rows: Sequence[TextRow]) -> float:
    return statistics.fmean(tuning_level(row) for row in rows)
