"""Matrix products between filters and sequences, without rearranging the sequences.

A sequence tensor keeps its layout `(b, t, h, c)`. Multiplying every head by its own matrix would be
one batched product over (b, h), but those two axes cannot be merged without a copy; so the
shorter one becomes a Python loop and the longer one the batch of a strided `bmm`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Gradient = tuple[Tensor | None, Tensor | None]  # of x, of the kernel; None where not asked for


def apply(
    matrix: Float[Tensor, "h r k"], x: Float[Tensor, "b k h c"], out: Float[Tensor, "b r h c"]
) -> None:
    """`out[b, :, h] = matrix[h] @ x[b, :, h]`."""
    batch, heads = x.shape[0], x.shape[2]
    if heads <= batch:
        for head in range(heads):
            _bmm(matrix[head].expand(batch, -1, -1), x[:, :, head], out[:, :, head])
    else:
        for item in range(batch):
            _bmm(matrix, x[item].transpose(0, 1), out[item].transpose(0, 1))


def correlate(
    g: Float[Tensor, "b r h c"], x: Float[Tensor, "b k h c"], out: Float[Tensor, "h r k"]
) -> None:
    """`out[h] += sum_b g[b, :, h] @ x[b, :, h]^T`."""
    batch, heads = x.shape[0], x.shape[2]
    if heads <= batch:
        for head in range(heads):
            out[head] += torch.bmm(g[:, :, head], x[:, :, head].transpose(1, 2)).sum(0)
    else:
        for item in range(batch):
            out += torch.bmm(g[item].transpose(0, 1), x[item].permute(1, 2, 0))


def diagonal_sums(matrix: Float[Tensor, "*n r k"]) -> Float[Tensor, "*n lags"]:
    """Sums along the diagonals: entry q adds all `matrix[i, j]` with `i - j = q - (k - 1)`.

    Rows are padded so that reading the same memory with rows one shorter shifts row i by i:
    one strided sum instead of a scatter.
    """
    *lead, rows, columns = matrix.shape
    sheared = torch.nn.functional.pad(matrix.flip(-1), (0, rows))
    width = rows + columns - 1
    flat = sheared.reshape(*lead, rows * (width + 1))[..., : rows * width]
    return flat.reshape(*lead, rows, width).sum(-2)


def _bmm(left: Tensor, right: Tensor, out: Tensor) -> None:
    # into a strided result, bmm would fall back to one product at a time
    if out.is_contiguous():
        torch.bmm(left, right, out=out)
    else:
        out.copy_(torch.bmm(left, right))
