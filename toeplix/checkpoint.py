"""Checkpoints: safetensors, with the configuration inside the same file, and a config.json to read.

The weights' file is the truth: it carries the `Model` record and the version that wrote it in its
metadata, and it is replaced in one step, so a checkpoint is complete or absent. It carries its own
checksum too (tensors.py), and what names the tokenizer beside it; `load` compares both, and
config.json with the record. Nothing is ever unpickled. Directories that `save_pretrained` wrote
(`toeplix.hub`) have the record in config.json only and no checksum, and are loaded too.
"""

import dataclasses
import functools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from toeplix import compat
from toeplix.architectures import build, stored_numbers
from toeplix.config import Model
from toeplix.files import (
    DamagedFile,
    ensure_directory,
    parse_json,
    printable,
    read_json,
    replace_file,
    sha256,
)
from toeplix.files.tensors import read_file, save_file
from toeplix.model import LanguageModel

WEIGHTS, CONFIG = "model.safetensors", "config.json"
TOKENS, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
CONTROL = ("bos_token", "eos_token", "pad_token")
PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SINES = ".filter."  # Hyena's network of sines: never below float32, whatever the rest is in
MAX_SHOWN_NAMES = 5  # names in a message
# numbers that a model may have beyond four times its file, to say what is missing
SPARE_NUMBERS = 2**16


def save(
    model: LanguageModel, directory: str | Path, *, tokenizer: str | Path | None = None
) -> Path:
    """Write weights and configuration; other files in the directory are left alone.

    Args:
        model: any architecture.
        directory: made if it is missing.
        tokenizer: directory of a tokenizer that belongs to the model, and is copied beside it.
    """
    from toeplix import __version__

    folder = Path(directory)
    record = dataclasses.asdict(model.config)
    metadata = {"toeplix": __version__, "model": json.dumps(record), "format": "pt"}
    described = {"model_type": "toeplix", "toeplix_version": __version__, "model": record}
    text = json.dumps(described, indent=2) + "\n"
    with ensure_directory(folder):
        if tokenizer is not None:
            metadata["tokenizer"] = json.dumps(_tokenizer(Path(tokenizer)))
            for file in sorted(Path(tokenizer).iterdir()):
                replace_file(folder / file.name, functools.partial(shutil.copyfile, file))
        weights = own(model)
        replace_file(folder / WEIGHTS, lambda aside: save_file(weights, aside, metadata=metadata))
        replace_file(folder / CONFIG, lambda aside: aside.write_text(text, encoding="utf-8"))
    return folder


def load(directory: str | Path, *, check: bool = True) -> LanguageModel:
    """The model of a checkpoint, ready to evaluate.

    Args:
        directory: what `save` wrote, or `save_pretrained`.
        check: compare weights, configuration and tokenizer with what the weights' file knows of them.
    """
    file = Path(directory) / WEIGHTS
    if file.with_name(f"{WEIGHTS}.index.json").exists():
        raise ValueError(
            f"{directory} is split into several files, which load does not read: "
            "save_pretrained(..., max_shard_size=...) writes one if it is large enough"
        )
    if not file.exists():
        raise FileNotFoundError(f"{directory} is no checkpoint: there is no {WEIGHTS} in it")
    weights, metadata = contents(file, check=check)
    config = configured(metadata["model"] if "model" in metadata else _described(file), file)
    if check:
        _agree(file, config, metadata)
    bounded(stored_numbers(config), weights, file)
    model = build(config)
    fill(model, weights, file)
    return model.eval()


