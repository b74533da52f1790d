"""Copying tasks: repeat a text that was given before.

    repeated    a b c a b c          constant lag: one tap of a filter solves it
    delimited   a b c # a b c . .    the lag is the length of the text, which varies
    reversed_   a b c # c b a . .    the lag changes from token to token
    selected    . a . . b c . # a b c   the text is scattered among blanks; lags depend on the positions

`texts` (b, m) are natural or random tokens below `vocab`. The delimiter `#` and the blank `.` are the two
tokens after them, so a model needs a vocabulary of `vocab + SIGNS`.
"""

import numpy as np
from numpy.typing import NDArray

from toeplix.tasks import Batch, Tokens, scored

CONTROL_TOKENS = 2  # tokens that tasks add: the end of the text, and nothing


def random_texts(rng: np.random.Generator, batch: int, length: int, vocab: int) -> Tokens:
    """Return independent tokens (b, m) of uniform distribution."""
    return rng.integers(0, vocab, (batch, length), dtype=np.int64)


def windows(
    rng: np.random.Generator, tokens: NDArray[np.integer], batch: int, length: int
) -> Tokens:
    """Return texts (b, m) from random positions of a long text of any integer type."""
    if len(tokens) < length:
        raise ValueError(f"a text of {len(tokens)} tokens has no piece of {length}")
    first = rng.integers(0, len(tokens) - length + 1, batch, dtype=np.int64)
    return np.asarray(tokens[first[:, None] + np.arange(length)], dtype=np.int64)


def repeated(texts: Tokens) -> Batch:
    """Return each text twice without a delimiter, as in the paper; the repetition is scored.

    7 8 9 -> inputs 7 8 9 7 8 9
             labels - - 7 8 9 -
    """
    marks = np.zeros((len(texts), 2 * texts.shape[1]), dtype=bool)
    marks[:, texts.shape[1] :] = True
    return scored(np.concatenate([texts, texts], axis=1), marks)


def delimited(texts: Tokens, lengths: Tokens, vocab: int) -> Batch:
    """Return the first `lengths[b]` tokens of each text, a delimiter, and their repetition.

    7 8 9 of length 2, vocab 10 -> inputs 7 8 10 7 8 11 11
                                   labels - - 7  8 - -  -
    """
    return _repeated_after_delimiter(texts, lengths, vocab, backwards=False)


def reversed_(texts: Tokens, lengths: Tokens, vocab: int) -> Batch:
    """Return the first `lengths[b]` tokens of each text, a delimiter, and the tokens in reverse order.

    7 8 9 of length 2, vocab 10 -> inputs 7 8 10 8 7 11 11
                                   labels - - 8  7 - -  -
    """
    return _repeated_after_delimiter(texts, lengths, vocab, backwards=True)


def _repeated_after_delimiter(
    texts: Tokens, lengths: Tokens, vocab: int, *, backwards: bool
) -> Batch:
    batch, longest = texts.shape
    if lengths.min() < 1 or lengths.max() > longest:
        raise ValueError(f"lengths of {lengths.min()} to {lengths.max()} of texts of {longest}")
    delimiter, blank = vocab, vocab + 1
    tokens = np.full((batch, 2 * longest + 1), blank, dtype=np.int64)
    marks = np.zeros(tokens.shape, dtype=bool)
    for row, text, length in zip(range(batch), texts, lengths, strict=True):
        again = text[:length][::-1] if backwards else text[:length]
        tokens[row, :length], tokens[row, length] = text[:length], delimiter
        tokens[row, length + 1 : 2 * length + 1] = again
        marks[row, length + 1 : 2 * length + 1] = True
    return scored(tokens, marks)


def selected(rng: np.random.Generator, texts: Tokens, length: int, vocab: int) -> Batch:
    """Return texts (b, m) scattered in order over `length` positions, a delimiter, and the texts.

    7 8 9 over 5, vocab 10 -> inputs 7 11 8 9 11 10 7 8 9
                              labels - -  - - -  7  8 9 -
    """
    batch, count = texts.shape
    if count > length:
        raise ValueError(f"{count} tokens do not fit into {length} places")
    delimiter, blank = vocab, vocab + 1
    tokens = np.full((batch, length + 1 + count), blank, dtype=np.int64)
    places = np.sort(rng.permuted(np.tile(np.arange(length), (batch, 1)), axis=1)[:, :count])
    tokens[np.arange(batch)[:, None], places] = texts
    tokens[:, length], tokens[:, length + 1 :] = delimiter, texts
    marks = np.zeros(tokens.shape, dtype=bool)
    marks[:, length + 1 :] = True
    return scored(tokens, marks)
