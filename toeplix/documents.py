"""Padding and packing undone: documents run side by side, each from its own first position.

A causal model that starts every row at position 0 needs no mask: what follows a document in its row
cannot reach it. So padded rows are shifted to the left, packed documents become rows, documents of
similar length share a batch (`toeplix.ops.packed.groups`), and results return to where they came from.
This holds for any architecture, whatever it does inside. Positions that are padding give zeros.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops import packed
from toeplix.ops.checks import check_mask, check_offsets


def apart(
    function: Callable[[Int[Tensor, "n l"]], Float[Tensor, "n l d"]],
    tokens: Int[Tensor, "b t"],
    mask: Tensor | None,
    offsets: Tensor | list[int] | None,
) -> Float[Tensor, "b t d"]:
    """`function` of every document alone, put back into the layout of `tokens`."""
    if mask is not None and offsets is not None:
        raise ValueError("give mask (padded rows) or offsets (one packed row), not both")
    if mask is not None:
        segments = packed.segments_from_mask(check_mask(mask, tokens))
    else:
        if tokens.shape[0] != 1:
            raise ValueError(
                f"packed documents lie in one row, got tokens of {tuple(tokens.shape)}"
            )
        segments = packed.segments_from_offsets(check_offsets(offsets), tokens.shape[1])
    pieces, places = [], []
    for group in packed.groups(tokens, None, *segments):
        # a row ends before its group does: token 0 fills it, whatever stood there (-100, another row)
        rows = tokens.flatten()[group.positions].masked_fill(~group.real, 0)
        features = function(rows)
        pieces.append(features[group.real])
        places.append(group.positions[group.real])
    if not pieces:
        raise ValueError("there is no real position: every row is padding")
    flat = torch.cat(pieces)
    result = flat.new_zeros(tokens.numel(), flat.shape[1])
    return result.index_copy(0, torch.cat(places), flat).view(*tokens.shape, -1)
