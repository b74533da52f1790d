"""The records of a store, and what must be true of them before anything is sized by them.

    manifest.json   what a finished store holds; every number in it is bounded and agrees with the others
    progress.json   how far an unfinished one is good (appending.py)

Both carry a sha256 of themselves, because a flipped bit in a count is still a count. Stores that were
built before records had one are read all the same.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from toeplix import compat
from toeplix.data.encoding import SPLITS
from toeplix.data.tokenizer import MAX_VOCAB, Tokenizer
from toeplix.files import field, printable, read_json, reading, sha256

MANIFEST, PROGRESS, TOKENIZER, VERSION = "manifest.json", "progress.json", "tokenizer", 2
ENDINGS = ("bin", "idx", "size")
DTYPES = ("<u2", "<u4")
COUNTS = ("documents", "tokens", "bytes")
MAX_COUNT = 2**56  # documents, tokens or bytes: far above any disk
SEAL = "sha256"
REQUIRED = {"version", "recipe", "parts", "read", "empty", "splits", "dtype", "tokenizer", "files"}
VAL_SHARE = "val_share"  # where the share that was asked for chose no document


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its own sha256."""
    return record | {SEAL: digest(record)}


def unsealed(record: dict[str, Any]) -> dict[str, Any]:
    """The record without its sha256, which must be right if there is one."""
    found = {name: value for name, value in record.items() if name != SEAL}
    if SEAL in record and record[SEAL] != digest(found):
        raise ValueError("its own sha256 disagrees")
    return found


def digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def only_known(record: dict[str, Any], known: set[str]) -> None:
    """Reject unknown fields: one of them may be a damaged name of a known one."""
    if unknown := sorted(set(record) - known):
        raise ValueError(f"field {printable(unknown[0])!r} is not known")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished store, checked against itself and against the lengths of the files."""
    file, remedy = folder / MANIFEST, "build the store again"
    record = read_json(file, remedy)
    with reading(file, remedy):
        version = field(record, "version", int)
    if version not in (VERSION, compat.STORE_VERSION):
        raise ValueError(f"{printable(file)} has version {version}, this toeplix reads {VERSION}")
    with reading(file, remedy):
        manifest = unsealed(record)
        if version == compat.STORE_VERSION:
            manifest = compat.manifest(manifest)
        _check(manifest)
    for name, known in manifest["files"].items():
        present = (folder / name).is_file()
        size = (folder / name).stat().st_size if present else None
        if size != known["bytes"]:
            found = f"{size} bytes long" if present else "missing"
            raise ValueError(
                f"{printable(folder / name)} is {found}, not {known['bytes']} bytes: {remedy}"
            )
    return manifest


def _check(manifest: dict[str, Any]) -> None:
    only_known(manifest, REQUIRED | {VAL_SHARE})
    field(manifest, "recipe", dict)
    check_parts(manifest)
    read, empty = (count(manifest, name) for name in ("read", "empty"))
    width = np.dtype(one_of(manifest, "dtype", DTYPES)).itemsize
    tokenizer = field(manifest, "tokenizer", dict)
    field(tokenizer, "digest", str)
    vocab = count(tokenizer, "vocab", least=1, most=min(MAX_VOCAB, 2 ** (8 * width)))
    for name in ("start", "end", "pad"):
        count(tokenizer, name, most=vocab - 1)
    files = field(manifest, "files", dict)
    for name, known in files.items():
        if not re.fullmatch(
            r"(train|val|held)\.(bin|idx|size)|tokenizer/[^/\0]*[^/\0.][^/\0]*", name
        ):
            raise ValueError(f"file {printable(name)!r} is not one of a store")
        count(known, "bytes")
        if not re.fullmatch("[0-9a-f]{64}", field(known, "sha256", str)):
            raise ValueError(f"the sha256 of {printable(name)!r} is none")
    splits = check_splits(manifest)
    if read - empty != sum(counts["documents"] for counts in splits.values()):
        raise ValueError("the counts of documents do not add up")
    for name, counts in splits.items():
        for ending, length in lengths(counts, width).items():
            file = f"{stem(manifest, name)}.{ending}"
            if field(files, file, dict)["bytes"] != length:
                raise ValueError(f"the length of {file} disagrees with the counts")
    if field(files, f"{TOKENIZER}/tokenizer.json", dict)["sha256"] != tokenizer["digest"]:
        raise ValueError("two digests of the tokenizer disagree")


def stem(manifest: dict[str, Any], split: str) -> str:
    """Return how the files of a split are called: a store of version 1 has held.bin for val.bin."""
    return "held" if split == "val" and "held.bin" in manifest["files"] else split


def check_parts(record: dict[str, Any]) -> list[Any]:
    """Names of what was read, and their sizes where they have one."""
    parts: list[Any] = field(record, "parts", list)
    for part in parts:
        known = isinstance(part, list) and len(part) == 2 and isinstance(part[0], str)
        if not known or not (part[1] is None or isinstance(part[1], int)):
            raise ValueError(f"field 'parts' must hold names and sizes, not {printable(part)[:40]}")
    return parts


def check_splits(record: dict[str, Any]) -> dict[str, dict[str, int]]:
    splits: dict[str, dict[str, int]] = field(record, "splits", dict)
    only_known(splits, set(SPLITS))
    for split in SPLITS:
        counts = field(splits, split, dict)
        only_known(counts, set(COUNTS))
        for name in COUNTS:
            count(counts, name)
    return splits


def lengths(counts: dict[str, int], width: int) -> dict[str, int]:
    """Bytes of the files of a split, by their ending."""
    index = (counts["documents"] + 1) * 8
    return {"bin": counts["tokens"] * width, "idx": index, "size": index}


def count(record: dict[str, Any], name: str, least: int = 0, most: int = MAX_COUNT) -> int:
    value = field(record, name, int, least)
    if value > most:
        raise ValueError(f"field {name!r} is {printable(value)[:40]}, which is more than {most}")
    return value


def one_of(record: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = field(record, name, str)
    if value not in known:
        raise ValueError(
            f"field {name!r} is {printable(value)[:40]!r}, not one of {', '.join(known)}"
        )
    return value


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
    found = {
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
    if VAL_SHARE in progress:
        found[VAL_SHARE] = progress[VAL_SHARE]
    return found
