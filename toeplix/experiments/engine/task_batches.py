"""The batches of synthetic tasks by name, at the sizes of a case, for `task_training`.

Natural text is sampled from the scale's corpus at random positions; if a case names no data, tokens are
random. `auto` marks the task of an autoencoder, whose labels are its inputs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toeplix.experiments.engine import corpora
from toeplix.experiments.engine.corpora import Corpus
from toeplix.tasks import Batch, Tokens, copying, recall

Text = NDArray[np.integer] | None  # None: tokens are random


@runtime_checkable
class Case(Corpus, Protocol):
    """The fields of `task_training.Case` that batches depend on."""

    @property
    def context(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def options(self) -> dict[str, Any]: ...


Made = Callable[[Case, np.random.Generator, Text], Batch]


class Task(NamedTuple):
    """Batches of `case.batch` sequences of `case.context` positions, and the size of the vocabulary."""

    batch: Made
    vocab: Callable[[Case], int]
    auto: bool = False

    def texts(self, case: Case, work: Path) -> tuple[Text, Text, Text]:
        """Return tokens to train on, to report and to tune on; None if tokens are random."""
        if not case.data:
            return None, None, None
        store = corpora.store(case, work)
        held, tune = (store.val.alternate(half) for half in (corpora.REPORT, corpora.TUNE))
        return store.train.tokens, held.tokens, tune.tokens


def _texts(case: Case, rng: np.random.Generator, text: Text, length: int) -> Tokens:
    if text is None:
        return copying.random_texts(rng, case.batch, length, case.vocab)
    return copying.windows(rng, text, case.batch, length)


def _lengths(case: Case, rng: np.random.Generator, longest: int) -> Tokens:
    return rng.integers(max(1, longest // 2), longest + 1, case.batch)


def _repeated(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    return copying.repeated(_texts(case, rng, text, case.context // 2))


def _delimited(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    longest = (case.context - 1) // 2
    lengths = _lengths(case, rng, longest)
    return copying.delimited(_texts(case, rng, text, longest), lengths, case.vocab)


def _reversed(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    longest = (case.context - 1) // 2
    lengths = _lengths(case, rng, longest)
    return copying.reversed_(_texts(case, rng, text, longest), lengths, case.vocab)


def _selected(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    count = max(1, case.context // 4)
    texts = _texts(case, rng, text, count)
    return copying.selected(rng, texts, case.context - 1 - count, case.vocab)


def _autoencode(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    texts = _texts(case, rng, text, case.context)
    return Batch(texts, texts)


def _pairs(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    sizes = case.batch, case.context, case.options["pairs"], case.vocab
    return recall.pairs(rng, *sizes, case.options.get("noise", 0))


def _fuzzy(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    return recall.fuzzy(rng, case.batch, case.context, case.options["pairs"], case.vocab)


def _phonebook(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    sizes = (case.options[name] for name in ("entries", "letters", "digits", "length"))
    return recall.phonebook(rng, case.batch, *sizes)


def _induction(case: Case, rng: np.random.Generator, text: Text) -> Batch:
    return recall.induction(rng, case.batch, case.context, case.vocab)


def _signed(case: Case) -> int:
    return case.vocab + copying.CONTROL_TOKENS


def _plain(case: Case) -> int:
    return case.vocab


TASKS: dict[str, Task] = {
    "repeated": Task(_repeated, _plain),
    "delimited": Task(_delimited, _signed),
    "reversed": Task(_reversed, _signed),
    "selected": Task(_selected, _signed),
    "autoencode": Task(_autoencode, _plain, auto=True),
    "pairs": Task(_pairs, lambda case: case.vocab + case.options.get("noise", 0)),
    "fuzzy": Task(_fuzzy, _plain),
    "phonebook": Task(
        _phonebook, lambda case: 1 + case.options["letters"] + case.options["digits"]
    ),
    "induction": Task(_induction, _plain),
}
