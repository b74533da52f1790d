"""The documents of packed and padded batches as segments, found from offsets or from a mask.

Finding them reads values, which a compiled graph cannot do: there it is a custom operator.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Segments(NamedTuple):
    """Documents in a flattened batch: the start and the length of each."""

    starts: Tensor
    lengths: Tensor


def segments_from_offsets(offsets: Int[Tensor, " documents_plus_1"], time: int) -> Segments:
    """Return the documents of one packed row, given by offsets `[0, ..., t]`."""
    find = _from_offsets if torch.compiler.is_compiling() else _find_in_offsets
    return Segments(*find(offsets, time))


def segments_from_mask(mask: Bool[Tensor, "b t"]) -> Segments:
    """Return the document of every row: the single run of True in its mask."""
    find = _from_mask if torch.compiler.is_compiling() else _find_in_mask
    return Segments(*find(mask))


@torch.library.custom_op("toeplix::segments_from_offsets", mutates_args=())
def _from_offsets(offsets: Tensor, time: int) -> tuple[Tensor, Tensor]:
    return _find_in_offsets(offsets, time)


@_from_offsets.register_fake
def _(offsets: Tensor, time: int) -> tuple[Tensor, Tensor]:
    return offsets.new_empty(offsets.shape[0] - 1), offsets.new_empty(offsets.shape[0] - 1)


@torch.library.custom_op("toeplix::segments_from_mask", mutates_args=())
def _from_mask(mask: Tensor) -> tuple[Tensor, Tensor]:
    return _find_in_mask(mask)


@_from_mask.register_fake
def _(mask: Tensor) -> tuple[Tensor, Tensor]:
    rows = mask.new_empty(mask.shape[0], dtype=torch.int64)
    return rows, torch.empty_like(rows)


def _find_in_offsets(offsets: Tensor, time: int) -> tuple[Tensor, Tensor]:
    """Return starts and lengths of the documents given by offsets `[0, ..., t]`."""
    lengths = offsets.diff()
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != time or (lengths < 0).any():
        raise ValueError(
            f"offsets must rise from 0 to t={time}, got {_shortened(offsets.tolist())}"
        )
    return offsets[:-1].clone(), lengths


def _find_in_mask(mask: Bool[Tensor, "b t"]) -> tuple[Tensor, Tensor]:
    """Return start (in the flattened batch) and length of the single run of True in every row."""
    batch, time = mask.shape
    lengths = mask.sum(1)
    first = mask.int().argmax(1)
    position = torch.arange(time, device=mask.device)
    run = (position >= first[:, None]) & (position < (first + lengths)[:, None])
    broken = (run != mask).any(1)
    if broken.any():
        row = int(broken.nonzero()[0])
        raise ValueError(
            f"mask has a hole in row {row}: real positions must be one run, with padding before "
            "or after it (documents laid end to end go through toeplitz_packed)"
        )
    return first + torch.arange(batch, device=mask.device) * time, lengths


def _shortened(values: list[int]) -> str:
    return str(values) if len(values) <= 12 else f"[{values[0]}, {values[1]}, ..., {values[-1]}]"