def contents(file: Path, *, check: bool = True) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Weights and metadata of a safetensors file; weights are numbers that a model can have."""
    weights, metadata = read_file(file, check=check)
    for name, value in weights.items():
        if value.dtype not in PRECISIONS:
            kinds = ", ".join(str(each).removeprefix("torch.") for each in PRECISIONS)
            raise DamagedFile(
                f"{file} is damaged: {printable(name)[:80]} is of type "
                f"{str(value.dtype).removeprefix('torch.')}, weights are one of {kinds}"
            )
    return weights, metadata


def bounded(count: int, weights: Mapping[str, torch.Tensor], file: object) -> None:
    """Refuse a record whose model is far larger than the file, before anything of it is built."""
    there = sum(value.numel() for value in weights.values())
    if count > 4 * there + SPARE_NUMBERS:
        raise DamagedFile(
            f"{file} does not fit its configuration: a model of these sizes has {count:,} numbers, "
            f"the file {there:,}"
        )


def fill(model: torch.nn.Module, weights: Mapping[str, torch.Tensor], source: object) -> None:
    """Copy weights into a model, which takes their precision; all of them have to fit.

    Of several precisions it takes the widest: layers of one model multiply each other's results.
    """
    _compare({name: value.shape for name, value in own(model).items()}, weights, source)
    kinds = {value.dtype for name, value in weights.items() if SINES not in name}
    widest = functools.reduce(torch.promote_types, kinds or {torch.float32})
    for name, value in model.state_dict(keep_vars=True).items():
        if name in weights:  # a model in half precision comes back in it
            dtype = widest
            if SINES in name:
                dtype = torch.promote_types(weights[name].dtype, torch.float32)
            value.data = value.data.to(dtype)
    model.load_state_dict(weights, strict=False)


def require_numbers(model: torch.nn.Module, source: object) -> None:
    """Refuse weights that are infinite or no numbers: whatever they compute is worth nothing."""
    for name, value in own(model).items():
        if not bool(torch.isfinite(value.sum(dtype=torch.float64))):
            raise DamagedFile(
                f"{source} is damaged: {name} has values that are infinite or not a number; "
                "take an earlier checkpoint of the run"
            )


def configured(text: str, file: Path) -> Model:
    """A `Model` from its fields; fields of a newer version are named."""
    try:
        record = compat.model_record(parse_json(text))
        known = {field.name for field in dataclasses.fields(Model)}
        if unknown := sorted(set(record) - known):
            names = ", ".join(printable(name)[:40] for name in unknown[:MAX_SHOWN_NAMES])
            raise ValueError(f"settings unknown to this version: {names}")
        return Model(**record)
    except (TypeError, ValueError) as problem:
        raise DamagedFile(f"{file} has a bad configuration: {problem}") from problem


def _described(file: Path) -> str:
    """The record as config.json has it."""
    try:
        return json.dumps(read_json(file.with_name(CONFIG))["model"])
    except (OSError, ValueError, KeyError, RecursionError) as problem:
        raise DamagedFile(
            f"{file} was not written by toeplix: its metadata has no 'model', nor has {CONFIG}"
        ) from problem


def _agree(file: Path, config: Model, metadata: Mapping[str, str]) -> None:
    """What lies beside the weights is what was written with them, as far as it is there."""
    beside = file.with_name(CONFIG)
    if "model" in metadata and beside.exists():
        found = read_json(
            beside, f"delete it, or write it again with toeplix.save: {file} is whole"
        )
        record, wanted = found.get("model"), dataclasses.asdict(config)
        # a version that knows fewer settings wrote fewer
        if not isinstance(record, dict) or wanted | compat.model_record(record) != wanted:
            raise DamagedFile(
                f"{beside} is damaged: its 'model' is not the one in {WEIGHTS}; "
                "delete it, or write both again with toeplix.save"
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


def _tokenizer(folder: Path) -> dict[str, Any]:
    """What names a tokenizer: its vocabulary, and its control tokens. A chat template may change."""
    described = read_json(folder / TOKENIZER_CONFIG)
    return {TOKENS: sha256(folder / TOKENS)} | {name: described.get(name) for name in CONTROL}


def own(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Weights and buffers, those that go by several names (tied ones) under the first."""
    state = model.state_dict()
    shared = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    shared -= {name for name, _ in model.named_parameters()}
    return {name: value for name, value in state.items() if name not in shared}


def _compare(
    expected: dict[str, torch.Size], weights: Mapping[str, torch.Tensor], file: object
) -> None:
    missing, extra = sorted(set(expected) - set(weights)), sorted(set(weights) - set(expected))
    if missing or extra:
        raise DamagedFile(
            f"{file} does not fit its configuration: missing {_names(missing)}, "
            f"unexpected {_names(extra)}"
        )
    for name, shape in expected.items():
        if weights[name].shape != shape:
            raise DamagedFile(f"{file}: {name} is {tuple(weights[name].shape)}, not {tuple(shape)}")


def _names(found: list[str]) -> str:
    if not found:
        return "nothing"
    more = f" and {len(found) - MAX_SHOWN_NAMES} more" if len(found) > MAX_SHOWN_NAMES else ""
    return f"{[printable(name)[:80] for name in found[:MAX_SHOWN_NAMES]]}{more}"
