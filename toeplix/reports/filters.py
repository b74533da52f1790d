"""The Toeplitz filters of a module, of a dict of weights, or of a checkpoint on disk.

The filters of a layer are a tensor (h, k, n) under a name that ends in `filters.NUMBER.kernel`, in any
model. A checkpoint is a directory with safetensors (one file, or several with an index), or a run with a
checkpoint in `model/`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from toeplix import compat
from toeplix.files import DamagedFile, parse_json, read_json, reading
from toeplix.files.tensors import verify
from toeplix.inference.loading import model_directory

KERNEL = re.compile(r"^(?P<layer>.*?)(\.?token_mixer)?\.?filters\.(?P<part>\d{1,9})\.kernel$")
WEIGHTS = "model.safetensors"
INITIAL = {"random": "kaiming", "ones": "ones"}  # initialisations by the value of `frozen`


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The filters of one Toeplitz layer, (h, k, n)."""

    name: str
    kernel: Tensor

    def filters(self) -> Iterator[tuple[str, int, int, Tensor]]:
        """Yield name, head, number among the kernels of the head, and taps of each filter."""
        heads, kernels, _ = self.kernel.shape
        for head in range(heads):
            for number in range(kernels):
                name = self.name
                name += f", head {head}" if heads > 1 else ""
                name += f", kernel {number}" if kernels > 1 else ""
                yield name, head, number, self.kernel[head, number]


def layers(source: nn.Module | Mapping[str, Tensor]) -> list[Layer]:
    """Return the Toeplitz layers in the order of the model; an empty list if there are none."""
    weights = source.state_dict() if isinstance(source, nn.Module) else source
    found = []
    for name, value in weights.items():
        match = KERNEL.match(name)
        if match and value.ndim == 3 and value.is_floating_point():
            found.append((_order(name), match["layer"] or "filters", int(match["part"]), value))
    several = {part for _, _, part, _ in found} != {0}
    return [
        Layer(name=f"{layer}, filter {part}" if several else layer, kernel=value.detach())
        for _, layer, part, value in sorted(found, key=lambda entry: entry[0])
    ]


def _order(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key that orders numbers in names by value: blocks.2 before blocks.10."""
    parts = re.split(r"[.]", name)
    numbers = [part.isdecimal() and len(part) < 10 for part in parts]
    return [
        (is_number, int(part) if is_number else 0, part)
        for is_number, part in zip(numbers, parts, strict=True)
    ]


def read(directory: str | Path) -> tuple[list[Layer], dict[str, Any]]:
    """Return the Toeplitz layers of a checkpoint, and its configuration (empty if there is none)."""
    folder = Path(directory)
    if not folder.exists():
        raise FileNotFoundError(f"there is no {folder}")
    folder = model_directory(folder)
    files = sorted(folder.glob("model*.safetensors")) if folder.is_dir() else []
    if not files:
        raise FileNotFoundError(f"{directory} is no checkpoint: there is no {WEIGHTS} in it")
    weights: dict[str, Tensor] = {}
    config = _config(folder)
    for file in files:
        with reading(file, "copy it again from where it came"):
            try:
                with safe_open(file, framework="pt") as opened:
                    metadata = opened.metadata() or {}
                    verify(file, metadata)
                    for name in opened.keys():  # noqa: SIM118 - not a dict
                        if KERNEL.match(name):
                            weights[name] = _taps(opened.get_tensor(name), f"{file}: {name}")
            except SafetensorError as problem:
                raise DamagedFile(f"{file} is damaged: {problem}") from problem
            if "model" in metadata:
                config = compat.model_record(parse_json(metadata["model"]))
    found = layers(weights)
    if not found:
        arch = f" (its architecture is {config['arch']})" if "arch" in config else ""
        raise ValueError(f"{directory} has no Toeplitz filters{arch}")
    return found, config


def _taps(kernel: Tensor, where: str) -> Tensor:
    """Return the filters of a layer, half precision as float32; raise DamagedFile if invalid."""
    if not kernel.is_floating_point() or not kernel.numel():
        raise DamagedFile(f"{where} is no filter, but {kernel.dtype} of {tuple(kernel.shape)}")
    return kernel if kernel.element_size() >= 4 else kernel.float()


def _config(folder: Path) -> dict[str, Any]:
    try:
        described = read_json(folder / "config.json")
    except (OSError, DamagedFile):
        return {}
    record = described.get("model", described)
    return compat.model_record(record) if isinstance(record, dict) else {}


def initialisation(config: Mapping[str, Any]) -> str:
    """How the filters of such a model start; the paper's noise where nothing is known."""
    frozen, start = (config.get(name) for name in ("frozen", "filter_init"))
    return INITIAL.get(str(frozen), start if isinstance(start, str) else "kaiming")
