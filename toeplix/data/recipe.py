"""The record `Recipe`: of which text a token store is built, and how.

    recipe = Recipe(sources=("python",), vocab=2000, val_fraction=0.05)
    store = build(recipe, "runs/python")

A recipe is frozen. The manifest of a store keeps it, so an interrupted build goes on only with the same
recipe (resuming.py). Its settings are checked where the record is made, before any text is read.
"""

from dataclasses import dataclass

from toeplix.data import tokenizer as tokenizers


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The sources and settings of a store.

    >>> Recipe(sources=("notes.md", "books/*.jsonl"), vocab=2000).val_fraction
    0.01
    """

    sources: tuple[str, ...]  # as described in sources.py
    vocab: int = 8000  # vocabulary of the tokenizer that is trained
    tokenizer: str | None = None  # a name or directory, instead of training one
    val_fraction: float = 0.01  # fraction of documents in the validation split
    field: str = "text"
    limit: int | None = None  # maximum number of documents

    def __post_init__(self) -> None:
        named = not isinstance(self.sources, str) and isinstance(self.sources, list | tuple)
        if not named or not all(isinstance(source, str) for source in self.sources):
            raise TypeError(f"sources={self.sources!r:.60} must be a tuple of the names of sources")
        if not 0 <= self.val_fraction < 1:
            raise ValueError(f"val_fraction={self.val_fraction} must be in [0, 1)")
        if self.limit is not None and not 1 <= self.limit < 2**63:
            raise ValueError(f"limit={self.limit} must be at least 1 and below 2**63")
        if self.tokenizer is None:
            tokenizers.check_vocab(self.vocab)
        elif not self.tokenizer:
            raise ValueError("tokenizer='' has no name: give one, or leave it out to train one")
