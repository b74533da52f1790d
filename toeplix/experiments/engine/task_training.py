"""Training on synthetic tasks: batches are generated during training, accuracy is measured on others.

Everything is a function of the case: the initialisation of its seed, the batch of a step of (seed,
step), and the validation batches of separate seeds. Training uses one thread, so that no sum depends on
the number of cores. A run ends early once it makes no errors. Learning rates are tuned with the first
seed for every model and task: the best is the one that reaches TARGET_ACCURACY first, or else has the
lowest loss.
"""

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NotRequired, Protocol, TypedDict, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toeplix.config import IGNORED, Model
from toeplix.experiments.engine import models, text_training
from toeplix.experiments.engine.models import Settings
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.task_batches import TASKS, Text
from toeplix.model import LanguageModel
from toeplix.tasks import Batch
from toeplix.tasks.probes import Autoencoder
from toeplix.training.run import Run
from toeplix.training.schedule import rate

EVALUATIONS = 20  # validation evaluations per run
TARGET_ACCURACY = 0.95  # accuracy at which a task counts as solved
PERFECT_ACCURACY = 0.999  # accuracy at which a run ends early
FIRST_VAL_SEED = 2**32  # first seed of the validation batches

Network = LanguageModel | Autoencoder
Sizes = Mapping[str, Mapping[str, Any]]  # fields of cases by the name of the scale


@dataclass(frozen=True, kw_only=True)
class Case(text_training.Sized):
    """One training run. `data` is a text source, or "" for random tokens; `options` are the task's."""

    task: str
    options: dict[str, Any]
    protocol: str = ""
    lr: float = 0.0
    seed: int = 0
    stretch: int = 1  # a final evaluation on inputs this many times as long
    part: str = ""

    @property
    def record(self) -> Model:
        """The record of the model that is trained on the task."""
        longest = replace(self, context=self.context * self.stretch)
        return longest.config(TASKS[self.task].vocab(self))

    @classmethod
    def at(cls, scale: Scale, sizes: Sizes, name: str, settings: Settings, **other: Any) -> "Case":
        """Return a case with a scale's text and an experiment's sizes; `other` fields override both."""
        return cls.of(scale, name, settings, **({"options": {}} | dict(sizes[scale.name]) | other))

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


class LearningFound(TypedDict):
    """The measurements of training on batches, at the last evaluation and on the way."""

    loss: float | None  # in nats; None if the run diverged
    accuracy: float
    solved: int | None  # steps to TARGET_ACCURACY
    area: float
    curve: list[list[float]]  # step, loss, accuracy
    diverged: str | None  # the reason


class TaskFound(LearningFound):
    """The measurements of one training run on a task."""

    longer: NotRequired[float]  # accuracy on inputs `stretch` times as long
    parameters: int
    flops_per_step: float


class LearningRow(TypedDict):
    """What rows of `fit` have in all experiments that use it."""

    model: str
    part: str
    batch: int
    lr: float
    seed: int
    loss: float | None
    accuracy: float
    curve: list[list[float]]
    diverged: str | None


class TaskRow(LearningRow):
    """Fields of a `Case` and the measurements of its run."""

    task: str
    options: dict[str, Any]
    dim: int
    context: int
    vocab: int
    steps: int
    solved: int | None
    area: float
    parameters: int
    flops_per_step: float


@runtime_checkable
class Recipe(Protocol):
    """The fields of a case that `fit` reads."""

    @property
    def steps(self) -> int: ...

    @property
    def lr(self) -> float: ...

    @property
    def warmup(self) -> int: ...


def measure(case: Case, work: Path) -> TaskFound:
    """Train a model, or load it if it exists, and return its measurements."""
    return trained(case, work)[1]


