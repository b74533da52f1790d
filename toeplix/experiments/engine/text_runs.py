"""One training run on text: from a case to the record `Run` and the directory of the trained model."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toeplix.config import Model
from toeplix.data import Store
from toeplix.experiments.engine import corpora, models, tuning
from toeplix.experiments.engine.models import Settings
from toeplix.experiments.engine.scale import Scale
from toeplix.training.run import Run

if TYPE_CHECKING:
    from typing_extensions import Self

LONG_RUN, SAVE_EVERY = 8000, 2000  # steps from which checkpoints are frequent, and between them
EVALUATIONS = 10  # validation evaluations per run; runs that choose a learning rate have one


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
    recipe: dict[str, Any] = field(default_factory=dict)  # other fields of `Run`, such as beta2
    tuning_run: bool = False  # a shorter run that only chooses a learning rate
    protocol_version: int = 1  # of rows without this field; see `tuning`

    @classmethod
    def of(cls, scale: Scale, name: str, settings: Settings, **other: Any) -> "Self":
        """Return a case at the sizes of a scale; `other` fields override the scale's."""
        known = vars(scale) | {tuning.VERSION_FIELD: tuning.PROTOCOL_VERSION}
        sizes = {each.name: known[each.name] for each in fields(cls) if each.name in known}
        own = models.published(settings) if scale.name == "paper" else settings
        return cls(model=name, settings=own, **(sizes | other))

    def config(self, vocab: int) -> Model:
        sizes = {"dim": self.dim, "depth": self.depth, "context": self.context, "vocab": vocab}
        return models.model(self.settings, **sizes)


def directory(run: Run, work: Path, variant: str = "") -> Path:
    """Return where a run is kept, by the digest of its record and the name of a variant."""
    return work / "runs" / "-".join(filter(None, (run.digest, variant)))


def trained(run: Run, work: Path, variant: str = "") -> Path:
    """Return the directory of a run, which is trained once."""
    from toeplix.training.loop import fit

    folder = directory(run, work, variant)
    with corpora.exclusive(work, f"run-{folder.name}"):
        fit(run, folder)
    return folder


def tune_loss(run: Run, folder: Path) -> float:
    """Return the loss of a trained model on the tuning half of the validation documents."""
    from toeplix.checkpoint import load
    from toeplix.training.objective import Objective
    from toeplix.training.processes import joined
    from toeplix.training.validation import Validation

    with joined() as processes:
        model = load(folder / "model").to(processes.device)
        held = replace(run, val_documents=corpora.TUNE)
        validation = Validation(held, Store.open(run.data), processes)
        return validation.evaluate(Objective(model, run.precision))["val_loss"]


def save_every(steps: int) -> int:
    """Return the steps between checkpoints: half of a short run, SAVE_EVERY in a long one.

    A job of a cluster that is preempted resumes from its last checkpoint. Runs are known by the digest of
    their record, so the value of short runs, which exist, stays.
    """
    return SAVE_EVERY if steps > LONG_RUN else max(1, steps // 2)


def run_of(case: Sized, work: Path) -> Run:
    """Return the record of a run. Its data order follows its seed, as `data_seed` is not given."""
    store = corpora.store(case, work)
    record: dict[str, Any] = {
        "model": case.config(store.vocab),
        "data": str(store.directory),
        "protocol": case.protocol,
        "steps": case.steps,
        "batch": case.batch,
        "lr": case.lr,
        "warmup": case.warmup,
        "seed": case.seed,
        "eval_every": case.steps if case.tuning_run else max(1, case.steps // EVALUATIONS),
        "eval_sequences": case.eval_sequences,
        "val_documents": corpora.REPORT,
        "save_every": save_every(case.steps),
        "keep_checkpoints": 1,
        "log_every": max(1, case.steps // 50),
        "sample_every": 0,
        "trackers": "",
    }
    return Run(**(record | case.recipe))
