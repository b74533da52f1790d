"""Checkpoints of the paper's research code, converted to ours: `toeplix import FILE DIR`.

Sizes are read off the shapes; what architecture it is, off the names. Every weight of the file must
find its place and every weight of the model its source, else the error names it.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from toeplix.architectures import build, stored_numbers
from toeplix.checkpoint import bounded, contents
from toeplix.config import Model
from toeplix.files import DamagedFile, reading
from toeplix.model import LanguageModel

LAYERS = ("0", "3")  # where two sequential Toeplitz layers stand in the original's nn.Sequential


class Source:
    """The weights of a file; remembers which of them were taken."""

    def __init__(self, file: Path, weights: dict[str, Tensor]) -> None:
        self.file, self.weights = file, weights
        self.left = set(weights)

    def take(self, name: str) -> Tensor:
        if name not in self.weights:
            raise ValueError(f"{self.file} has no {name!r}")
        self.left.discard(name)
        return self.weights[name]

    def shape(self, name: str) -> torch.Size:
        if name not in self.weights:
            raise ValueError(f"{self.file} has no {name!r}")
        return self.weights[name].shape

    def count(self, pattern: str) -> int:
        """One more than the largest number in the names that match, 0 if none does."""
        found = {match[1] for name in self.weights if (match := re.match(pattern, name))}
        if any(len(number) > 9 or int(number) >= len(self.weights) for number in found):
            largest = max(found, key=lambda number: (len(number), number))
            raise DamagedFile(
                f"{self.file} is damaged: number {largest[:20]} in the names of "
                f"{len(self.weights)} weights ({pattern})"
            )
        return max((int(number) + 1 for number in found), default=0)


def convert(file: str | Path) -> LanguageModel:
    """The model in a safetensors file of the research code."""
    path = Path(file)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    source = Source(path, contents(path)[0])
    for mark, read in READERS.items():
        if mark in source.weights:
            with reading(path, "is it of the paper's research code?"), _shaped(path):
                config, weights = read(source)
            break
    else:
        raise ValueError(f"{path} is of no known architecture: it has none of {', '.join(READERS)}")
    if source.left:
        raise ValueError(
            f"{path} has weights with no place in a {config.arch}: {sorted(source.left)}"
        )
    bounded(stored_numbers(config), weights, path)
    model = build(config)
    for name, value in model.state_dict().items():
        if name in weights and weights[name].shape != value.shape:
            raise ValueError(
                f"{path}: {name} would be {tuple(weights[name].shape)}, not {tuple(value.shape)}"
            )
    model.load_state_dict(weights, strict=False)
    return model.eval()


@contextlib.contextmanager
def _shaped(path: Path) -> Iterator[None]:
    """Tensors that cannot be put together, in one line."""
    try:
        yield
    except RuntimeError as problem:
        reason = str(problem).partition("\n")[0]
        raise DamagedFile(f"{path}: shapes do not fit each other: {reason}") from problem


def read_toeplitz(source: Source) -> tuple[Model, dict[str, Tensor]]:
    vocab, dim = source.shape("input_layer.weight")
    depth = source.count(r"mixer_blocks\.(\d+)\.")
    mixer = "mixer_blocks.0.token_mixing_layer."
    heads = source.count(re.escape(mixer) + r"mixer_heads\.(\d+)\.")
    first = mixer + ("mixer_heads.0." if heads else "")
    sequential = 2 if f"{first}{LAYERS[0]}.weight" in source.weights else 1
    parts = [f"{name}." for name in LAYERS] if sequential == 2 else [""]
    shape = source.shape(f"{first}{parts[0]}weight")
    if len(shape) != 2:
        raise ValueError(
            f"{source.file}: {first}{parts[0]}weight must be (kernels, taps), is {shape}"
        )
    kernels, context = shape
    hidden = source.shape("mixer_blocks.0.channel_mixing_layer.0.weight")[0]
    config = Model.paper(
        heads=heads,
        dim=dim,
        depth=depth,
        context=context,
        vocab=vocab,
        kernels=kernels,
        sequential=sequential,
        mlp_ratio=hidden // dim,
    )
    weights = {
        "embedding.weight": source.take("input_layer.weight"),
        "head.weight": source.take("output_layer.weight"),
    }
    for i in range(depth):
        ours, theirs = f"blocks.{i}.", f"mixer_blocks.{i}."
        _copy(source, weights, f"{theirs}channel_norm.", f"{ours}channel_norm.")
        _copy(source, weights, f"{theirs}token_norm.", f"{ours}token_norm.")
        for layer in ("0", "3"):
            names = (f"{theirs}channel_mixing_layer.{layer}.", f"{ours}channel_mixer.{layer}.")
            _copy(source, weights, *names)
        ours, theirs = f"{ours}token_mixer.", f"{theirs}token_mixing_layer."
        places = [f"{theirs}mixer_heads.{head}." for head in range(heads)] or [theirs]
        for index, part in enumerate(parts):
            filters = [source.take(f"{place}{part}weight") for place in places]
            biases = [source.take(f"{place}{part}bias") for place in places]
            weights[f"{ours}filters.{index}.kernel"] = torch.stack(filters)
            weights[f"{ours}filters.{index}.bias"] = torch.stack(biases).flatten(1)
        if heads:
            for kind in ("weight", "bias"):
                rows = [source.take(f"{theirs}proj_head.{head}.{kind}") for head in range(heads)]
                weights[f"{ours}project_in.{kind}"] = torch.cat(rows)
            _copy(source, weights, f"{theirs}out_proj.", f"{ours}project_out.")
    return config, weights


def read_hyena(source: Source) -> tuple[Model, dict[str, Tensor]]:
    vocab, dim = source.shape("wte.weight")
    depth = source.count(r"mixerblocks\.(\d+)\.")
    network = "mixerblocks.0.hyena.filter_fn."
    _, context, features = source.shape(f"{network}pos_emb.z")
    config = Model.paper(
        arch="hyena",
        dim=dim,
        depth=depth,
        context=context,
        vocab=vocab,
        filter_features=features,
        filter_hidden=source.shape(f"{network}implicit_filter.0.weight")[0],
        mlp_ratio=source.shape("mixerblocks.0.patch_ff.0.weight")[0] // dim,
    )
    weights = {
        "embedding.weight": source.take("wte.weight"),
        "head.weight": source.take("lm_head.weight"),
    }
    for i in range(depth):
        ours, theirs = f"blocks.{i}.", f"mixerblocks.{i}."
        _copy(source, weights, f"{theirs}seq_layernorm.", f"{ours}token_norm.")
        _copy(source, weights, f"{theirs}patch_layernorm.", f"{ours}channel_norm.")
        _copy(source, weights, f"{theirs}patch_ff.0.", f"{ours}channel_mixer.0.")
        _copy(source, weights, f"{theirs}patch_ff.2.", f"{ours}channel_mixer.3.")
        ours, theirs = f"{ours}token_mixer.", f"{theirs}hyena."
        for their, our in HYENA.items():
            _copy(source, weights, f"{theirs}{their}.", f"{ours}{our}.")
        weights[f"{ours}skip"] = source.take(f"{theirs}filter_fn.bias").flatten()
        ours, theirs = f"{ours}filter.", f"{theirs}filter_fn."
        weights[f"{ours}waves"] = source.take(f"{theirs}pos_emb.z")[0]
        weights[f"{ours}time"] = source.take(f"{theirs}pos_emb.t").flatten()
        weights[f"{ours}decay"] = source.take(f"{theirs}modulation.deltas").flatten().abs()
        for layer in ("0", "2", "4"):
            names = (f"{theirs}implicit_filter.{layer}.", f"{ours}network.{layer}.")
            _copy(source, weights, *names)
        weights[f"{ours}network.6.weight"] = source.take(f"{theirs}implicit_filter.6.weight")
        for layer in ("1", "3", "5"):  # one vector, under three names where all were saved
            name = f"{theirs}implicit_filter.{layer}.freq"
            if layer == "1" or name in source.weights:
                value = source.take(name).flatten()
                first = weights.setdefault(f"{ours}network.1.frequency", value)
                if not torch.equal(value, first):
                    raise ValueError(f"{source.file}: {name!r} differs from that of layer 1")
    return config, weights


HYENA = {"in_proj": "project_in", "out_proj": "project_out", "short_filter": "short"}

Reader = Callable[[Source], tuple[Model, dict[str, Tensor]]]
READERS: dict[str, Reader] = {"input_layer.weight": read_toeplitz, "wte.weight": read_hyena}


def _copy(source: Source, weights: dict[str, Tensor], theirs: str, ours: str) -> None:
    for kind in ("weight", "bias"):
        weights[ours + kind] = source.take(theirs + kind)
