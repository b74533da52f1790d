"""The files of a checkpoint's directory: which may be replaced, and whether they agree with the weights.

`save` replaces `config.json`, `model.safetensors` and the tokenizer of an earlier checkpoint. A file of
another origin under one of these names, and the directory of a token store, are rejected.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from toeplix import compat
from toeplix.config import Model
from toeplix.files import (
    DamagedFile,
    check_input,
    parse_json,
    printable,
    read_json,
    sha256,
)
from toeplix.pretrained_files import TOKENIZER_CONFIG, TOKENS

WEIGHTS, CONFIG = "model.safetensors", "config.json"
VERSION = "toeplix_version"  # in config.json
WRITER = "toeplix"  # in the metadata of the weights' file: the version that wrote it
CONTROL = ("bos_token", "eos_token", "pad_token")
STORE_TOKENS = "train.bin"  # in the directory of a token store


def is_checkpoint(described: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model that `load` reads, of whatever architecture."""
    return described.get("model_type") == "toeplix" or (
        VERSION in described and isinstance(described.get("model"), dict)
    )


def check_replaceable(folder: Path, tokenizer: Mapping[str, bytes], source: Path) -> None:
    """Raise FileExistsError if `save` would replace files that are not those of a toeplix checkpoint.

    Args:
        folder: the directory to be written.
        tokenizer: the files of the tokenizer that will be written. A `save` that was interrupted left
            some of them, and no config.json yet.
        source: the directory of which they are made, which may be the same.
    """
    remedy = "name another directory, or replace it by toeplix.save(..., overwrite=True)"
    if (folder / STORE_TOKENS).exists():
        raise FileExistsError(
            f"{printable(folder)} is a token store, it holds {STORE_TOKENS}: name another directory, "
            "or write there all the same by toeplix.save(..., overwrite=True)"
        )
    for name in _foreign(folder, tokenizer, source):
        raise FileExistsError(
            f"{printable(folder / name)} is not that of a toeplix checkpoint: {remedy}"
        )


def _foreign(folder: Path, tokenizer: Mapping[str, bytes], source: Path) -> Iterator[str]:
    """Yield the names of files that would be replaced and are not of an earlier checkpoint."""
    if _has_record(folder / CONFIG):
        return
    if os.path.lexists(folder / CONFIG):
        yield CONFIG
    if _has_writer(folder / WEIGHTS):
        return
    if os.path.lexists(folder / WEIGHTS):
        yield WEIGHTS
    for name, data in tokenizer.items():
        target = folder / name
        if os.path.lexists(target) and not (
            target.is_file() and target.read_bytes() in (data, _content(source / name))
        ):
            yield name


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _has_record(config: Path) -> bool:
    try:
        return is_checkpoint(read_json(config))
    except (OSError, ValueError):
        return False


def _has_writer(weights: Path) -> bool:
    try:
        check_input(weights)
        with safe_open(weights, framework="pt") as opened:
            return WRITER in (opened.metadata() or {})
    except (OSError, ValueError, SafetensorError):
        return False


def described_model(file: Path) -> str:
    """Return the record of the model beside the weights' file, as config.json has it."""
    try:
        return json.dumps(read_json(file.with_name(CONFIG))["model"])
    except (OSError, ValueError, KeyError, RecursionError) as problem:
        raise DamagedFile(
            f"{file} was not written by toeplix: its metadata has no 'model', nor has {CONFIG}"
        ) from problem


def check_agreement(file: Path, config: Model, metadata: Mapping[str, str]) -> None:
    """Check config.json and the tokenizer, where they exist, against the metadata of the weights."""
    beside = file.with_name(CONFIG)
    if "model" in metadata and beside.exists():
        found = read_json(
            beside,
            f"delete it, or write it again with toeplix.save(..., overwrite=True): {file} is whole",
        )
        record, wanted = found.get("model"), dataclasses.asdict(config)
        # a version that knows fewer settings wrote fewer
        if not isinstance(record, dict) or wanted | compat.model_record(record) != wanted:
            raise DamagedFile(
                f"{beside} is damaged: its 'model' is not the one in {WEIGHTS}; "
                "delete it, or write both again with toeplix.save(..., overwrite=True)"
            )
    if "tokenizer" not in metadata:
        return
    known = parse_json(metadata["tokenizer"])
    remedy = (
        "copy it again from where it came; if it was changed on purpose, "
        "toeplix.save(toeplix.load(directory, check=False), directory) accepts it"
    )
    if (tokens := file.with_name(TOKENS)).exists() and sha256(tokens) != known.get(TOKENS):
        raise DamagedFile(
            f"{tokens} is not the tokenizer that the model was trained with: its sha256 disagrees; "
            f"{remedy}"
        )
    if (described := file.with_name(TOKENIZER_CONFIG)).exists():
        record = read_json(described, remedy)
        for name in CONTROL:
            if record.get(name) != known.get(name):
                raise DamagedFile(
                    f"{described} is not of the model's tokenizer: {name} is "
                    f"{printable(record.get(name))[:80]}, not {printable(known.get(name))[:80]}; {remedy}"
                )


def tokenizer_identity(folder: Path) -> dict[str, Any]:
    """Return what names a tokenizer: its vocabulary and control tokens. A chat template may change."""
    described = read_json(folder / TOKENIZER_CONFIG)
    return {TOKENS: sha256(folder / TOKENS)} | {name: described.get(name) for name in CONTROL}
