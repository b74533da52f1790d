"""The token store: a directory of memory-mapped tokens with random access.

    manifest.json          what is here, with sha256 (manifest.py); written last: its presence means done
    tokenizer/             tokenizer.json and tokenizer_config.json
    train.bin, val.bin     documents end to end: start, text, end; little-endian uint16, or uint32 above
                           65536 tokens
    train.idx, val.idx     int64: where each document begins in the tokens, and where the last one ends
    train.size, val.size   int64: the offsets of the same documents in bytes of UTF-8

`building.py` writes a store.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toeplix.data import verification
from toeplix.data.encoding import SPLITS
from toeplix.data.manifest import (
    ENDINGS,
    MANIFEST,
    PROGRESS,
    TOKENIZER,
    VAL_SHARE,
    read_manifest,
    stem,
)
from toeplix.data.tokenizer import Tokenizer
from toeplix.files import DamagedFile, printable, reading, sha256

__all__ = ["MANIFEST", "PROGRESS", "TOKENIZER", "Split", "Store"]

LONG = 2**30  # bytes that take a while to read
SMALL_SPLIT = 0.25  # of the tokens that a validation split should have, below which a user is told
REMEDY = "build the store again"


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """The documents of one split."""

    name: str
    tokens: NDArray[Any]  # all documents end to end
    offsets: NDArray[np.int64]  # (documents + 1,)
    sizes: NDArray[np.int64]  # (documents + 1,), bytes of UTF-8 before each document
    pad: int  # the padding token
    store: Path | None = None  # directory from which it was opened

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, index: int) -> NDArray[Any]:
        """Return the tokens of a document with its start and end token; a view, not a copy."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def bytes_of(self, documents: NDArray[np.integer] | slice = slice(None)) -> int:
        """Return the bytes of UTF-8 in these documents, for bits per byte."""
        return int(np.diff(self.sizes)[documents].sum())

    def alternate(self, which: str) -> "Split":
        """Return the documents of "even" or "odd" number: two disjoint halves, copied into memory."""
        if len(self) < 2:
            raise ValueError(
                f"the split {self.name!r} has {len(self)} documents, too few to divide into halves: "
                "build the store with a larger --val-fraction"
            )
        chosen = range({"even": 0, "odd": 1}[which], len(self), 2)
        lengths = [np.diff(ends)[chosen.start :: 2] for ends in (self.offsets, self.sizes)]
        offsets, sizes = (np.concatenate([[0], np.cumsum(each)]) for each in lengths)
        return Split(
            name=f"{self.name}, {which}",
            tokens=np.concatenate([self.document(index) for index in chosen]),
            offsets=offsets.astype(np.int64),
            sizes=sizes.astype(np.int64),
            pad=self.pad,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.store is None:
            return functools.partial(Split, **vars(self)), ()
        return _reopened, (self.store, self.name)  # the other process maps the files itself


@dataclass(frozen=True, kw_only=True, eq=False)
class Store:
    """An opened, complete token store."""

    directory: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, directory: str | Path) -> "Store":
        """Checks the manifest, and that every file is there in full length; `check` also reads them."""
        folder = Path(directory)
        file = folder / MANIFEST
        if not file.exists():
            if (folder / PROGRESS).exists():
                raise ValueError(
                    f"{printable(folder)} is unfinished: run the same `toeplix data build` again to go on"
                )
            raise FileNotFoundError(
                f"{printable(folder)} is no token store: there is no {MANIFEST} in it "
                "(`toeplix data build SOURCE --out DIR` makes one)"
            )
        return cls(directory=folder, manifest=read_manifest(folder))

    def check(self) -> None:
        """Read every file, compare it with the manifest, and see that documents lie where they should.

        That it was done is remembered, for `verify`.
        """
        seen = verification.fingerprint(self.directory, self.manifest)
        damaged = [
            name
            for name, known in self.manifest["files"].items()
            if sha256(self.directory / name) != known["sha256"]
        ]
        if damaged:
            raise DamagedFile(
                f"{printable(self.directory)} is damaged, its sha256 disagrees: {', '.join(damaged)}; "
                "copy these files again, or delete the directory and build again"
            )
        known = self.manifest["tokenizer"]
        with reading(self.directory / MANIFEST, REMEDY):
            for name in ("vocab", "start", "end", "pad"):
                if getattr(self.tokenizer, name) != known[name]:
                    raise ValueError(f"{name} is {known[name]}, that of the tokenizer is another")
        for split in SPLITS:
            opened = self._split(split)
            with reading(self.directory / f"{stem(self.manifest, split)}.bin", REMEDY):
                verification.check_tokens(opened.tokens, self.vocab)
        verification.remember(seen)

    def verify(self, say: Callable[[str], None] = lambda line: None) -> None:
        """`check`, unless that was done before and no file has been written since."""
        if verification.is_remembered(verification.fingerprint(self.directory, self.manifest)):
            return
        size = sum(known["bytes"] for known in self.manifest["files"].values())
        if size > LONG:
            say(f"verifying {self.directory}, {size / 1e9:.1f} GB, once")
        self.check()

    @property
    def has_validation(self) -> bool:
        return bool(self.manifest["splits"]["val"]["documents"])

    @property
    def notice(self) -> str:
        """What a user should know about the splits, if anything."""
        share = self.manifest["recipe"].get("val_fraction")
        if VAL_SHARE in self.manifest:
            return (
                f"val_fraction={share} chose none of {self.manifest['read']} documents by its hash: "
                "the text with the smallest hash is validation instead"
            )
        if share and not self.has_validation:
            return (
                f"val_fraction={share} chose none of {self.manifest['read']} documents: there is no "
                "validation split; delete the store and build it again"
            )
        tokens = {split: self.manifest["splits"][split]["tokens"] for split in SPLITS}
        total = sum(tokens.values())
        if share and tokens["val"] < SMALL_SPLIT * share * total:
            return (
                f"validation has {tokens['val']:,} of {total:,} tokens, far less than "
                f"val_fraction={share}: whole documents are chosen, and these are short; with a larger "
                "fraction, or text in more documents, the validation loss says more"
            )
        return ""

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.directory / TOKENIZER)

    @functools.cached_property
    def train(self) -> Split:
        return self._split("train")

    @functools.cached_property
    def val(self) -> Split:
        """The validation split, chosen by a hash of the text: no document of it is in `train`."""
        return self._split("val")

    @property
    def vocab(self) -> int:
        return self.manifest["tokenizer"]["vocab"]

    def _split(self, name: str) -> Split:
        counts = self.manifest["splits"][name]
        tokens, offsets, sizes = (
            self.directory / f"{stem(self.manifest, name)}.{ending}" for ending in ENDINGS
        )
        split = Split(
            name=name,
            tokens=_mapped(tokens, np.dtype(self.manifest["dtype"])),
            offsets=_mapped(offsets, np.dtype("<i8")),
            sizes=_mapped(sizes, np.dtype("<i8")),
            pad=self.manifest["tokenizer"]["pad"],
            store=self.directory.absolute(),
        )
        # a few bytes a document, and rows are cut by them: looked at even if nobody asks to verify
        with reading(offsets, REMEDY):
            verification.check_ends(split.offsets, counts["tokens"], least=2)
        with reading(sizes, REMEDY):
            verification.check_ends(split.sizes, counts["bytes"], least=1)
        return split


def _reopened(directory: Path, name: str) -> Split:
    return Store.open(directory)._split(name)


def _mapped(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if file.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    # a plain array on the map, because slicing np.memmap takes several times as long
    return np.asarray(np.memmap(file, dtype, mode="r"))
