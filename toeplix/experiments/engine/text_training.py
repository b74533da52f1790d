"""Training on text, which most experiments use: a model is trained, and its validation loss is recorded.

Every model sees the same tokens in the same order for the same number of steps; the random seed changes
the initialisation. Learning rates are tuned for each model on the same grid with the first seed, and the
grid is extended if the best one is at its end. The best learning rate is repeated with the other seeds.

Time is measured relative to a reference, the paper's flat Toeplitz model of the case's sizes: steps of
the model and of the reference are timed interleaved, so that load on the machine slows both.
"""

import contextlib
import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

from toeplix.config import Model
from toeplix.data import Store
from toeplix.experiments.engine import models
from toeplix.experiments.engine.models import Settings
from toeplix.experiments.engine.scale import Scale
from toeplix.training.run import Run

if TYPE_CHECKING:
    from typing_extensions import Self

EVALUATIONS = 10  # validation evaluations per run
MAX_EXTRA_RATES = 2  # maximum number of learning rates tried beyond the grid


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A model at the sizes of a scale. `model` is its name, `settings` its fields of `Model`."""

    model: str
    settings: Settings
    data: str
    protocol: str
    vocab: int
    val_fraction: float
    dim: int
    depth: int
    context: int
    batch: int
    steps: int
    warmup: int
    lr: float
    seed: int
    eval_sequences: int

    @classmethod
    def of(cls, scale: Scale, name: str, settings: Settings, **other: Any) -> "Self":
        """Return a case at the sizes of a scale; `other` fields override the scale's."""
        known = vars(scale)
        sizes = {each.name: known[each.name] for each in fields(cls) if each.name in known}
        return cls(model=name, settings=settings, **(sizes | other))

    def config(self, vocab: int) -> Model:
        sizes = {"dim": self.dim, "depth": self.depth, "context": self.context, "vocab": vocab}
        return models.model(self.settings, **sizes)


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


def measure(case: Case, work: Path) -> TextFound:
    """Train, or take the model that is there, and say what it learned at which price."""
    from toeplix.architectures import forward_flops, parameters
    from toeplix.training import logs
    from toeplix.training.loop import Diverged

    run = run_of(case, work)
    folder = work / "runs" / run.digest
    diverged = None
    try:
        trained(run, work)
    except Diverged as problem:
        diverged = str(problem).split(" (batch")[0]
    evaluations = [row for row in logs.read(folder) if "val_loss" in row]
    forward = forward_flops(run.model, case.context)
    return {
        "diverged": diverged,
        "loss": None if diverged else evaluations[-1]["val_loss"],
        "bits_per_byte": None if diverged else evaluations[-1]["val_bits_per_byte"],
        "curve": [[row["step"], round(row["val_loss"], 5)] for row in evaluations],
        "parameters": parameters(run.model),
        "flops_per_step": 3 * case.batch * forward,
        "training_bytes": training_bytes(run.model, case.batch),
        "relative_time": relative_time(case, run.model),
        "run": run.digest,
    }


def trained(run: Run, work: Path) -> Path:
    """Return the directory of a run, which is trained once."""
    from toeplix.training.loop import fit

    folder = work / "runs" / run.digest
    with exclusive(work, f"run-{run.digest}"):
        fit(run, folder)
    return folder


