"""Tasks: functions from random numbers, or from text, to inputs and labels. They know no model.

    copying.py   text once more: at a constant lag, at a variable one, selected, reversed
    recall.py    looking things up in the context: pairs, fuzzy and noisy ones, phone books, induction

    inputs, labels = task(...)   both (b, n) int64; labels[b, t] is the token after inputs[b, t],
                                 and IGNORED where nothing is scored

as in `toeplix.data`. Every scored label follows from the inputs up to its position. Random numbers come
from a numpy generator, so the same seed is the same task everywhere.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toeplix.config import IGNORED

Tokens = NDArray[np.int64]
Marks = NDArray[np.bool_]


class Batch(NamedTuple):
    """Inputs and labels, (b, n) each."""

    inputs: Tokens
    labels: Tokens


def scored(tokens: Tokens, marks: Marks) -> Batch:
    """Tokens (b, n) with labels for those that are marked, each at the position before it.

    tokens 7 8 9 7 8 9, marks - - - x x x: labels - - 7 8 9 -
    """
    if marks[:, 0].any():
        raise ValueError("the first token has no position before it and cannot be scored")
    labels = np.full_like(tokens, IGNORED)
    labels[:, :-1] = np.where(marks[:, 1:], tokens[:, 1:], IGNORED)
    return Batch(tokens, labels)


__all__ = ["Batch", "Marks", "Tokens", "scored"]
