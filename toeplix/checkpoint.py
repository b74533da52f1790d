"""Checkpoints: safetensors, with the configuration inside the same file, and a config.json to read.

The weights' file is the truth: it carries the `Model` record and the version that wrote it in its
metadata, and it is replaced in one step, so a checkpoint is complete or absent. It carries its own
checksum too (tensors.py), and what names the tokenizer beside it; `load` compares both, and
config.json with the record. Other files beside it are for Hugging Face's classes (pretrained_files.py,
model_card.py). Nothing is ever unpickled. A quantized model (mixers/quantized.py) is saved with its
scheme in the metadata and comes back quantized, for inference only. Directories that `save_pretrained`
wrote (`toeplix.hub`) have the record in config.json only and no checksum, and are loaded too.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from toeplix import compat, pretrained_files
from toeplix.architectures import ARCHITECTURES, build, stored_numbers
from toeplix.checkpoint_files import CONFIG as CONFIG
from toeplix.checkpoint_files import (
    VERSION,
    WRITER,
    check_agreement,
    check_replaceable,
    described_model,
    tokenizer_identity,
)
from toeplix.checkpoint_files import WEIGHTS as WEIGHTS
from toeplix.checkpoint_files import is_checkpoint as is_checkpoint
from toeplix.config import Model
from toeplix.files import (
    DamagedFile,
    ensure_directory,
    parse_json,
    printable,
    reading,
    replace_file,
)
from toeplix.files.tensors import read_file, save_file
from toeplix.mixers.quantized import quantization_of, quantize
from toeplix.model import LanguageModel
from toeplix.model_card import Trained, write_card

PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# never below float32, whatever the rest is in: Hyena's network of sines, the decays of recurrent filters
PRECISE = (".filter.", ".decays")
MAX_SHOWN_NAMES = 5  # names in a message
QUANTIZATION = "quantization"  # in the metadata, where weights are quantized: its scheme
# numbers that a model may have beyond four times its file, to say what is missing
SPARE_NUMBERS = 2**16


def save(
    model: LanguageModel,
    directory: str | Path,
    *,
    tokenizer: str | Path | None = None,
    trained: Trained | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a directory that `load` and Hugging Face's Auto classes read.

    An earlier checkpoint and its tokenizer are replaced: a directory whose config.json toeplix wrote.
    Files of another origin are left alone; where one is in the way, and in a token store,
    FileExistsError is raised and nothing is written.

    Args:
        model: any architecture.
        directory: made if it is missing.
        tokenizer: directory of a tokenizer that belongs to the model, and is copied beside it.
        trained: how the model was trained, for its card.
        overwrite: replace weights, configuration and tokenizer of another origin, too.
    """
    folder, config = Path(directory), model.config
    described = _description(model)
    kind = described["model_type"]
    files: dict[str, bytes] = {}
    numbers: dict[str, int] | None = None
    if tokenizer is not None:
        files, numbers = pretrained_files.tokenizer_files(Path(tokenizer), config.context)
    if not overwrite:
        check_replaceable(folder, files, folder if tokenizer is None else Path(tokenizer))
    with ensure_directory(folder):
        pretrained_files.check_code(folder, kind)
        metadata = {}
        for name, data in files.items():
            replace_file(folder / name, functools.partial(_write_bytes, data))
        if tokenizer is not None:
            metadata["tokenizer"] = json.dumps(tokenizer_identity(folder))
        if numbers is None:
            numbers = pretrained_files.known_numbers(folder)
        ids = pretrained_files.token_ids(numbers, config.vocab)
        if tokenizer is None or pretrained_files.GENERATION_CONFIG not in files:
            pretrained_files.write_generation_config(folder, ids, described[VERSION])
        if kind in pretrained_files.CODE:
            pretrained_files.write_code(folder, kind)
            described["auto_map"] = pretrained_files.AUTO_MAPS[kind]
            described["how_to_load"] = pretrained_files.HOW_TO_LOAD
        write_card(folder, config, described, trained)
        _write(model, folder, metadata, described | ids)
    return folder


def save_weights(model: LanguageModel, directory: str | Path) -> Path:
    """Write weights and configuration alone, for `load` and to go on training."""
    folder = Path(directory)
    with ensure_directory(folder):
        _write(model, folder, {}, _description(model))
    return folder


def _description(model: LanguageModel) -> dict[str, Any]:
    """Return config.json: what Hugging Face's classes need, and the record."""
    from toeplix import __version__

    described = model.pretrained_config()
    if (scheme := quantization_of(model)) is not None:
        # transformers rejects a type that it does not know, instead of reading integers as weights
        notice = pretrained_files.quantized_notice(scheme)
        described = {"model_type": f"toeplix-{scheme}", "how_to_load": notice}
    return described | {VERSION: __version__, "model": dataclasses.asdict(model.config)}