def run_of(case: Sized, work: Path) -> Run:
    store = corpus(case, work)
    return Run(
        model=case.config(store.vocab),
        data=str(store.directory),
        protocol=case.protocol,
        steps=case.steps,
        batch=case.batch,
        lr=case.lr,
        warmup=case.warmup,
        seed=case.seed,
        data_seed=0,
        eval_every=max(1, case.steps // EVALUATIONS),
        eval_sequences=case.eval_sequences,
        save_every=max(1, case.steps // 2),
        keep_checkpoints=1,
        log_every=max(1, case.steps // 50),
        sample_every=0,
        trackers="",
    )


@runtime_checkable
class Corpus(Protocol):
    """The fields of a case that say which token store it needs."""

    @property
    def data(self) -> str: ...

    @property
    def vocab(self) -> int: ...

    @property
    def val_fraction(self) -> float: ...


def corpus(case: Corpus, work: Path) -> Store:
    """Return the token store of a case, which is built once."""
    from toeplix.data import Recipe, build

    recipe = Recipe(sources=(case.data,), vocab=case.vocab, val_fraction=case.val_fraction)
    name = hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]
    with exclusive(work, f"data-{name}"):
        return build(recipe, work / "data" / name)


@contextlib.contextmanager
def exclusive(work: Path, name: str) -> Iterator[None]:
    """Lock `name`: if parallel cases need the same model or store, one makes it and the others wait."""
    from toeplix.files.locking import locked

    place = work / "locks" / name
    place.mkdir(parents=True, exist_ok=True)
    with locked(place, wait=True):
        yield


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
    scale: Scale, compared: Mapping[str, Settings], rows: Sequence[TextRow], **other: Any
) -> list[Case]:
    """Return cases of every learning rate with the first seed; once the best is known, with all seeds."""
    found = []
    for name, settings in compared.items():
        make = partial(Case.of, scale, name, settings, **other)
        tried = rates_tried(rows, name, scale, other.get("part", ""))
        grid = rates(scale.rates, tried)
        found += [make(lr=lr, seed=scale.seeds[0]) for lr in grid]
        rate = best_rate(rows, name, settings, scale, other.get("part", ""))
        if rate is not None:
            found += [make(lr=rate, seed=seed) for seed in scale.seeds]
    return list({json.dumps(vars(case), sort_keys=True): case for case in found}.values())


def rates(grid: tuple[float, ...], tried: Mapping[float, float]) -> tuple[float, ...]:
    """Return the grid, extended by up to `MAX_EXTRA_RATES` while the best learning rate is at its end.

    >>> rates((0.01, 0.02, 0.04), {0.01: 3.0, 0.02: 2.0, 0.04: 1.0})
    (0.01, 0.02, 0.04, 0.08)
    """
    for _ in range(MAX_EXTRA_RATES if len(grid) > 1 else 0):
        if set(grid) - set(tried):
            break
        best = min(grid, key=lambda rate: tried[rate])
        if best == grid[0]:
            grid = (_rounded(grid[0] ** 2 / grid[1]), *grid)
        elif best == grid[-1]:
            grid = (*grid, _rounded(grid[-1] ** 2 / grid[-2]))
    return grid


def _rounded(rate: float) -> float:
    return float(f"{rate:.2g}")


def rates_tried(
    rows: Sequence[TextRow], name: str, scale: Scale, part: str = ""
) -> dict[float, float]:
    """Return losses with the first seed by learning rate; the loss of a diverged run is infinite."""
    return {
        row["lr"]: math.inf if row["loss"] is None else row["loss"]
        for row in rows
        if row["model"] == name and row["part"] == part and row["seed"] == scale.seeds[0]
    }


def best_rate(
    rows: Sequence[TextRow], name: str, settings: Settings, scale: Scale, part: str = ""
) -> float | None:
    """Return the learning rate with the lowest loss for the first seed; None until all are measured."""
    if not scale.rates:
        return models.published_rate(settings)
    tried = rates_tried(rows, name, scale, part)
    grid = rates(scale.rates, tried)
    return None if set(grid) - set(tried) else min(grid, key=lambda rate: tried[rate])


def at_best(rows: Sequence[TextRow], part: str = "") -> dict[str, list[TextRow]]:
    """Return the rows of each model at its best learning rate, with all seeds."""
    found: dict[str, list[TextRow]] = {}
    for name in dict.fromkeys(row["model"] for row in rows if row["part"] == part):
        by_rate: dict[float, list[TextRow]] = {}
        for row in rows:
            if row["model"] == name and row["part"] == part:
                by_rate.setdefault(row["lr"], []).append(row)
        most = max(len(group) for group in by_rate.values())
        full = [group for group in by_rate.values() if len(group) == most]
        found[name] = min(full, key=_level)
    return found


def losses(rows: Sequence[TextRow]) -> dict[int, float]:
    """Return final validation losses by seed, in nats per token, without diverged runs."""
    return {row["seed"]: row["loss"] for row in rows if row["loss"] is not None}


def _level(rows: Sequence[TextRow]) -> float:
    values = [math.inf if row["loss"] is None else row["loss"] for row in rows]
    return statistics.fmean(values)
