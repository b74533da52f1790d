"""Packed and padded batches: no position reads another document or padding.

    toeplitz_packed   documents concatenated in one row, separated by offsets (cu_seqlens)
    toeplitz_padded   one document per row, padded on either side, given by a mask

Both become a list of segments, each multiplied independently. Segments of similar length are gathered
into one batch, padded with zeros by at most a third, multiplied, and scattered back. The cost is close
to the sum over documents, and memory is linear. Outputs at padding are zero.

Shapes depend on the lengths of the segments, so the host reads these: offsets and masks that are on the
CPU cost an accelerator no wait, whatever device x is on.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from toeplix.ops import paths
from toeplix.ops.contraction import Gradient
from toeplix.ops.segments import Segments

# segments up to this length share one batch, as padding costs less than another call
SHORT_SEGMENT = 32
MIN_LENGTH_RATIO = 0.75  # minimum ratio of the shortest to the longest segment of a batch


class Group(NamedTuple):
    """Segments of similar length: flat positions `(n, longest)`, and which of them are not padding."""

    positions: Tensor
    real: Bool[Tensor, "n longest"]
    members: Int[Tensor, " n"]  # the numbers of these segments
    inside: Int[Tensor, " r"]  # what is not padding, as positions in the flattened group ...
    places: Int[Tensor, " r"]  # ... and in the flattened batch

    def gather(self, x: Tensor) -> Float[Tensor, "n longest h c"]:
        rows = x.flatten(0, 1)[self.positions.flatten()].unflatten(0, self.positions.shape)
        return rows.masked_fill_(~self.real[:, :, None, None], 0)

    def scatter(self, rows: Tensor, y: Tensor) -> None:
        """Into y, which is contiguous."""
        y.flatten(0, 1).index_copy_(0, self.places, self.kept(rows))

    def kept(self, rows: Float[Tensor, "n longest ..."]) -> Float[Tensor, "r ..."]:
        """Return the rows without their padding, laid end to end."""
        return rows.flatten(0, 1).index_select(0, self.inside)


def forward(x: Tensor, kernel: Tensor, path: str, starts: Tensor, lengths: Tensor) -> Tensor:
    fused = _fused(x, kernel, path, lengths)
    if fused is not None and fused.packed_product is not None:
        return fused.packed_product(x, kernel, Segments(starts, lengths))
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
    fused = _fused(g, kernel, path, lengths)
    if fused is not None and fused.packed_gradient is not None:
        segments = Segments(starts, lengths)
        other = g if x is None else x
        dx, dkernel = fused.packed_gradient(g, other, kernel, segments, need_x, need_kernel)
        return dx, None if dkernel is None else dkernel.to(kernel.dtype)
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


def _fused(x: Tensor, kernel: Tensor, path: str, lengths: Tensor) -> paths.Path | None:
    """Return the path if it multiplies all segments where they are, and None if they are gathered."""
    if not any(entry.packed_product and entry.supports(x) for entry in paths.PATHS.values()):
        return None
    if x.numel() == 0 or lengths.numel() == 0:
        return None
    longest = int(lengths.max())
    _check_longest(longest, kernel.shape[1])
    chosen = paths.resolve(path, x, longest, len(lengths))
    return chosen if chosen.packed_product and chosen.supports(x) else None


def _check_longest(longest: int, taps: int) -> None:
    if longest > taps:
        raise ValueError(
            f"a document has {longest} positions and kernel {taps} taps: a causal "
            "product needs n >= the longest document"
        )


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
    if pairs and longest_allowed is not None:
        _check_longest(pairs[0][0], longest_allowed)
    result = []
    while pairs:
        longest = pairs[0][0]
        least = 0 if longest <= SHORT_SEGMENT else max(SHORT_SEGMENT, MIN_LENGTH_RATIO * longest)
        members = [pair for pair in pairs if pair[0] > least]
        pairs = pairs[len(members) :]
        length, start, place = torch.tensor(members).unbind(1)
        time = torch.arange(longest).expand(len(members), -1)
        if end_together:
            time = time - (longest - length[:, None])
        positions = (start[:, None] + time).clamp(min=0, max=total - 1)
        real = (time >= 0) & (time < length[:, None])
        tables = (positions, real, place, real.flatten().nonzero()[:, 0], positions[real])
        result.append(Group(*(each.to(x.device, non_blocking=True) for each in tables)))
    return result
