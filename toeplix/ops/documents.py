"""Removing padding and packing: every document becomes a row of a batch and starts at position 0.

A causal model that starts every row at position 0 needs no mask, because nothing after a document in its
row can affect it. So padded rows are shifted to the left, packed documents become rows, documents of
similar length share a batch (`toeplix.ops.packed.groups`), and results are written back to their original
positions. This works for any causal architecture. Outputs at padding are zero.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops import packed
from toeplix.ops.checks import check_mask, check_offsets
from toeplix.ops.segments import segments_from_mask, segments_from_offsets


def apart(
    function: Callable[[list[Tensor]], list[Tensor]],
    tokens: Int[Tensor, "b t"],
    mask: Tensor | None,
    offsets: Tensor | list[int] | None,
) -> Float[Tensor, "b t d"]:
    """Apply `function`, from rows (n, l) to features (n, l, d), to every document independently.

    The features are returned in the layout of `tokens`.
    """
    groups = document_groups(tokens, mask, offsets)
    rows = [tokens.flatten()[row_positions(each)] for each in groups]
    flat = torch.cat([each.kept(x) for x, each in zip(function(rows), groups, strict=True)])
    places = [each.places for each in groups]
    result = flat.new_zeros(tokens.numel(), flat.shape[1])
    return result.index_copy(0, torch.cat(places), flat).view(*tokens.shape, -1)


def document_groups(
    tokens: Int[Tensor, "b t"], mask: Tensor | None, offsets: Tensor | list[int] | None
) -> list[packed.Group]:
    """Return the documents of padded rows or of one packed row, in groups of similar length."""
    if mask is not None and offsets is not None:
        raise ValueError("give mask (padded rows) or offsets (one packed row), not both")
    if mask is not None:
        segments = segments_from_mask(check_mask(mask, tokens))
    else:
        if tokens.shape[0] != 1:
            raise ValueError(
                f"packed documents lie in one row, got tokens of {tuple(tokens.shape)}"
            )
        segments = segments_from_offsets(check_offsets(offsets), tokens.shape[1])
    groups = packed.groups(tokens, None, *segments)
    if not groups:
        raise ValueError("there is no real position: every row is padding")
    return groups


def row_positions(group: packed.Group) -> Int[Tensor, "n longest"]:
    """Positions of rows that may end before their group does: each goes on with its last token.

    Not with what stands there (-100, another row), nor with any fixed token: what follows a document
    reaches it by rounding, and by NaN, where a path is causal to rounding only.
    """
    last = group.positions.gather(1, group.real.sum(1, keepdim=True) - 1)
    return group.positions.where(group.real, last)
