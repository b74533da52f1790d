"""Retention (Figures 4a, c): how much of a text can be recovered from the hidden state of its last token.

An encoder is frozen (untrained, trained on the next token, or trained on copying), and a decoder is
trained to reconstruct the text from one hidden state. Matched protocol: all architectures have the same
decoder, token position, embedding (the encoder's own) and recipe, and hidden states are normalised to
one size. As published: token position, embedding, decoder, batch size and learning rate differ between
architectures. Controls: no hidden state, and the hidden state of another text. "Bits kept" is the loss
of a decoder without the hidden state minus the loss of a decoder with it, in bits per token.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypedDict, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from toeplix.data import Store
from toeplix.experiments.engine import (
    accuracies,
    intervals,
    models,
    style,
    task_training,
    text_training,
)
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, Settings
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Axes, Figure
from toeplix.model import LanguageModel
from toeplix.tasks import Batch
from toeplix.tasks.copying import windows

CLAIMS, MEASURES_TIME = ("C9",), False
COST = "15 minutes on two cores with --jobs 2"
NAMES = ("toeplitz", "paper flat", "paper 4 heads", "masked", "hyena", "mamba2", "llama", "window")
COMPARED = {name: MODELS[name] for name in NAMES}
TRAININGS = ("untrained", "language", "copy")
TMM = ("paper flat", "paper 4 heads")
DECODER: dict[str, Any] = {"arch": "masked", "heads": 4}
MATCHED: dict[str, Any] = {"token": -1, "norm": True, "embedding": "own", "signal": "state"}
# the settings of the authors' scripts; learning rate and batch size relative to those of the first
PUBLISHED: dict[str, Settings] = {
    "paper 4 heads": {"token": -2, "embedding": "new", "decoder": DECODER},
    "hyena": {"embedding": "new", "decoder": MODELS["hyena"], "rate": 0.4, "batch": 2},
    "mamba2": {"decoder": MODELS["mamba2"], "rate": 0.2},
}
SIZES: task_training.Sizes = {
    "paper": {
        "vocab": 8000, "dim": 512, "depth": 16, "context": 512, "batch": 128, "steps": 200_000,
        "warmup": 500, "eval_sequences": 50_000, "lr": 5e-4, "learned": 200_000,
    },
    "laptop": {
        "vocab": 500, "dim": 64, "depth": 2, "context": 8, "batch": 32, "steps": 500,
        "warmup": 20, "eval_sequences": 256, "lr": 1e-2, "learned": 300,
    },
    "smoke": {
        "vocab": 500, "dim": 16, "depth": 1, "context": 4, "batch": 2, "steps": 2,
        "warmup": 1, "eval_sequences": 2, "lr": 4e-3, "learned": 2,
    },
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case(text_training.Sized):
    """One decoder on one frozen encoder; `protocol` is the batch format of the encoder's training."""

    training: str  # task on which the encoder was trained
    learned: int  # training steps of the encoder
    encoder_lr: float
    encoder_batch: int
    decoder: dict[str, Any]
    probe: dict[str, Any]  # token, norm, embedding, signal: as `probes.Autoencoder` takes them
    part: str = "matched"  # or "as published", "control"


class RetentionRow(task_training.LearningRow):
    """Fields of a `Case` and the measurements of its decoder."""

    training: str
    probe: dict[str, Any]


def cases(scale: Scale, rows: list[RetentionRow]) -> list[Case]:
    found = []
    for seed in scale.seeds:
        for training in TRAININGS:
            found += [_case(scale, name, seed=seed, training=training) for name in COMPARED]
        for signal in ("none", "shuffled"):
            probe = MATCHED | {"signal": signal}
            control: dict[str, Any] = {"part": "control", "training": "language", "probe": probe}
            found.append(_case(scale, "toeplitz", seed=seed, **control))
        found += [_published(scale, name, seed) for name in PUBLISHED]
    return found