def _write(
    model: LanguageModel, folder: Path, more: dict[str, str], described: dict[str, Any]
) -> None:
    metadata = {WRITER: described[VERSION], "model": json.dumps(described["model"]), **more}
    metadata["format"] = "pt"
    if (scheme := quantization_of(model)) is not None:
        metadata[QUANTIZATION] = scheme
    text = json.dumps(described, indent=2) + "\n"
    weights = stored(own(model), model.config)
    replace_file(folder / WEIGHTS, lambda aside: save_file(weights, aside, metadata=metadata))
    replace_file(folder / CONFIG, lambda aside: aside.write_text(text, encoding="utf-8"))


def _write_bytes(data: bytes, file: Path) -> None:
    file.write_bytes(data)


def stored(weights: Mapping[str, torch.Tensor], config: Model) -> dict[str, torch.Tensor]:
    """Return weights under the names that they have in a file."""
    return _renamed(weights, ARCHITECTURES[config.arch].stored_prefixes)


def restored(weights: Mapping[str, torch.Tensor], config: Model) -> dict[str, torch.Tensor]:
    """Return weights of a file under the names that they have in the model, also those of old files."""
    prefixes = ARCHITECTURES[config.arch].stored_prefixes
    return _renamed(weights, {there: here for here, there in prefixes.items()})


def _renamed(
    weights: Mapping[str, torch.Tensor], prefixes: Mapping[str, str]
) -> dict[str, torch.Tensor]:
    found = {}
    for name, value in weights.items():
        old = next((each for each in prefixes if name.startswith(each)), "")
        found[prefixes.get(old, "") + name.removeprefix(old)] = value
    return found


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
        raise FileNotFoundError(pretrained_files.why_missing(Path(directory), WEIGHTS))
    weights, metadata = contents(file, check=check, quantized=True)
    config = configured(metadata["model"] if "model" in metadata else described_model(file), file)
    if check:
        check_agreement(file, config, metadata)
    bounded(stored_numbers(config), weights, file)
    weights = restored(weights, config)
    model = build(config)
    if QUANTIZATION in metadata:
        with reading(file, "it may be of a newer version of toeplix"):
            quantize(model, metadata[QUANTIZATION])
        _fill_quantized(model, weights, file)
    else:
        fill(model, weights, file)
    return model.eval()


def contents(
    file: Path, *, check: bool = True, quantized: bool = False
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Weights and metadata of a safetensors file; weights are numbers that a model can have.

    Quantized weights are for `load`; everybody else, such as training, needs the numbers themselves.
    """
    weights, metadata = read_file(file, check=check)
    if QUANTIZATION in metadata and not quantized:
        raise ValueError(
            f"{file} has weights in {printable(metadata[QUANTIZATION])[:40]}, which generate, serve, "
            "eval and toeplix.load read: give the float32 checkpoint that it was made from"
        )
    for name, value in weights.items():
        if value.dtype not in PRECISIONS and QUANTIZATION not in metadata:
            kinds = ", ".join(str(each).removeprefix("torch.") for each in PRECISIONS)
            raise DamagedFile(
                f"{file} is damaged: {printable(name)[:80]} is of type "
                f"{str(value.dtype).removeprefix('torch.')}, weights are one of {kinds}"
            )
    return weights, metadata


def bounded(count: int, weights: Mapping[str, torch.Tensor], file: object) -> None:
    """Reject a record whose model is far larger than the file, before anything of it is built."""
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
    kinds = {value.dtype for name, value in weights.items() if not _precise(name)}
    widest = functools.reduce(torch.promote_types, kinds or {torch.float32})
    for name, value in model.state_dict(keep_vars=True).items():
        if name in weights:  # a model in half precision comes back in it
            dtype = widest
            if _precise(name):
                dtype = torch.promote_types(weights[name].dtype, torch.float32)
            value.data = value.data.to(dtype)
    model.load_state_dict(weights, strict=False)


def _fill_quantized(
    model: torch.nn.Module, weights: Mapping[str, torch.Tensor], source: object
) -> None:
    """Copy quantized weights into a model that was quantized likewise; types have to agree too.

    The model takes the precision in which the file has all that is not quantized.
    """
    _compare({name: value.shape for name, value in own(model).items()}, weights, source)
    around = {weights[name].dtype for name, _ in model.named_parameters() if not _precise(name)}
    if len(around) == 1 and around <= set(PRECISIONS):
        model.to(dtype=around.pop())
    for name, value in own(model).items():
        if weights[name].dtype != value.dtype:
            kinds = [
                str(kind).removeprefix("torch.") for kind in (weights[name].dtype, value.dtype)
            ]
            raise DamagedFile(f"{source} is damaged: {name} is of type {kinds[0]}, not {kinds[1]}")
    model.load_state_dict(weights, strict=False)


def _precise(name: str) -> bool:
    return any(part in name for part in PRECISE)


def require_numbers(model: torch.nn.Module, source: object) -> None:
    """Raise DamagedFile if a weight is infinite or not a number."""
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