def trained(case: Case, work: Path) -> tuple[Network, TaskFound]:
    """Return the trained network of a case and its measurements; both are stored in `work`."""
    from toeplix import checkpoint
    from toeplix.files import read_json, replace_file
    from toeplix.tasks import probes

    folder = work / "solved" / case.digest
    report = folder / "found.json"  # written last: its presence means done
    auto = TASKS[case.task].auto
    with text_training.exclusive(work, f"solved-{case.digest}"):
        if report.exists():
            kept = probes.load(folder) if auto else checkpoint.load(folder)
            return kept, read_json(report, f"delete {folder}, and it is trained again")
        model = network(case)
        found = learn(model, case, work)
        if isinstance(model, probes.Autoencoder):
            probes.save(model, folder)
        else:
            checkpoint.save(model, folder)
        text = json.dumps(found)
        replace_file(report, lambda aside: aside.write_text(text))
    return model.eval(), found


def network(case: Case) -> Network:
    """Return the network of a case at the initialisation of its seed."""
    from toeplix import build
    from toeplix.tasks import probes

    torch.manual_seed(case.seed)
    if TASKS[case.task].auto:
        return probes.autoencoder(case.record, **case.options)
    return build(case.record)


def learn(model: Network, case: Case, work: Path) -> TaskFound:
    """Steps to the end, or until all is right; loss and accuracy on the way."""
    from toeplix.architectures import forward_flops

    task = TASKS[case.task]
    train, held = task.texts(case, work)

    def at(place: int, text: Text, longer: int = 1) -> Batch:
        rng = np.random.default_rng(place)
        return task.batch(replace(case, context=case.context * longer), rng, text)

    count = max(1, case.eval_sequences // case.batch)
    looked = [at(FIRST_VAL_SEED + number, held) for number in range(count)]
    learned = fit(model, case, lambda step: at(case.seed * 10**6 + step, train), looked)
    double = 2 if task.auto else 1
    found: dict[str, object] = {**learned}
    if case.stretch > 1:
        longer = [at(FIRST_VAL_SEED + number, held, case.stretch) for number in range(count)]
        found["longer"] = round(score(model, longer)[1], 4)
    found["parameters"] = sum(weight.numel() for weight in model.parameters())
    found["flops_per_step"] = 3 * case.batch * double * forward_flops(case.record, case.context)
    return cast("TaskFound", found)


def fit(
    model: Network, case: Recipe, batch: Callable[[int], Batch], held: Sequence[Batch]
) -> LearningFound:
    """Train with AdamW, warmup and linear decay, as in `toeplix.training.loop`, on `batch(step)`."""
    recipe = Run(data="tasks", steps=case.steps, lr=case.lr, warmup=case.warmup)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        weights,
        lr=recipe.lr,
        betas=(recipe.beta1, recipe.beta2),
        eps=1e-8,
        weight_decay=recipe.weight_decay,
        fused=True,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    curve: list[list[float]] = []
    diverged = None
    try:
        model.train()
        for step in range(case.steps):
            for group in optimizer.param_groups:
                group["lr"] = rate(recipe, step)
            loss = _scored(model, batch(step))[0]
            if not torch.isfinite(loss):
                diverged = f"the loss is {loss.item()} at step {step}"
                break
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, recipe.max_grad_norm)
            optimizer.step()
            if (step + 1) % max(1, case.steps // EVALUATIONS) == 0 or step + 1 == case.steps:
                nats, right = score(model, held)
                curve.append([step + 1, round(nats, 5), round(right, 4)])
                if right >= PERFECT_ACCURACY:
                    break
    finally:
        torch.set_num_threads(threads)
    solved = next((int(step) for step, _, right in curve if right >= TARGET_ACCURACY), None)
    end = curve[-1] if curve and not diverged else None
    return {
        "loss": end[1] if end else None,
        "accuracy": end[2] if end else 0.0,
        "solved": solved,
        "area": area(curve, case.steps),
        "curve": curve,
        "diverged": diverged,
    }


def _scored(model: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the mean loss over scored positions, and which of them are predicted correctly."""
    labels = torch.from_numpy(batch.labels)
    counts = labels != IGNORED
    logits = model.head(model.encode(torch.from_numpy(batch.inputs))[counts])
    return F.cross_entropy(logits, labels[counts]), logits.argmax(-1) == labels[counts]


@torch.no_grad()
def score(model: Network, batches: Iterable[Batch]) -> tuple[float, float]:
    """Return the loss in nats and the accuracy over all scored positions of several batches."""
    training = model.training
    model.eval()
    nats, right, count = 0.0, 0, 0
    for batch in batches:
        loss, correct = _scored(model, batch)
        nats += float(loss) * len(correct)
        right, count = right + int(correct.sum()), count + len(correct)
    model.train(training)
    return nats / count, right / count


def area(curve: Sequence[Sequence[float]], steps: int) -> float:
    """Return the mean accuracy over all steps of a run; after the last evaluation it stays constant."""
    total, before, level = 0.0, 0.0, 0.0
    for step, _, right in curve:
        total += (step - before) * (level + right) / 2
        before, level = step, right
    return round((total + (steps - before) * level) / steps, 4)


def tuned(
    wanted: Iterable[Case], scale: Scale, rows: list[TaskRow], rates: Sequence[float]
) -> list[Case]:
    """Return cases of every learning rate with the first seed, then of the best with all seeds."""
    found: dict[str, Case] = {}
    for case in wanted:
        grid = grid_of(case, scale, rates)
        several = [replace(case, lr=lr, seed=scale.seeds[0]) for lr in grid]
        best = best_rate(case, scale, rows, rates)
        if best is not None:
            several += [replace(case, lr=best, seed=seed) for seed in scale.seeds]
        found |= {each.digest: each for each in several}
    return list(found.values())


def grid_of(case: Case, scale: Scale, rates: Sequence[float]) -> Sequence[float]:
    """Return the learning rates to try: the published one at the paper's scale, else some of `rates`."""
    if not scale.rates:
        return (models.published_rate(case.settings),)
    return rates[: len(scale.rates)]


def best_rate(
    case: Case, scale: Scale, rows: list[TaskRow], rates: Sequence[float]
) -> float | None:
    """Return the best learning rate with the first seed; None until the whole grid is measured."""
    grid = grid_of(case, scale, rates)
    mine = {
        row["lr"]: row
        for row in rows
        if identity(row) == identity(asdict(case)) and row["seed"] == scale.seeds[0]
    }
    if set(grid) - set(mine):
        return None
    return min(grid, key=lambda lr: effort([mine[lr]]))


def identity(row: Mapping[str, object]) -> str:
    """Return a key of all fields of a case except learning rate and seed."""
    names = [field.name for field in fields(Case) if field.name not in ("lr", "seed")]
    return json.dumps([row.get(name) for name in names], sort_keys=True)


def effort(rows: list[TaskRow]) -> tuple[float, float]:
    """Return mean steps to TARGET_ACCURACY, then mean loss; lower is better."""
    steps = [math.inf if row["solved"] is None else row["solved"] for row in rows]
    losses = [math.inf if row["loss"] is None else row["loss"] for row in rows]
    return statistics.fmean(steps), statistics.fmean(losses)


def groups(rows: list[TaskRow], **wanted: object) -> list[list[TaskRow]]:
    """Return rows with these fields, grouped so that rows of a group differ in seed only.

    Each group has the best learning rate.
    """
    found: dict[str, dict[float, list[TaskRow]]] = {}
    for row in rows:
        fields: Mapping[str, object] = row
        if all(fields[name] == value for name, value in wanted.items()):
            found.setdefault(identity(row), {}).setdefault(row["lr"], []).append(row)
    chosen = []
    for by_rate in found.values():
        most = max(len(group) for group in by_rate.values())
        full = [group for group in by_rate.values() if len(group) == most]
        chosen.append(min(full, key=effort))
    return chosen


def by_seed(rows: Sequence[LearningRow], name: str) -> dict[int, float]:
    """Return field `name` of each row by seed; rows without a value are left out."""
    several: Sequence[Mapping[str, Any]] = rows
    return {row["seed"]: row[name] for row in several if row.get(name) is not None}
