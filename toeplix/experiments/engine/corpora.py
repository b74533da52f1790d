"""The text of a case: named by its content in rows, found by this machine's files, tokenized once.

    python                        the embedded corpus
    hf:NAME[:CONFIG[:SPLIT]]      a data set of the Hugging Face hub
    NAME@DIGEST                   files of this machine: a name, and the sha256 of their content

A row must not depend on where its text lies. `registered` reads files once, returns their label
NAME@DIGEST, and notes in `work/corpora/DIGEST.json` where they are; `store` builds the token store of a
label. The validation documents of a store are divided into halves: learning rates are chosen on the odd
ones (TUNE), losses are reported on the even ones (REPORT).
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from toeplix.data import Store
from toeplix.experiments.engine.scale import CORPUS
from toeplix.files import DamagedFile, printable, read_json, replace_file, sha256

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VARIABLE = "TOEPLIX_CORPUS"
PIECE_LENGTH = 512  # maximum number of tokens of one document that a sample has side by side
SAMPLE_SEED = 0
REPORT, TUNE = "even", "odd"  # values of Run.val_documents
DIGITS = 12  # of a digest
LABEL = re.compile(rf"(?P<name>[\w .+-]+)@(?P<digest>[0-9a-f]{{{DIGITS}}})")


@runtime_checkable
class Corpus(Protocol):
    """The fields of a case that say which token store it needs."""

    @property
    def data(self) -> str: ...

    @property
    def vocab(self) -> int: ...

    @property
    def val_fraction(self) -> float: ...


def given(option: str | None, data: str) -> str:
    """Return the source of text: of the option, of $TOEPLIX_CORPUS if the scale has none, or its own."""
    if option is not None:
        return option
    if data != CORPUS:
        return data
    if not os.environ.get(VARIABLE):
        raise ValueError(
            f"this scale has no text of its own: name files or a data set with --corpus PATH or "
            f"--corpus hf:NAME, or in ${VARIABLE}"
        )
    return os.environ[VARIABLE]


def registered(source: str, work: Path) -> str:
    """Return the label of a source: NAME@DIGEST if it is PATH or NAME=PATH, otherwise the source."""
    from toeplix.data.sources import HUB, resolve

    if source == "python" or source.startswith(HUB) or LABEL.fullmatch(source):
        return source
    name, path = _named(source)
    parts = resolve([path])
    content = hashlib.sha256()
    for part in parts:
        content.update(sha256(Path(part.location)).encode())
    digest = content.hexdigest()[:DIGITS]
    text = json.dumps({"name": name, "source": os.path.abspath(path)})
    folder = work / "corpora"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{digest}.json", lambda aside: aside.write_text(text, encoding="utf-8"))
    return f"{name}@{digest}"


def _named(source: str) -> tuple[str, str]:
    """Split NAME=PATH; the name of a PATH is that of its file or directory, without endings."""
    name, sign, path = source.partition("=")
    if not sign or Path(source).exists():
        name, path = re.split(r"[.*?\[]", Path(os.path.abspath(source)).name)[0], source
    if not re.fullmatch(r"[\w .+-]+", name):
        raise ValueError(
            f"{printable(source)} gives the corpus no plain name: use --corpus NAME=PATH, with letters "
            "and digits in NAME"
        )
    return name, path


def source(data: str, work: Path) -> str:
    """Return where the text of a label lies on this machine."""
    label = LABEL.fullmatch(data)
    if data == CORPUS:
        raise ValueError(f"the case names no text: use --corpus, or set ${VARIABLE}")
    if label is None:
        return data
    file = work / "corpora" / f"{label['digest']}.json"
    if not file.exists():
        raise FileNotFoundError(
            f"the text {printable(data)} is not known in {printable(work)}: name its files with "
            "--corpus PATH"
        )
    found = read_json(file, "give --corpus PATH again").get("source")
    if not isinstance(found, str):
        raise DamagedFile(f"{printable(file)} names no source: give --corpus PATH again")
    return found


def store(case: Corpus, work: Path) -> Store:
    """Return the token store of a case, which is built once."""
    from toeplix.data import Recipe, build
    from toeplix.data.store import MANIFEST

    recipe = Recipe(sources=(case.data,), vocab=case.vocab, val_fraction=case.val_fraction)
    name = hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]
    folder = work / "data" / name
    with exclusive(work, f"data-{name}"):
        if LABEL.fullmatch(case.data) and (folder / MANIFEST).exists():
            return Store.open(folder)  # the same content, wherever its files lie now
        place = source(case.data, work)
        return build(Recipe(**{**vars(recipe), "sources": (place,)}), folder)


@contextlib.contextmanager
def exclusive(work: Path, name: str) -> Iterator[None]:
    """Lock `name`: if parallel cases need the same model or store, one makes it and the others wait."""
    from toeplix.files.locking import locked

    place = work / "locks" / name
    place.mkdir(parents=True, exist_ok=True)
    with locked(place, wait=True):
        yield


def sampled(offsets: "NDArray[np.int64]", tokens: int) -> "NDArray[np.int64]":
    """Return the places of `tokens` tokens of documents in ascending order, all if there are fewer.

    They are those of random pieces of documents, of up to PIECE_LENGTH tokens, with a fixed seed. A model
    reads sequences of all documents in random order; the first documents of a store are of one kind if
    its source is sorted, as books are.
    """
    import numpy as np

    lengths = np.diff(offsets)
    pieces = -(-lengths // PIECE_LENGTH)
    document = np.repeat(np.arange(len(lengths)), pieces)
    within = np.arange(len(document)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = offsets[document] + PIECE_LENGTH * within
    sizes = np.minimum(PIECE_LENGTH, offsets[document + 1] - starts)
    order = np.random.default_rng(SAMPLE_SEED).permutation(len(starts))
    missing = tokens - (np.cumsum(sizes[order]) - sizes[order])  # before each piece
    order, missing = order[missing > 0], missing[missing > 0]
    taken = np.minimum(sizes[order], missing)
    steps = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    return np.sort(np.repeat(starts[order], taken) + steps)


class BigramCounts(NamedTuple):
    """Counts in a sample of the training tokens; a bigram (a, b) is the number a * vocab + b."""

    vocab: int
    single: "NDArray[np.int64]"  # by token
    bigrams: "NDArray[np.int64]"  # those that occur, ascending
    counts: "NDArray[np.int64]"

    def of(self, bigrams: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return how often bigrams occur."""
        import numpy as np

        if not len(self.bigrams):
            return np.zeros(bigrams.shape, dtype=np.int64)
        found = np.searchsorted(self.bigrams, bigrams).clip(max=len(self.bigrams) - 1)
        return np.where(self.bigrams[found] == bigrams, self.counts[found], 0)