def _case(scale: Scale, name: str, **other: Any) -> Case:
    settings = COMPARED[name]
    rates = sorted(scale.rates) or [models.published_rate(settings)]
    common: dict[str, Any] = {
        "encoder_lr": rates[len(rates) // 2 - 1] if len(rates) > 1 else rates[0],
        "encoder_batch": SIZES[scale.name]["batch"],
        "decoder": DECODER,
        "probe": MATCHED,
    }
    return Case.of(scale, name, settings, **(common | dict(SIZES[scale.name]) | other))


def _published(scale: Scale, name: str, seed: int) -> Case:
    theirs: dict[str, Any] = {"token": -1, "embedding": "own", "rate": 1.0, "batch": 1} | PUBLISHED[
        name
    ]
    case = _case(scale, name, seed=seed, training="language", part="as published")
    probe = {"token": theirs["token"], "norm": False, "embedding": theirs["embedding"]}
    return replace(
        case,
        probe=probe | {"signal": "state"},
        decoder=theirs["decoder"],
        lr=case.lr * theirs["rate"],
        batch=case.batch * theirs["batch"],
    )


@runtime_checkable
class Probed(task_training.Recipe, Protocol):
    """The fields of a case that `probed` reads."""

    @property
    def context(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def eval_sequences(self) -> int: ...

    @property
    def probe(self) -> dict[str, Any]: ...


class ProbeFound(TypedDict):
    """The measurements of one decoder on one encoder."""

    loss: float | None
    accuracy: float
    curve: list[list[float]]
    diverged: str | None


def measure(case: Case, work: Path) -> ProbeFound:
    """Train the decoder on an encoder from `work`, which is trained first if it does not exist."""
    from toeplix import build

    store = text_training.corpus(case, work)
    encoder = trained_encoder(case, work)
    torch.manual_seed(case.seed)
    sizes = {"dim": encoder.config.dim, "depth": case.depth, "context": case.context}
    decoder = build(models.model(case.decoder, vocab=case.vocab, **sizes))
    return probed(encoder, decoder, case, store)


def probed(
    encoder: LanguageModel, decoder: LanguageModel, case: Probed, store: Store
) -> ProbeFound:
    """Train a decoder on an encoder; return its loss in nats and accuracy on validation text."""
    from toeplix.tasks.probes import Autoencoder

    model = Autoencoder(encoder, decoder, frozen=True, **case.probe)

    def at(place: int, tokens: NDArray[np.integer]) -> Batch:
        texts = windows(np.random.default_rng(place), tokens, case.batch, case.context)
        return Batch(texts, texts)

    count = max(1, case.eval_sequences // case.batch)
    held = [at(task_training.FIRST_VAL_SEED + number, store.val.tokens) for number in range(count)]
    found = task_training.fit(
        model, case, lambda step: at(case.seed * 10**6 + step, store.train.tokens), held
    )
    return {
        "loss": found["loss"],
        "accuracy": found["accuracy"],
        "curve": found["curve"],
        "diverged": found["diverged"],
    }


def trained_encoder(case: Case, work: Path) -> LanguageModel:
    """Return the encoder that is probed, with its trained weights."""
    from toeplix import build, load

    sizes = {"dim": case.dim, "depth": case.depth, "context": case.context, "vocab": case.vocab}
    if case.training == "untrained":
        torch.manual_seed(case.seed)
        return build(models.model(case.settings, **sizes))
    own = {each.name: getattr(case, each.name) for each in fields(text_training.Sized)}
    own |= {"steps": case.learned, "lr": case.encoder_lr, "batch": case.encoder_batch}
    if case.training == "copy":
        twice = own | {"task": "repeated", "options": {}, "context": 2 * case.context}
        model, _ = task_training.trained(task_training.Case(**twice), work)
        assert isinstance(model, LanguageModel)  # this task trains no autoencoder
        return model
    run = text_training.run_of(text_training.Sized(**own), work)
    return load(text_training.trained(run, work) / "model")


def figure(rows: list[RetentionRow], published: list[Row]) -> Figure:
    drawing = style.canvas(3)
    axes = drawing.subplots(1, 3)
    for place, training in enumerate(TRAININGS):
        chosen = [row for row in rows if row["part"] == "matched" and row["training"] == training]
        _dots(axes[0], chosen, shift=0.2 * place, label=training)
    control = [row["loss"] for row in rows if row["part"] == "control" and row["loss"] is not None]
    if control:
        axes[0].axvline(statistics.fmean(control), color="0.6", linewidth=0.8, linestyle=":")
    accuracies.draw(axes[1], _by_model(rows, "matched"), title="trained on text, matched")
    accuracies.draw(axes[2], _by_model(rows, "as published"), title="the paper's protocol")
    return drawing


def _dots(axes: Axes, rows: list[RetentionRow], *, shift: float, label: str) -> None:
    names = list(COMPARED)
    losses = [row["loss"] for row in rows if row["loss"] is not None]
    places = [names.index(row["model"]) + shift for row in rows if row["loss"] is not None]
    axes.plot(losses, places, "o", markersize=4, label=label)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    style.finish(axes, x="loss (nats per token); dotted: no state", y="", title="matched protocol")


def _by_model(rows: list[RetentionRow], part: str) -> Iterable[list[RetentionRow]]:
    return [chosen(rows, name, "language", part) for name in COMPARED]


def chosen(
    rows: list[RetentionRow], name: str, training: str, part: str = "matched"
) -> list[RetentionRow]:
    return [
        row
        for row in rows
        if (row["model"], row["training"], row["part"]) == (name, training, part)
    ]


def control_losses(rows: list[RetentionRow], signal: str = "none") -> dict[int, float]:
    """Return the losses of the control decoders (by default those without a hidden state), by seed."""
    controls = [row for row in rows if row["part"] == "control"]
    return task_training.by_seed(
        [row for row in controls if row["probe"]["signal"] == signal], "loss"
    )


def table(rows: list[RetentionRow]) -> Table:
    """Return loss, bits kept per token, their share of all bits, and accuracy."""
    nothing = control_losses(rows)
    groups: dict[tuple[str, ...], list[RetentionRow]] = {}
    for row in rows:
        signal = row["probe"]["signal"] if row["part"] == "control" else ""
        groups.setdefault((row["part"], signal, row["model"], row["training"]), []).append(row)
    found = []
    for (part, signal, name, training), group in sorted(groups.items()):
        here = task_training.by_seed(group, "loss")
        line = {"part": f"{part} {signal}".strip(), "encoder": name, "trained on": training}
        line["loss"] = str(intervals.mean(list(here.values()))) if here else "diverged"
        if set(here) & set(nothing):
            kept = intervals.difference(nothing, here)
            bits = [value / math.log(2) for value in kept]
            line["bits kept per token"] = str(intervals.Interval(*bits))
            line["share"] = f"{kept.value / statistics.fmean(nothing.values()):.1%}"
        line["accuracy"] = str(intervals.mean([row["accuracy"] for row in group]))
        found.append(line)
    return found


def holds(rows: list[RetentionRow]) -> dict[str, Verdict]:
    losses = {
        (name, training): task_training.by_seed(chosen(rows, name, training), "loss")
        for name in COMPARED
        for training in ("untrained", "language")
    }
    wanted = [
        (name, how) for name in (*TMM, "hyena", "mamba2") for how in ("untrained", "language")
    ]
    if not all(losses[each] for each in wanted):
        return {}
    best = min(TMM, key=lambda name: statistics.fmean(losses[name, "language"].values()))
    answers, words = [], []
    for name in (best, "hyena", "mamba2"):
        change = intervals.difference(losses[name, "language"], losses[name, "untrained"])
        answers.append(intervals.below(change))
        words.append(f"{name} {change}")
    changes = ", ".join(words)
    words = []
    for other in ("hyena", "mamba2"):
        more = intervals.difference(losses[best, "language"], losses[other, "language"])
        answers.append(intervals.below(more))
        words.append(f"{best} minus {other} {more}{_theirs(rows, other)}")
    nothing = control_losses(rows)
    control = f"; without hidden state {intervals.mean(list(nothing.values()))}" if nothing else ""
    return {
        "C9": Verdict(
            holds=intervals.every(*answers),
            ours=f"loss, matched: trained minus untrained: {changes}; {'; '.join(words)}{control}",
        )
    }


def _theirs(rows: list[RetentionRow], other: str) -> str:
    """Return the difference of losses under the paper's protocol, which is not matched, as text."""
    here, there = (
        task_training.by_seed(chosen(rows, name, "language", "as published"), "loss")
        for name in ("paper 4 heads", other)
    )
    if not set(here) & set(there):
        return ""
    return f" (as published, 4 heads: {intervals.difference(here, there)})"
