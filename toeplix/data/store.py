"""The token store: a directory of memory-mapped tokens, read at random without loading them.

    manifest.json          what is here, with sha256; written last: its presence means done
    tokenizer/             tokenizer.json and tokenizer_config.json
    train.bin, held.bin    documents end to end: start, text, end; little-endian uint16, or uint32 above
                           65536 tokens
    train.idx, held.idx    int64: where each document begins in the tokens, and where the last one ends
    train.size, held.size  int64: the same in bytes of UTF-8

`building.py` writes it.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toeplix.data.encoding import SPLITS
from toeplix.data.tokenizer import Tokenizer
from toeplix.files import sha256

MANIFEST, PROGRESS, TOKENIZER, VERSION = "manifest.json", "progress.json", "tokenizer", 1
ENDINGS = ("bin", "idx", "size")


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Documents of one split."""

    name: str
    tokens: NDArray[Any]  # all documents end to end
    offsets: NDArray[np.int64]  # (documents + 1,)
    sizes: NDArray[np.int64]  # (documents + 1,), bytes of UTF-8 before each document
    pad: int  # the token that fills rows
    store: Path | None = None  # where it was opened

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, index: int) -> NDArray[Any]:
        """The tokens of a document with those that start and end it; a view, not a copy."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def bytes_of(self, documents: NDArray[np.integer] | slice = slice(None)) -> int:
        """Bytes of UTF-8 in these documents: what bits per byte are divided by."""
        return int(np.diff(self.sizes)[documents].sum())

    def __reduce__(self) -> tuple[Any, ...]:
        if self.store is None:
            return functools.partial(Split, **vars(self)), ()
        return _reopened, (self.store, self.name)  # files are mapped again, not copied


@dataclass(frozen=True, kw_only=True, eq=False)
class Store:
    """A finished store, opened."""

    directory: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, directory: str | Path) -> "Store":
        """Checks that every file is there in full length; `check` also reads them."""
        folder = Path(directory)
        file = folder / MANIFEST
        if not file.exists():
            if (folder / PROGRESS).exists():
                raise ValueError(
                    f"{folder} is unfinished: run the same `toeplix data build` again to go on"
                )
            raise FileNotFoundError(
                f"{folder} is no token store: there is no {MANIFEST} in it "
                "(`toeplix data build SOURCE --out DIR` makes one)"
            )
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
            version, files = manifest["version"], manifest["files"]
        except (ValueError, KeyError, TypeError) as problem:
            raise ValueError(f"{file} is damaged: build the store again") from problem
        if version != VERSION:
            raise ValueError(f"{file} has version {version}, this toeplix reads {VERSION}")
        for name, known in files.items():
            size = (folder / name).stat().st_size if (folder / name).exists() else None
            if size != known["bytes"]:
                found = "missing" if size is None else f"{size} bytes long"
                raise ValueError(
                    f"{folder / name} is {found}, not {known['bytes']} bytes: build the store again"
                )
        return cls(directory=folder, manifest=manifest)

    def check(self) -> None:
        """Read every file and compare it with the manifest."""
        damaged = [
            name
            for name, known in self.manifest["files"].items()
            if sha256(self.directory / name) != known["sha256"]
        ]
        if damaged:
            raise ValueError(
                f"{self.directory} is damaged, its sha256 disagrees: {', '.join(damaged)}; "
                "copy these files again, or delete the directory and build again"
            )

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.directory / TOKENIZER)

    @functools.cached_property
    def train(self) -> Split:
        return self._split("train")

    @functools.cached_property
    def held(self) -> Split:
        """What no training row contains: chosen by a hash of the text, so no duplicate either."""
        return self._split("held")

    @property
    def vocab(self) -> int:
        return self.manifest["tokenizer"]["vocab"]

    def _split(self, name: str) -> Split:
        return Split(
            name=name,
            tokens=_mapped(self.directory / f"{name}.bin", np.dtype(self.manifest["dtype"])),
            offsets=_mapped(self.directory / f"{name}.idx", np.dtype("<i8")),
            sizes=_mapped(self.directory / f"{name}.size", np.dtype("<i8")),
            pad=self.manifest["tokenizer"]["pad"],
            store=self.directory.absolute(),
        )


def _reopened(directory: Path, name: str) -> Split:
    return Store.open(directory)._split(name)


def _mapped(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if file.stat().st_size == 0:  # which cannot be mapped
        return np.empty(0, dtype)
    # a plain array on the map: slicing np.memmap costs several times more
    return np.asarray(np.memmap(file, dtype, mode="r"))


def describe(directory: Path, recipe: dict[str, Any], progress: dict[str, Any]) -> dict[str, Any]:
    """The manifest of what lies in a directory."""
    tokenizer = Tokenizer.load(directory / TOKENIZER)
    names = [f"{split}.{ending}" for split in SPLITS for ending in ENDINGS]
    names += sorted(f"{TOKENIZER}/{file.name}" for file in (directory / TOKENIZER).iterdir())
    files = {
        name: {
            "bytes": (directory / name).stat().st_size,
            "sha256": sha256(directory / name),
        }
        for name in names
    }
    return {
        "version": VERSION,
        "recipe": recipe,
        "parts": progress["parts"],
        "read": progress["read"],
        "empty": progress["read"] - sum(each["documents"] for each in progress["splits"].values()),
        "splits": progress["splits"],
        "dtype": tokenizer.dtype.str,
        "tokenizer": {
            "digest": files[f"{TOKENIZER}/tokenizer.json"]["sha256"],
            "vocab": tokenizer.vocab,
            "start": tokenizer.start,
            "end": tokenizer.end,
            "pad": tokenizer.pad,
        },
        "files": files,
    }
