"""The tensors of a checkpoint: names, shapes and counts, and histograms of their values.

The file is compared with its checksum once; a histogram reads one tensor again. Tensors are looked up by
the names of the header.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from toeplix.architectures import parameters
from toeplix.checkpoint import WEIGHTS, configured
from toeplix.files import printable, reading
from toeplix.files.tensors import verify

BINS = 41  # of a histogram: an odd number, so that one bin has 0 in its middle
MAX_COUNTED = 2**22  # values of a tensor in its histogram; of a larger one, evenly spaced values
MAX_TENSORS = 4096  # in the tree
MAX_HISTOGRAMS = 64  # in one response
REMEDY = "copy it again from where it came"


class Weights:
    """The header of a checkpoint's file of weights."""

    def __init__(self, checkpoint: Path) -> None:
        self._file = checkpoint / WEIGHTS
        with safe_open(self._file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            verify(self._file, metadata)
            parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            self._tensors = {
                printable(name): (name, part.get_shape(), part.get_dtype())
                for name, part in parts.items()
            }
        if len(self._tensors) > MAX_TENSORS:
            raise ValueError(f"{len(self._tensors)} tensors are too many: at most {MAX_TENSORS}")
        self._parameters = (
            parameters(configured(metadata["model"], self._file)) if "model" in metadata else None
        )

    def tree(self) -> dict[str, Any]:
        """Return every tensor with its shape, and the numbers of all of them together.

        `parameters` is the model's by the formula of its architecture, None for files without a record.
        `stored` counts buffers too (decays of recurrent filters, scales of quantized weights).
        """
        rows = [
            {"name": name, "shape": shape, "dtype": dtype, "numbers": _product(shape)}
            for name, (_, shape, dtype) in sorted(self._tensors.items(), key=_natural)
        ]
        stored = sum(row["numbers"] for row in rows)
        return {"tensors": rows, "stored": stored, "parameters": self._parameters}

    def histograms(self, part: str) -> list[dict[str, Any]]:
        """Return the histograms of one tensor, or of the first tensors of a module by its prefix."""
        chosen = [
            name
            for name, _ in sorted(self._tensors.items(), key=_natural)
            if name == part or name.startswith(f"{part}.")
        ]
        if not chosen:
            raise LookupError(f"there is no tensor or module {part[:200]!r}")
        found = []
        with reading(self._file, REMEDY), safe_open(self._file, framework="pt") as opened:
            for name in chosen[:MAX_HISTOGRAMS]:
                values = opened.get_tensor(self._tensors[name][0])
                found.append({"name": name, **histogram(values)})
        return found


def histogram(values: Tensor) -> dict[str, Any]:
    """Return counts in BINS equal bins from -limit to limit, with moments; only finite values count."""
    flat = values.detach().reshape(-1)
    counted = flat[:: -(-len(flat) // MAX_COUNTED)] if len(flat) > MAX_COUNTED else flat
    numbers = counted.to(torch.float64)
    finite = numbers[numbers.isfinite()]
    limit = float(finite.abs().max()) if len(finite) else 0.0
    edge = limit if limit > 0 else 1.0
    if len(finite):
        places = ((finite / edge + 1) / 2 * BINS).floor().clamp(0, BINS - 1).long()
    else:
        places = torch.zeros(0, dtype=torch.long)
    return {
        "shape": list(values.shape),
        "counts": torch.bincount(places, minlength=BINS).tolist(),
        "limit": limit,
        "mean": _number(finite.mean() if len(finite) else None),
        "deviation": _number(finite.std(correction=0) if len(finite) else None),
        "not_finite": int(len(numbers) - len(finite)),
        "counted": len(numbers),
    }


def _number(value: Tensor | None) -> float | None:
    return None if value is None or not bool(value.isfinite()) else float(f"{float(value):.6g}")


def _product(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _natural(item: tuple[str, Any]) -> list[tuple[bool, int, str]]:
    """Order names by their parts, numbers by value."""
    return [
        (part.isdecimal(), int(part[-18:]) if part.isdecimal() else 0, part)
        for part in item[0].split(".")
    ]
