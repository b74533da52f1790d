"""Models whose filters are analysed: untrained, trained on language or copying, and autoencoders.

    untrained     at initialisation
    language      next-token prediction on text
    copy          a text twice, only the second half is scored. One tap at lag n/2 solves it
    autoencoder   text to one vector to the same text (tasks/probes.py); both sides are Toeplitz models

The paper's autoencoders have no heads. At small scales such models learn texts of a few tokens only,
whose filters have too few taps to be judged, so autoencoders have 16 heads there (docs/log.md).

A case is trained once; the experiments `index`, `symbols` and `filters` read the same weights.
"""

import hashlib
import json
import math
import statistics
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from toeplix.experiments.engine import corpora, models, task_training, text_runs, tuning
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.thresholds import MIN_TOKENS_PER_PARAMETER, TARGET_ACCURACY
from toeplix.experiments.engine.verdicts import Comparison, not_testable

TASKS = ("untrained", "language", "copy", "autoencoder")
INITIALISATIONS = {"paper flat": models.PAPER_FLAT, "toeplitz": models.FIRST}
SYNTHETIC_TASKS: dict[str, tuple[str, dict[str, Any]]] = {  # of `task_training`, with options
    "copy": ("repeated", {}),
    "autoencoder": ("autoencode", {"norm": True}),
}
AUTOENCODER = "paper 16 heads"  # at scales other than the paper's
LABELS = {"paper flat": "", AUTOENCODER: ", 16 heads", "toeplitz": ", our init"}
_LEARNED = {"vocab": 500, "dim": 128, "batch": 32, "depth": 2, "lr": 4e-3}
AUTOENCODERS: dict[str, dict[str, Any]] = {  # sizes at which they learn
    "desk": {**_LEARNED, "context": 32, "steps": 4000},
    "laptop": {**_LEARNED, "context": 16, "steps": 2400},
    "smoke": {"context": 4, "batch": 8, "depth": 1, "steps": 64},
}
LANGUAGE: dict[str, dict[str, Any]] = {"desk": {"steps": 10_000}}  # longer than the scale's
# of the rows that exist; copying has twice as many steps
SIZES: dict[str, dict[str, Any]] = {"desk": {"steps": 4000, "warmup": 200}}


@dataclass(frozen=True, kw_only=True)
class Case(text_runs.Sized):
    """One model, trained or not."""

    task: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


class FilterEntry(TypedDict, total=False):
    """What an experiment found of one filter."""

    layer: str
    part: str  # "encoder" or "decoder" of an autoencoder
    taps: list[float]
    index: int | None
    status: str
    margin: float
    z: float
    recency: float
    centre: float
    mode: int
    least: float  # modulus of the symbol
    most: float


class FilterRow(TypedDict, total=False):
    """A case, and its filters."""

    model: str
    task: str
    dim: int
    depth: int
    context: int
    vocab: int
    batch: int
    steps: int
    lr: float
    seed: int
    loss: float
    bigram_loss: float  # of a bigram model of as many training tokens; not in all rows
    accuracy: float | None
    filters: list[FilterEntry]
    composed: dict[str, int | None]