@lru_cache(maxsize=4)
def bigram_counts(directory: Path, tokens: int) -> BigramCounts:
    """Count tokens and bigrams in `sampled` training tokens; no bigram reaches over two documents."""
    import numpy as np

    opened = Store.open(directory)
    split, vocab = opened.train, opened.vocab
    places = sampled(split.offsets, tokens)
    inside = places[~np.isin(places, split.offsets[:-1])]
    before, after = (split.tokens[each].astype(np.int64) for each in (inside - 1, inside))
    bigrams, counts = np.unique(before * vocab + after, return_counts=True)
    return BigramCounts(vocab, np.bincount(split.tokens[places], minlength=vocab), bigrams, counts)


@lru_cache(maxsize=8)
def ngram_losses(directory: Path, tokens: int) -> dict[str, float]:
    """Return the losses of a unigram and a bigram model on the REPORT half, in nats per token.

    Both are estimated from `tokens` training tokens (`sampled`), as many as a model has read; rows of
    older versions have the losses of models of the first tokens of the store. The bigram model is
    interpolated with the unigram model by Witten-Bell weights, and that with the uniform distribution by
    one added count, so that no token has probability 0:

        p(b | a) = (n(a, b) + k(a) p(b)) / (n(a) + k(a)),   k(a): how many tokens have followed a
    """
    import numpy as np

    known = bigram_counts(directory, tokens)
    vocab, pairs, counts = known.vocab, known.bigrams, known.counts
    split = Store.open(directory).val.alternate(REPORT)
    held = split.tokens.astype(np.int64)
    labelled = np.ones(len(held), dtype=bool)
    labelled[split.offsets[:-1]] = False  # the first token of a document is not predicted
    positions = np.flatnonzero(labelled)
    unigram = (known.single + 1.0) / (known.single.sum() + vocab)
    starts = np.bincount(pairs // vocab, weights=counts, minlength=vocab)
    kinds = np.bincount(pairs // vocab, minlength=vocab).astype(float)
    before, after = held[positions - 1], held[positions]
    seen = known.of(before * vocab + after)
    alone = unigram[after]
    weight = starts[before] + kinds[before]
    together = np.where(
        weight > 0, (seen + kinds[before] * alone) / np.where(weight > 0, weight, 1), alone
    )
    return {
        "unigram_loss": round(float(-np.log(alone).mean()), 5),
        "bigram_loss": round(float(-np.log(together).mean()), 5),
    }
