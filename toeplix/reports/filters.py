"""The Toeplitz filters of a module, of a dict of weights, or of a checkpoint on disk.

Filters are found by the names of their parameters, in any model:

    filters.NUMBER.kernel                     (h, k, n)                     free
    filters.NUMBER.free, .weights, .decays    (h, short), (h, r), (r,)      recurrent
    token_mixer.kernel                        (h, n)                        free, of a lookup block
    token_mixer.weights, .decays              (h, r), (r,)                  recurrent, of a lookup block

A checkpoint is a directory with safetensors (one file, or several with an index), or a run with a
checkpoint in `model/`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from toeplix import compat
from toeplix.files import DamagedFile, parse_json, read_json, reading
from toeplix.files.tensors import verify
from toeplix.inference.loading import model_directory
from toeplix.mixers.recurrent import amplitudes
from toeplix.spectral.rational import RationalFilter

FILTER = re.compile(
    r"^(?P<layer>.*?)(\.?token_mixer)?\.?filters\.(?P<part>\d{1,9})\.(?P<field>kernel|free|weights|decays)$"
)
LOOKUP = re.compile(r"^(?P<layer>.*?)\.?token_mixer\.(?P<field>kernel|free|weights|decays)$")
WEIGHTS = "model.safetensors"
INITIAL = {"random": "kaiming", "ones": "ones"}  # initialisations by the value of `frozen`
DEFAULT_SECTION, MAX_SECTION = 512, 2**16  # taps of a recurrent filter that are shown


class Recurrent(NamedTuple):
    """The parameters of recurrent filters, one for each head: see `toeplix.spectral.rational`."""

    free: Float[Tensor, "h short"]
    weights: Float[Tensor, "h r"]
    decays: Float[Tensor, "h r"]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The filters of one layer, (h, k, n): all taps of free filters, or the first n of recurrent ones."""

    name: str
    kernel: Tensor
    recurrent: Recurrent | None = None
    start: str | None = (
        None  # initialisation, where it does not depend on the settings of the model
    )

    @property
    def kind(self) -> str:
        return "free" if self.recurrent is None else "recurrent"

    def filters(self) -> Iterator[tuple[str, int, int, Tensor]]:
        """Yield name, head, number among the kernels of the head, and taps of each filter."""
        heads, kernels, _ = self.kernel.shape
        for head in range(heads):
            for number in range(kernels):
                name = self.name
                name += f", head {head}" if heads > 1 else ""
                name += f", kernel {number}" if kernels > 1 else ""
                yield name, head, number, self.kernel[head, number]

    def exact(self, head: int, number: int, name: str) -> Tensor | RationalFilter:
        """Return a filter at all of its lags; ValueError, with its name, if it is not finite or zero."""
        if self.recurrent is None:
            return self.kernel[head, number]
        free, weights, decays = (value[head] for value in self.recurrent)
        return RationalFilter(free=free, weights=weights, decays=decays, name=name)


def layers(source: nn.Module | Mapping[str, Tensor], section: int = DEFAULT_SECTION) -> list[Layer]:
    """Return the layers with Toeplitz filters in the order of the model; empty if there are none.

    `section` is the number of taps of recurrent filters in `Layer.kernel`.
    """
    weights = source.state_dict() if isinstance(source, nn.Module) else source
    groups: dict[str, dict[str, Tensor]] = {}
    names: dict[
        str, tuple[str, int | None]
    ] = {}  # layer, and number of its filter, None for lookup
    for name, value in weights.items():
        match = FILTER.match(name) or LOOKUP.match(name)
        if match and value.is_floating_point():
            prefix, field = name[: -len(match["field"])], match["field"]
            groups.setdefault(prefix, {})[field] = value.detach()
            part = match.groupdict().get("part")
            names[prefix] = (match["layer"], None if part is None else int(part))
    several = {part for _, part in names.values()} - {None, 0}
    found = []
    for prefix in sorted(groups, key=_order):
        layer, part = names[prefix]
        parts = [layer or ("lookup" if part is None else "filters")]
        parts += ["lookup"] if part is None and layer else []
        parts += [f"filter {part}"] if part is not None and several else []
        kept = _layer(", ".join(parts), prefix, groups[prefix], section, lookup=part is None)
        found += [] if kept is None else [kept]
    return found


def _layer(
    name: str, prefix: str, fields: Mapping[str, Tensor], section: int, *, lookup: bool
) -> Layer | None:
    """Return the filters with these parameters; None if they are parameters of something else."""
    if "kernel" in fields:
        kernel = fields["kernel"].unsqueeze(1) if lookup else fields["kernel"]
        start = "ones" if lookup else None
        return Layer(name=name, kernel=kernel, start=start) if kernel.ndim == 3 else None
    if lookup and "decays" not in fields:
        return None
    missing = [field for field in ("weights", "decays") if field not in fields]
    if missing:
        raise ValueError(
            f"{prefix}* has {' and '.join(sorted(fields))} but no {' and '.join(missing)}: "
            "recurrent filters have weights (h, r) and decays (r,)"
        )
    weights, decays = fields["weights"], fields["decays"]
    free = fields.get("free", weights.new_zeros(len(weights) if weights.ndim else 0, 0))
    shapes = [tuple(value.shape) for value in (free, weights, decays)]
    if [len(shape) for shape in shapes] != [2, 2, 1] or (
        shapes[0][0] != shapes[1][0] or shapes[1][1] != shapes[2][0]
    ):
        raise ValueError(
            f"{prefix}* has free {shapes[0]}, weights {shapes[1]} and decays {shapes[2]}: "
            "recurrent filters have free (h, short), weights (h, r) and decays (r,)"
        )
    if not bool(((decays >= 0) & (decays <= 1)).all()):
        raise ValueError(f"{prefix}decays must be in [0, 1], got {decays.tolist()}")
    found = Recurrent(
        free.double(), amplitudes(weights.double(), decays), decays.double().expand_as(weights)
    )
    kernel = _first_taps(found, section)[:, None]
    # they start as decaying taps, or in lookup blocks as one decay: index 0 in both cases
    return Layer(name=name, kernel=kernel, recurrent=found, start="decay")


def _first_taps(found: Recurrent, count: int) -> Tensor:
    """Return the taps at the lags 0 ... count - 1, (h, count), whether they are finite or not."""
    powers = found.decays[..., None] ** torch.arange(count, dtype=torch.float64)
    taps = (found.weights[..., None] * powers).sum(1)
    short = min(count, found.free.shape[1])
    taps[:, :short] += found.free[:, :short]
    return taps


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
                        if FILTER.match(name) or LOOKUP.match(name):
                            weights[name] = _taps(opened.get_tensor(name), f"{file}: {name}")
            except SafetensorError as problem:
                raise DamagedFile(f"{file} is damaged: {problem}") from problem
            if "model" in metadata:
                config = compat.model_record(parse_json(metadata["model"]))
    try:
        found = layers(weights, _section(config))
    except ValueError as problem:
        raise DamagedFile(f"{directory}: {problem}") from problem
    if not found:
        arch = f" (its architecture is {config['arch']})" if "arch" in config else ""
        raise ValueError(f"{directory} has no Toeplitz filters{arch}")
    return found, config


def _section(config: Mapping[str, Any]) -> int:
    """Return the context of a model: recurrent filters are defined at every lag, matrices are not."""
    context = config.get("context")
    known = isinstance(context, int) and context > 0
    return min(int(context), MAX_SECTION) if known and context else DEFAULT_SECTION


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
