"""A decoder that reads a text from one hidden state of a frozen encoder, and what it reads."""

from typing import Any, NotRequired, Protocol, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toeplix.data import Split
from toeplix.experiments.engine import task_training
from toeplix.model import LanguageModel
from toeplix.tasks import Batch
from toeplix.tasks.copying import windows


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


EVALUATIONS = 20  # per decoder; the encoder has to read the validation batches, too


class ProbeFound(TypedDict):
    """The measurements of one decoder on one encoder."""

    loss: float | None
    accuracy: float
    curve: list[list[float]]
    diverged: str | None
    tune_loss: NotRequired[float | None]  # on other validation text, to choose a learning rate


def probed(
    encoder: LanguageModel,
    decoder: LanguageModel,
    case: Probed,
    train: Split,
    val: Split,
    tune: Split | None = None,
) -> ProbeFound:
    """Train a decoder on an encoder; return its loss in nats and accuracy on validation text.

    With `tune`, the loss on that text is returned too.
    """
    from toeplix.tasks.probes import Autoencoder

    model = Autoencoder(encoder, decoder, frozen=True, **case.probe).to(decoder.head.weight.device)

    def at(place: int, tokens: NDArray[np.integer]) -> Batch:
        texts = windows(np.random.default_rng(place), tokens, case.batch, case.context)
        return Batch(texts, texts)

    count = max(1, case.eval_sequences // case.batch)
    held, tuned_on = (
        [at(task_training.FIRST_VAL_SEED + number, text.tokens) for number in range(count)]
        if text is not None
        else []
        for text in (val, tune)
    )
    found = task_training.fit(
        model,
        case,
        lambda step: at(case.seed * 10**6 + step, train.tokens),
        held,
        tuned_on,
        evaluations=EVALUATIONS,
    )
    measured: ProbeFound = {
        "loss": found["loss"],
        "accuracy": found["accuracy"],
        "curve": found["curve"],
        "diverged": found["diverged"],
    }
    return measured if tune is None else {**measured, "tune_loss": found.get("tune_loss")}
