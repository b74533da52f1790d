"""Checkpoints: safetensors, with the configuration inside the same file, and a config.json to read.

The weights' file is the truth: it carries the `Model` record and the version that wrote it in its
metadata, and it is replaced in one step, so a checkpoint is complete or absent. Nothing is ever
unpickled. Directories that `save_pretrained` wrote (`toeplix.hub`) have the record in config.json only,
and are loaded too.
"""

import dataclasses
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from toeplix.architectures import build
from toeplix.config import Model
from toeplix.files import replace_file
from toeplix.model import LanguageModel

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save(model: LanguageModel, directory: str | Path) -> Path:
    """Write weights and configuration; other files in the directory are left alone."""
    from toeplix import __version__

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    record = dataclasses.asdict(model.config)
    weights = {name: value.contiguous() for name, value in own(model).items()}
    metadata = {"toeplix": __version__, "model": json.dumps(record), "format": "pt"}
    replace_file(folder / WEIGHTS, lambda aside: save_file(weights, aside, metadata=metadata))
    described = {"model_type": "toeplix", "toeplix_version": __version__, "model": record}
    text = json.dumps(described, indent=2) + "\n"
    replace_file(folder / CONFIG, lambda aside: aside.write_text(text))
    return folder


def load(directory: str | Path) -> LanguageModel:
    """The model of a checkpoint, ready to evaluate."""
    file = Path(directory) / WEIGHTS
    if file.with_name(f"{WEIGHTS}.index.json").exists():
        raise ValueError(
            f"{directory} is split into several files, which load does not read: "
            "save_pretrained(..., max_shard_size=...) writes one if it is large enough"
        )
    if not file.exists():
        raise FileNotFoundError(f"{directory} is no checkpoint: there is no {WEIGHTS} in it")
    weights, metadata = contents(file)
    text = metadata["model"] if "model" in metadata else _described(file)
    model = build(_config(text, file))
    fill(model, weights, file)
    return model.eval()


def contents(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Weights and metadata of a safetensors file."""
    try:
        with safe_open(file, framework="pt") as opened:
            weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a dict
            return weights, opened.metadata() or {}
    except SafetensorError as problem:
        raise ValueError(f"{file} is damaged: {problem}") from problem


def fill(model: torch.nn.Module, weights: dict[str, torch.Tensor], source: object) -> None:
    """Copy weights into a model, which takes their precision; all of them have to fit."""
    _compare({name: value.shape for name, value in own(model).items()}, weights, source)
    for name, value in model.state_dict(keep_vars=True).items():
        if name in weights:  # a model in half precision comes back in it
            value.data = value.data.to(weights[name].dtype)
    model.load_state_dict(weights, strict=False)


def _described(file: Path) -> str:
    """The record as config.json has it."""
    try:
        record = json.loads(file.with_name(CONFIG).read_text())["model"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ValueError(
            f"{file} was not written by toeplix: its metadata has no 'model', nor has {CONFIG}"
        ) from problem
    return json.dumps(record)


def _config(text: str, file: Path) -> Model:
    """A `Model` from its fields; fields of a newer version are named."""
    try:
        record = json.loads(text)
        if not isinstance(record, dict):
            raise TypeError(f"a record was expected, not {text[:40]}")
        known = {field.name for field in dataclasses.fields(Model)}
        if unknown := sorted(set(record) - known):
            raise ValueError(f"settings unknown to this version: {', '.join(unknown)}")
        return Model(**record)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"{file} has a bad configuration: {problem}") from problem


def own(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Weights and buffers, those that go by several names (tied ones) under the first."""
    state = model.state_dict()
    shared = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    shared -= {name for name, _ in model.named_parameters()}
    return {name: value for name, value in state.items() if name not in shared}


def _compare(
    expected: dict[str, torch.Size], weights: dict[str, torch.Tensor], file: object
) -> None:
    missing, extra = sorted(set(expected) - set(weights)), sorted(set(weights) - set(expected))
    if missing or extra:
        raise ValueError(
            f"{file} does not fit its configuration: missing {missing or 'nothing'}, "
            f"unexpected {extra or 'nothing'}"
        )
    for name, shape in expected.items():
        if weights[name].shape != shape:
            raise ValueError(f"{file}: {name} is {tuple(weights[name].shape)}, not {tuple(shape)}")
