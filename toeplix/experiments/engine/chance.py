"""Chance levels of the tasks: the accuracy of the best guess that does not look anything up.

    pairs              the value of the pair that is asked for most often at a question's position
    fuzzy, phonebook   the token at the position that holds the answer most often
    other tasks        any token, each with the same probability

Guesses are estimated on some texts, and their accuracy is measured on others.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from toeplix.config import IGNORED
from toeplix.tasks import Batch, recall

TEXTS = 4000  # sampled texts


def chance(row: Mapping[str, Any]) -> tuple[float, str]:
    """Return the chance level of a row's task, and its name in figures."""
    task, options = row["task"], row["options"]
    if task == "pairs":
        return guessing(row["context"], row["vocab"], **options), "guess"
    if task in ("fuzzy", "phonebook"):
        sizes = json.dumps(options, sort_keys=True)
        return by_position(task, row["context"], row["vocab"], sizes), "guess"
    return 1 / row["vocab"], "uniform guess"


@functools.lru_cache
def guessing(context: int, vocab: int, pairs: int, noise: int = 0, texts: int = TEXTS) -> float:
    """Return the accuracy of the best guess that knows a question's position but not its key.

    The guess knows the position of a question and the number of questions before it. It answers with the
    value that such questions ask for most often, by its rank among the pairs.
    """
    counts: dict[tuple[int, int], list[int]] = {}
    for seed in (0, 1):  # seed 0 estimates the guess, seed 1 measures its accuracy
        right = asked = 0
        batch = recall.pairs(np.random.default_rng(seed), texts, context, pairs, vocab, noise)
        kinds = 1 + (vocab - 1) // 2
        for inputs, labels in zip(*batch, strict=True):
            values = inputs[(inputs >= kinds) & (inputs < vocab)]
            for number, place in enumerate(np.flatnonzero(labels != IGNORED)):
                fits = values == labels[place]
                seen = counts.setdefault((int(place), number), [0] * pairs)
                if seed:
                    right += bool(fits[np.argmax(seen)])
                    asked += 1
                else:
                    for rank in np.flatnonzero(fits):
                        seen[rank] += 1
    return right / asked


@functools.lru_cache
def by_position(task: str, context: int, vocab: int, options: str, texts: int = TEXTS) -> float:
    """Return the accuracy of copying from the input position that holds the label most often.

    The position is chosen for every scored position. `options` are the task's, as JSON.
    """
    sizes = json.loads(options)

    def sampled(seed: int) -> Batch:
        rng = np.random.default_rng(seed)
        if task == "fuzzy":
            return recall.fuzzy(rng, texts, context, sizes["pairs"], vocab)
        return recall.phonebook(rng, texts, **sizes)

    first, second = sampled(0), sampled(1)
    right = asked = 0
    for place in np.flatnonzero((second.labels != IGNORED).any(0)):
        here = first.labels[:, place] != IGNORED
        fits = first.inputs[here, : place + 1] == first.labels[here, place, None]
        source = int(fits.sum(0).argmax()) if here.any() else 0
        there = second.labels[:, place] != IGNORED
        right += int((second.inputs[there, source] == second.labels[there, place]).sum())
        asked += int(there.sum())
    return right / asked
