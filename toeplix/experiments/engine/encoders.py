"""A frozen encoder, and a decoder that reads its hidden state: one case of `retention`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from toeplix.experiments.engine import corpora, models, probing, task_training, text_runs
from toeplix.model import LanguageModel
from toeplix.training.run import Run

ENCODER = "encoder"  # part of the rows that tune the learning rate of an encoder
AUTOENCODER = "autoencoder"  # the training of an encoder together with a decoder of the case's kind


@dataclass(frozen=True, kw_only=True)
class Case(text_runs.Sized):
    """One decoder on one frozen encoder; `protocol` is the batch format of the encoder's training."""

    training: str  # task on which the encoder was trained
    learned: int  # training steps of the encoder
    encoder_lr: float
    encoder_batch: int
    decoder: dict[str, Any]
    probe: dict[str, Any]  # token, norm, embedding, signal: as `probes.Autoencoder` takes them
    part: str = "matched"  # or "as published", "control", "encoder"


def measure(case: Case, work: Path) -> probing.ProbeFound:
    """Train the decoder on an encoder from `work`, which is trained first if it does not exist."""
    from toeplix import build

    if case.part == ENCODER:
        return _encoder_found(case, work)
    store = corpora.store(case, work)
    encoder = trained_encoder(case, work)
    torch.manual_seed(case.seed)
    sizes = {"dim": encoder.config.dim, "depth": case.depth, "context": case.context}
    decoder = build(models.model(case.decoder, vocab=case.vocab, **sizes))
    val = store.val
    halves = val.alternate(corpora.REPORT), val.alternate(corpora.TUNE)
    return probing.probed(encoder, decoder, case, store.train, *halves)


def _encoder_found(case: Case, work: Path) -> probing.ProbeFound:
    """Return the loss of an encoder as a language model, on the tuning half of the validation text."""
    from toeplix.training.loop import Diverged

    found: probing.ProbeFound = {"loss": None, "accuracy": 0.0, "curve": [], "diverged": None}
    run = _encoder_run(case, work)
    try:
        folder = text_runs.trained(run, work)
    except Diverged as problem:
        return {**found, "diverged": str(problem).split(" (batch")[0], "tune_loss": None}
    return {**found, "tune_loss": text_runs.tune_loss(run, folder)}


def trained_encoder(case: Case, work: Path) -> LanguageModel:
    """Return the encoder that is probed, with its trained weights."""
    from toeplix import build, load
    from toeplix.tasks.probes import Autoencoder

    sizes = {"dim": case.dim, "depth": case.depth, "context": case.context, "vocab": case.vocab}
    if case.training == "untrained":
        torch.manual_seed(case.seed)
        return build(models.model(case.settings, **sizes))
    if case.training == "copy":
        twice = vars(_encoder(case)) | {"task": "repeated", "options": {}}
        twice["context"] = 2 * case.context
        model, _ = task_training.trained(task_training.Case(**twice), work)
        assert isinstance(model, LanguageModel)  # this task trains no autoencoder
        return model
    if case.training == AUTOENCODER:
        whole = vars(_encoder(case)) | {"task": "autoencode", "options": {"decoder": case.decoder}}
        trained, _ = task_training.trained(task_training.Case(**whole), work)
        assert isinstance(trained, Autoencoder)
        return trained.encoder
    return load(text_runs.trained(_encoder_run(case, work), work) / "model")


def _encoder(case: Case) -> text_runs.Sized:
    """Return the training run of the encoder."""
    own = {each.name: getattr(case, each.name) for each in fields(text_runs.Sized)}
    own |= {"steps": case.learned, "lr": case.encoder_lr, "batch": case.encoder_batch}
    return text_runs.Sized(**own)


def _encoder_run(case: Case, work: Path) -> Run:
    return text_runs.run_of(_encoder(case), work)