def cases(scale: Scale, rows: list[FilterRow]) -> list[Case]:
    """Return cases of the paper's model on every task (language: two widths) and of our default."""
    scale = replace(scale, **SIZES.get(scale.name, {}))
    found = []
    for seed in scale.seeds:
        for name, settings in INITIALISATIONS.items():
            rates = sorted(scale.rates) or [models.published_rate(settings)]
            make = partial(Case.of, scale, name, settings, seed=seed)
            long = LANGUAGE.get(scale.name, {})
            text = partial(make, task="language", lr=rates[len(rates) // 2], **long)
            twice = {"context": 2 * scale.context, "steps": 2 * scale.steps}
            found += [text(), make(task="copy", lr=rates[0], **twice)]
            if name == "paper flat":
                found += [make(task="untrained", lr=rates[0]), text(dim=scale.dim // 2)]
    # autoencoders are short: at scale desk they have all seeds
    return found + [_autoencoder(scale, seed) for seed in tuning.seeds(scale, scale.all_seeds)]


def _autoencoder(scale: Scale, seed: int) -> Case:
    name, settings = "paper flat", models.PAPER_FLAT
    if scale.name != "paper":
        name, settings = AUTOENCODER, models.PAPER_HEADS | {"heads": 16}
    lr = min(scale.rates, default=models.published_rate(settings))
    sizes = {"lr": lr} | AUTOENCODERS.get(scale.name, {})
    return Case.of(scale, name, settings, seed=seed, task="autoencoder", **sizes)


def train(case: Case, work: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The filters by name, and how well the model does its task: trained, or read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    from toeplix.files import read_json, reading, replace_file

    folder = work / "operators" / case.digest
    weights, scores = folder / "kernels.safetensors", folder / "scores.json"
    with corpora.exclusive(work, f"operators-{case.digest}"):
        if not scores.exists():
            model, score = _trained(case, work)
            kept = {
                name: value.detach().contiguous()
                for name, value in model.state_dict().items()
                if name.endswith(".kernel")
            }
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(weights, lambda aside: save_file(kept, aside))
            text = json.dumps(score)
            replace_file(scores, lambda aside: aside.write_text(text))
    remedy = f"delete {folder}, and it is trained again"
    with reading(weights, remedy):
        try:
            return load_file(weights), read_json(scores, remedy)
        except SafetensorError as problem:
            raise ValueError(str(problem)) from problem


def _trained(case: Case, work: Path) -> tuple[nn.Module, dict[str, Any]]:
    """Train a case with the training loop of the experiments that measure its task."""
    from toeplix import build, load
    from toeplix.training import logs

    if case.task == "untrained":
        torch.manual_seed(case.seed)
        model = build(case.config(corpora.store(case, work).vocab))
        return model, {"loss": None, "accuracy": None}
    if case.task in SYNTHETIC_TASKS:
        task, options = SYNTHETIC_TASKS[case.task]
        own = {each.name: getattr(case, each.name) for each in fields(text_runs.Sized)}
        network, found = task_training.trained(
            task_training.Case(**(own | {"task": task, "options": options})), work
        )
        return network, {"loss": found["loss"], "accuracy": found["accuracy"]}
    folder = text_runs.trained(text_runs.run_of(case, work), work)
    held = [row["val_loss"] for row in logs.read(folder) if "val_loss" in row]
    return load(folder / "model"), {"loss": held[-1], "accuracy": None}


def groups(rows: list[FilterRow]) -> dict[str, list[FilterRow]]:
    """Return rows grouped by their label in tables and figures, one row per seed."""
    found: dict[str, list[FilterRow]] = {}
    for row in rows:
        found.setdefault(label(row), []).append(row)
    first = {name: TASKS.index(group[0]["task"]) for name, group in found.items()}
    return dict(sorted(found.items(), key=lambda item: (first[item[0]], item[1][0]["model"])))


def label(row: FilterRow) -> str:
    return f"{row['task']}, d={row['dim']}{LABELS[row['model']]}"


def chosen(rows: list[FilterRow], task: str) -> list[FilterRow]:
    """Return the rows of the paper's model on a task at the largest width, with heads if any are."""
    mine: list[FilterRow] = []
    for model in (AUTOENCODER, "paper flat"):
        mine = mine or [row for row in rows if row["task"] == task and row["model"] == model]
    widest = max((row["dim"] for row in mine), default=0)
    return [row for row in mine if row["dim"] == widest]


def first_heads(row: FilterRow) -> list[FilterEntry]:
    """Return one filter of every layer: the first head's, if it has heads."""
    found: dict[str, FilterEntry] = {}
    for entry in row["filters"]:
        found.setdefault(entry["layer"].split(", head ")[0], entry)
    return list(found.values())


def unlearned(rows: list[FilterRow]) -> str:
    """Return why the models of a task count as not trained, or nothing."""
    accuracy = statistics.fmean(row.get("accuracy") or 0.0 for row in rows)
    if accuracy >= TARGET_ACCURACY:
        return ""
    return f"models of the task {rows[0]['task']} have an accuracy of {accuracy:.2f}"


def bigram_loss(case: Case, work: Path) -> dict[str, float]:
    """Return the loss of a bigram model of as many tokens as a language model has read."""
    if case.task != "language":
        return {}
    tokens = case.steps * case.batch * case.context
    losses = corpora.ngram_losses(corpora.store(case, work).directory, tokens)
    return {"bigram_loss": losses["bigram_loss"]}


def unread(rows: list[FilterRow]) -> str:
    """Return why language models count as not trained, or nothing: as `curves.untrained` of filters."""
    loss = statistics.fmean(row["loss"] for row in rows)
    bigrams = [row["bigram_loss"] for row in rows if "bigram_loss" in row]
    if bigrams:
        below = statistics.fmean(bigrams)
        said = f"the loss of the language models, {loss:.2f}, is not below that of a bigram model"
        return "" if loss < below else f"{said}, {below:.2f}"
    read = _tokens_per_parameter(rows[0])
    if read >= MIN_TOKENS_PER_PARAMETER:
        return ""
    return f"the language models have read {read:.1f} tokens per parameter"


def _tokens_per_parameter(row: FilterRow) -> float:
    from toeplix.architectures import parameters

    sizes = {"dim": row["dim"], "depth": row["depth"], "context": row["context"]}
    # settings of rows of earlier versions may leave out what was the default then
    settings = INITIALISATIONS[row["model"]]
    size = parameters(models.model(settings, vocab=row["vocab"], **sizes))
    return row["steps"] * row["batch"] * row["context"] / size


def as_in_the_paper(coders: list[FilterRow], found: list[Comparison]) -> list[Comparison] | Verdict:
    """Return comparisons of autoencoders if these are the paper's, which are flat.

    Flat ones do not learn below the paper's scale: with AUTOENCODER there are numbers, but no verdict.
    """
    if coders[0]["model"] != AUTOENCODER:
        return found
    return not_testable(
        "the paper's autoencoders have no heads, and such ones do not learn here; those with 16 do",
        "; ".join(map(str, found)),
    )


def rounded(kernel: Tensor, digits: int = 6) -> list[float]:
    """Return taps rounded to `digits` significant digits, to be stored in a row."""
    return [
        float(f"{value:.{digits}g}") if math.isfinite(value) else value for value in kernel.tolist()
    ]
