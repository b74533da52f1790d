"""Packed and padded batches: no position reads another document or padding.

    toeplitz_packed   documents concatenated in one row, separated by offsets (cu_seqlens)
    toeplitz_padded   one document per row, padded on either side, given by a mask

Both become a list of segments, each multiplied independently. Segments of similar length are gathered
into one batch, padded with zeros by at most a third, multiplied, and scattered back. The cost is close
to the sum over documents, and memory is linear. Outputs at padding are zero.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from toeplix.ops import paths
from toeplix.ops.contraction import Gradient

# segments up to this length share one batch, as padding costs less than another call
SHORT_SEGMENT = 32
MIN_LENGTH_RATIO = 0.75  # minimum ratio of the shortest to the longest segment of a batch


class Group(NamedTuple):
    """Segments of similar length: flat positions `(n, longest)`, and which of them are not padding."""

    positions: Tensor
    real: Bool[Tensor, "n longest"]
    members: Int[Tensor, " n"]  # the numbers of these segments

    def gather(self, x: Tensor) -> Float[Tensor, "n longest h c"]:
        rows = x.flatten(0, 1)[self.positions.flatten()].unflatten(0, self.positions.shape)
        return rows.masked_fill_(~self.real[:, :, None, None], 0)

    def scatter(self, rows: Tensor, y: Tensor) -> None:
        """Into y, which is contiguous."""
        y.flatten(0, 1)[self.positions[self.real]] = rows[self.real]


def forward(x: Tensor, kernel: Tensor, path: str, starts: Tensor, lengths: Tensor) -> Tensor:
    y = x.new_zeros(x.shape)
    for group in groups(x, kernel.shape[1], starts, lengths):
        group.scatter(paths.forward(group.gather(x), kernel, path), y)
    return y


def backward(
    g: Tensor,
    x: Tensor | None,
    kernel: Tensor,
    path: str,
    need_x: bool,
    need_kernel: bool,
    starts: Tensor,
    lengths: Tensor,
) -> Gradient:
    dx = g.new_zeros(g.shape) if need_x else None
    # summed over groups in the working precision and rounded once
    used = kernel.to(paths.working_dtype(g))
    dkernel = used.new_zeros(used.shape) if need_kernel else None
    for group in groups(g, kernel.shape[1], starts, lengths):
        part = None if x is None else group.gather(x)
        du, dk = paths.backward(group.gather(g), part, used, path, need_x, need_kernel)
        if dx is not None and du is not None:
            group.scatter(du, dx)
        if dkernel is not None and dk is not None:
            dkernel += dk
    return dx, None if dkernel is None else dkernel.to(kernel.dtype)


def groups(
    x: Tensor,
    longest_allowed: int | None,
    starts: Tensor,
    lengths: Tensor,
    *,
    end_together: bool = False,
) -> list[Group]:
    """Return the segments in groups of similar length.

    The padding of a group is at the ends of its rows, or at their beginnings with `end_together`.
    """
    total = x.shape[0] * x.shape[1]
    places = range(len(starts))
    pairs = sorted(zip(lengths.tolist(), starts.tolist(), places, strict=True), reverse=True)
    pairs = [segment for segment in pairs if segment[0] > 0]
    if pairs and longest_allowed is not None and pairs[0][0] > longest_allowed:
        raise ValueError(
            f"a document has {pairs[0][0]} positions and kernel {longest_allowed} taps: a causal "
            "product needs n >= the longest document"
        )
    result = []
    while pairs:
        longest = pairs[0][0]
        least = 0 if longest <= SHORT_SEGMENT else max(SHORT_SEGMENT, MIN_LENGTH_RATIO * longest)
        members = [pair for pair in pairs if pair[0] > least]
        pairs = pairs[len(members) :]
        length, start, place = torch.tensor(members, device=x.device).unbind(1)
        time = torch.arange(longest, device=x.device).expand(len(members), -1)
        if end_together:
            time = time - (longest - length[:, None])
        positions = (start[:, None] + time).clamp(min=0, max=total - 1)
        result.append(Group(positions, (time >= 0) & (time < length[:, None]), place))
    return result
