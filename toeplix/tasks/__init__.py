"""Synthetic tasks: functions that return inputs and labels, made from random numbers or text.

    copying.py   copying at a constant lag, at a variable lag, selectively, and in reverse
    recall.py    associative recall (exact, noisy, fuzzy), phone books, induction
    probes.py    autoencoders that measure what a hidden state retains of the input

    inputs, labels = task(...)   both (b, n) int64; labels[b, t] is the token after inputs[b, t],
                                 and IGNORED where nothing is scored

as in `toeplix.data`. Tasks know no model. Every scored label is determined by the inputs up to its
position. Random numbers come from a NumPy generator, so a seed gives the same task everywhere.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toeplix.config import IGNORED

Tokens = NDArray[np.int64]
Marks = NDArray[np.bool_]


class Batch(NamedTuple):
    """Inputs and labels of a task, both (b, n)."""

    inputs: Tokens
    labels: Tokens


def scored(tokens: Tokens, marks: Marks) -> Batch:
    """Return tokens (b, n) with labels for the marked ones, each label at the position before its token.

    tokens 7 8 9 7 8 9, marks - - - x x x: labels - - 7 8 9 -
    """
    if marks[:, 0].any():
        raise ValueError("the first token has no position before it and cannot be scored")
    labels = np.full_like(tokens, IGNORED)
    labels[:, :-1] = np.where(marks[:, 1:], tokens[:, 1:], IGNORED)
    return Batch(tokens, labels)


__all__ = ["Batch", "Marks", "Tokens", "scored"]
