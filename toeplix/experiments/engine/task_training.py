"""Training on synthetic tasks: batches are generated during training, accuracy is measured on others.

Everything is a function of the case: the initialisation of its seed, the batch of a step of (seed,
step), and the validation batches of separate seeds. Training uses one thread, so that no sum depends on
the number of cores. A run ends early once it makes no errors; one of an autoencoder never does. Learning
rates are tuned with the first seed for every model and task, on batches that are not reported: the best
is the one that reaches TARGET_ACCURACY first, or else has the lowest loss; of autoencoders the one with
the lowest loss (`task_tuning.effort`).
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toeplix.config import IGNORED, Model
from toeplix.experiments.engine import corpora, text_runs
from toeplix.experiments.engine.models import Settings
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.task_batches import TASKS, Text
from toeplix.experiments.engine.thresholds import TARGET_ACCURACY
from toeplix.model import LanguageModel
from toeplix.tasks import Batch
from toeplix.tasks.probes import Autoencoder
from toeplix.training.run import Run
from toeplix.training.schedule import rate

if TYPE_CHECKING:
    from typing_extensions import Self

EVALUATIONS = 50  # validation evaluations per run, unless a case says otherwise
PERFECT_ACCURACY = 0.999  # accuracy at which a run ends early
FIRST_VAL_SEED = 2**32  # first seed of the reported validation batches
FIRST_TUNE_SEED = 2**33  # first seed of the validation batches that choose learning rates

Network = LanguageModel | Autoencoder
Sizes = Mapping[str, Mapping[str, Any]]  # fields of cases by the name of the scale


@dataclass(frozen=True, kw_only=True)
class Case(text_runs.Sized):
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

    @property
    def stop_at(self) -> float:
        """The accuracy at which a run ends early; autoencoders, compared at the end, have none."""
        return math.inf if TASKS[self.task].auto else PERFECT_ACCURACY

    @property
    def last_step(self) -> int:
        """The step after which a run ends, early if below `steps`: schedules are those of `steps`."""
        return self.steps

    @property
    def evaluations(self) -> int:
        """The number of validation evaluations of a run."""
        return EVALUATIONS

    @classmethod
    def at(cls, scale: Scale, sizes: Sizes, name: str, settings: Settings, **other: Any) -> "Self":
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
    tune_loss: NotRequired[float | None]  # on batches that choose learning rates
    tune_solved: NotRequired[int | None]


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
    tune_loss: NotRequired[float | None]  # not in rows of the first protocol
    tune_solved: NotRequired[int | None]
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

    @property
    def recipe(self) -> dict[str, Any]: ...


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
    with corpora.exclusive(work, f"solved-{case.digest}"):
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
        options = dict(case.options)
        own = options.pop("decoder", case.settings)  # the settings of the decoder
        return probes.autoencoder(case.record, replace(case, settings=own).record, **options)
    return build(case.record)


def learn(model: Network, case: Case, work: Path) -> TaskFound:
    """Steps to the end, or until all is right; loss and accuracy on the way."""
    from toeplix.architectures import forward_flops

    task = TASKS[case.task]
    train, held, tune = task.texts(case, work)

    def at(place: int, text: Text, longer: int = 1) -> Batch:
        rng = np.random.default_rng(place)
        return task.batch(replace(case, context=case.context * longer), rng, text)

    count = max(1, case.eval_sequences // case.batch)
    looked = [at(FIRST_VAL_SEED + number, held) for number in range(count)]
    tuned_on = [at(FIRST_TUNE_SEED + number, tune) for number in range(count)]
    learned = fit(
        model,
        case,
        lambda step: at(case.seed * 10**6 + step, train),
        looked,
        tuned_on,
        stop_at=case.stop_at,
        last_step=case.last_step,
        evaluations=case.evaluations,
    )
    double = 2 if task.auto else 1
    found: dict[str, object] = {**learned}
    if case.stretch > 1:
        longer = [at(FIRST_VAL_SEED + number, held, case.stretch) for number in range(count)]
        found["longer"] = round(score(model, longer)[1], 4)
    found["parameters"] = sum(weight.numel() for weight in model.parameters())
    forward = forward_flops(case.record, case.context, case.batch)
    found["flops_per_step"] = 3 * double * forward
    return cast("TaskFound", found)


def fit(
    model: Network,
    case: Recipe,
    batch: Callable[[int], Batch],
    held: Sequence[Batch],
    tune: Sequence[Batch] = (),
    stop_at: float = PERFECT_ACCURACY,
    last_step: int | None = None,
    evaluations: int = EVALUATIONS,
) -> LearningFound:
    """Train with AdamW, warmup and linear decay, as in `toeplix.training.loop`, on `batch(step)`.

    Loss and accuracy are measured `evaluations` times on `held` and, for the choice of a learning rate,
    on `tune`. Training ends early at the accuracy `stop_at` on `held`, and at the first evaluation from
    `last_step` on if TARGET_ACCURACY is not reached on `tune`.
    """
    sizes: dict[str, Any] = {"steps": case.steps, "lr": case.lr, "warmup": case.warmup}
    recipe = Run(**({"data": "tasks"} | sizes | case.recipe))
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
    tuning_curve: list[list[float]] = []
    diverged, early = None, False
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
            if (step + 1) % max(1, case.steps // evaluations) == 0 or step + 1 == case.steps:
                nats, right = score(model, held)
                curve.append([step + 1, round(nats, 5), round(right, 4)])
                if tune:
                    tuning_curve.append([step + 1, *score(model, tune)])
                early = right >= stop_at
                late = last_step is not None and step + 1 >= last_step
                if early or (late and solved(tuning_curve) is None):
                    break
    finally:
        torch.set_num_threads(threads)
    end = curve[-1] if curve and not diverged else None
    found: LearningFound = {
        "loss": end[1] if end else None,
        "accuracy": end[2] if end else 0.0,
        "solved": solved(curve),
        "area": area(curve, case.steps),
        "curve": curve,
        "diverged": diverged,
    }
    if tune:
        found["tune_loss"] = round(tuning_curve[-1][1], 5) if end else None
        # a run that ended early is solved, even where this half is just below the target
        found["tune_solved"] = solved(tuning_curve) or (int(curve[-1][0]) if early else None)
    return found


def solved(curve: Sequence[Sequence[float]]) -> int | None:
    """Return the steps to TARGET_ACCURACY, interpolated between evaluations; None if never reached."""
    before, level = 0.0, 0.0
    for step, _, right in curve:
        if right >= TARGET_ACCURACY:
            share = (TARGET_ACCURACY - level) / (right - level)
            return max(1, round(before + share * (step - before)))
        before, level = step, right
    return None


def _scored(model: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the mean loss over scored positions, and which of them are predicted correctly."""
    device, labels = model.head.weight.device, torch.from_numpy(batch.labels).flatten()
    scored = (labels != IGNORED).nonzero()[:, 0]  # on the host, which knows the shapes then
    right = labels[scored].to(device)
    features = model.encode(torch.from_numpy(batch.inputs).to(device)).flatten(0, 1)
    logits = model.head(features.index_select(0, scored.to(device)))
    return F.cross_entropy(logits, right), logits.argmax(-1) == right


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
