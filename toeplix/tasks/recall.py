"""Recall tasks: look up in the context what followed a key.

    pairs       k v k v . . k . . k .    multi-query associative recall, as in zoology
    noisy       k v ~ ~ k v ~ k ~        `pairs` with noise between the pairs
    fuzzy       k k v k v v v k k v      keys and values of one to three tokens
    phonebook   n n d d d ; n n d d d ; n n d d d     a name among many, and its number
    induction   a b # c d a e # c        the token after the marker

Keys, values and other tokens have disjoint alphabets. The keys of a row are distinct, and queries never
share a position. No answer helps with the next query: answers of `pairs` are not in the inputs, and
`fuzzy` may query the same key again, so earlier answers cannot be excluded.
"""

import numpy as np

from toeplix.tasks import Batch, Tokens, scored

BLANK = 0  # a token that says nothing
MAX_FUZZY_TOKENS = 3  # tokens in a fuzzy key or value
GAP_POWER = 0.01  # of the power law by which zoology lets most queries come soon


def pairs(
    rng: np.random.Generator, batch: int, context: int, count: int, vocab: int, noise: int = 0
) -> Batch:
    """Return `count` pairs of a key and a value, then a query of every key, whose value is scored.

    Tokens: blank; keys 1 to (vocab-1)//2; values up to vocab-1; noise tokens above them, if any, which
    replace blanks and also separate the pairs. 2 pairs, context 10, vocab 9:

    inputs 3 5 1 8 0 0 1 0 3 0
    labels - - - - - - 8 - 5 -

    A model that guesses one of the values in the context is right in one case of `count`, and somewhat
    more often if it prefers early pairs for early queries: as in zoology, they tend to be queried first.
    """
    if context % 2 or context < 4 * count:
        raise ValueError(f"context={context} must be even and hold 4 tokens for each of {count}")
    kinds = (vocab - 1) // 2
    if count > kinds:
        raise ValueError(f"{count} keys differ only if there are so many: vocab={vocab}")
    tokens = np.full((batch, context), BLANK, dtype=np.int64)
    if noise:
        tokens = rng.integers(vocab, vocab + noise, (batch, context), dtype=np.int64)
    between = tokens.copy()
    marks = np.zeros(tokens.shape, dtype=bool)
    # the pairs take the first positions, or, with noise, any of the first half
    slots = context // 4 if noise else count
    weights = np.arange(1, context // 2 - slots + 1, dtype=np.float64) ** (GAP_POWER - 1)
    for row in range(batch):
        keys = 1 + rng.permutation(kinds)[:count]
        values = rng.integers(1 + kinds, vocab, count, dtype=np.int64)
        given = 2 * np.sort(rng.permutation(slots)[:count])
        asked = _sampled(rng, weights, count) + slots
        for place, marked in ((given, False), (2 * asked, True)):
            tokens[row, place], tokens[row, place + 1] = keys, values
            marks[row, place + 1] = marked
    return Batch(np.where(marks, between, tokens), scored(tokens, marks).labels)


def _sampled(rng: np.random.Generator, weights: np.ndarray, count: int) -> Tokens:
    """Return distinct positions, sampled with weights (exponential clocks: the first to ring win)."""
    return np.argsort(rng.exponential(size=len(weights)) / weights, kind="stable")[:count]


def fuzzy(rng: np.random.Generator, batch: int, context: int, count: int, vocab: int) -> Batch:
    """Return pairs of keys and values of one or several tokens, then as many queries of any keys.

    No key is a prefix of another one, so the end of a key is unambiguous; rows end in blanks. Alphabets
    are those of `pairs`. 2 pairs, vocab 9, the beginning of a row:

    inputs 3 1 5 2 8 6 2 8 6 3 1 5 0
    labels - - - - - - 8 6 - - 5 - -
    """
    kinds = (vocab - 1) // 2
    if count > kinds or context < 4 * MAX_FUZZY_TOKENS * count:
        raise ValueError(
            f"context={context} must hold {4 * MAX_FUZZY_TOKENS} tokens for each of {count} pairs, "
            f"and vocab={vocab} have as many keys"
        )
    tokens = np.full((batch, context), BLANK, dtype=np.int64)
    marks = np.zeros(tokens.shape, dtype=bool)
    for row in range(batch):
        keys = _prefix_free(rng, count, kinds)
        values = [
            rng.integers(1 + kinds, vocab, rng.integers(1, MAX_FUZZY_TOKENS + 1), dtype=np.int64)
            for _ in range(count)
        ]
        place = 0
        order = [(number, False) for number in range(count)]
        order += [(int(number), True) for number in rng.integers(0, count, count)]
        for number, marked in order:
            key, value = keys[number], values[number]
            middle, end = place + len(key), place + len(key) + len(value)
            tokens[row, place:middle], tokens[row, middle:end] = key, value
            marks[row, middle:end] = marked
            place = end
    return scored(tokens, marks)


def _prefix_free(rng: np.random.Generator, count: int, kinds: int) -> list[Tokens]:
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        length = int(rng.integers(1, MAX_FUZZY_TOKENS + 1))
        key = tuple(int(part) for part in 1 + rng.integers(0, kinds, length))
        if all(key[: len(other)] != other[: len(key)] for other in found):
            found.append(key)
        elif length == 1 and len({other[0] for other in found}) == kinds:
            found = []  # every first token is taken by another key: start again
    return [np.array(key, dtype=np.int64) for key in found]


def phonebook(
    rng: np.random.Generator, batch: int, entries: int, letters: int, digits: int, length: int
) -> Batch:
    """Return names of two letters, each with a number of `length` digits, then one name with its number.

    Tokens: 0 ends a line; letters from 1; digits after them. Names are distinct, but share letters.
    2 entries, 3 letters, numbers of 2 digits:

    inputs 1 3 5 4 0 3 3 4 4 0 1 3 5 4
    labels - - - - - - - - - - - 5 4 -
    """
    if entries > letters**2:
        raise ValueError(f"{letters} letters make {letters**2} names, not {entries}")
    line = 3 + length
    tokens = np.full((batch, entries, line), BLANK, dtype=np.int64)
    names = rng.permuted(np.tile(np.arange(letters**2), (batch, 1)), axis=1)[:, :entries]
    tokens[:, :, 0], tokens[:, :, 1] = 1 + names // letters, 1 + names % letters
    numbers = rng.integers(1 + letters, 1 + letters + digits, (batch, entries, length))
    tokens[:, :, 2:-1] = numbers
    asked = rng.integers(0, entries, batch)
    question = tokens[np.arange(batch), asked, :-1]
    whole = np.concatenate([tokens.reshape(batch, -1), question], axis=1)
    marks = np.zeros(whole.shape, dtype=bool)
    marks[:, -length:] = True
    return scored(whole, marks)


def induction(rng: np.random.Generator, batch: int, context: int, vocab: int) -> Batch:
    """Return random tokens below vocab-1 with the marker vocab-1 once among them and once near the end.

    Context 8, vocab 10: inputs 4 9 5 2 5 0 9 5
                         labels - - - - - - 5 -
    """
    if context < 4:
        raise ValueError(f"context={context} must hold two signs and what follows them: 4 or more")
    tokens = rng.integers(0, vocab - 1, (batch, context), dtype=np.int64)
    first = rng.integers(0, context - 3, batch)
    rows = np.arange(batch)
    tokens[rows, first], tokens[:, -2] = vocab - 1, vocab - 1
    tokens[:, -1] = tokens[rows, first + 1]
    marks = np.zeros(tokens.shape, dtype=bool)
    marks[:, -1] = True
    return scored(tokens, marks)
