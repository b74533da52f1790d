"""Matrix products between filters and sequences `(b, t, h, c)`.

Multiplying every head by its own matrix is one batched matmul of stacked sequences:

    one head        the batch axis is b, nothing is moved:              (b, t, c)
    several heads   the batch axis is h, columns are concatenated:      (h, t, b c)
"""

import torch
from jaxtyping import Float
from torch import Tensor

Gradient = tuple[Tensor | None, Tensor | None]  # of x and of the kernel; None if not needed


def as_columns(x: Float[Tensor, "b t h c"]) -> Float[Tensor, "h t columns"]:
    return x.permute(2, 1, 0, 3).flatten(2)


def stack(x: Float[Tensor, "b t h c"]) -> Float[Tensor, "n t columns"]:
    return x[:, :, 0].contiguous() if x.shape[2] == 1 else as_columns(x)


def apply(
    matrix: Float[Tensor, "h r k"],
    stacked: Float[Tensor, "n k columns"],
    out: Float[Tensor, "b r h c"],
) -> None:
    """Write `out[b, :, h] = matrix[h] @ x[b, :, h]` for stacked x."""
    batch, rows, heads, channels = out.shape
    matrix = matrix.expand(len(stacked), -1, -1)
    if heads > 1:
        result = torch.bmm(matrix, stacked)
        out.copy_(result.view(heads, rows, batch, channels).permute(2, 1, 0, 3))
    elif out.is_contiguous():
        torch.bmm(matrix, stacked, out=out[:, :, 0])
    else:  # with a strided result, bmm would fall back to one product at a time
        out[:, :, 0] = torch.bmm(matrix, stacked)


def correlate(
    g: Float[Tensor, "n r columns"], x: Float[Tensor, "n k columns"], heads: int
) -> Float[Tensor, "h r k"]:
    """Return `sum_b g[b, :, h] @ x[b, :, h]^T` for stacked g and x."""
    products = torch.bmm(g, x.transpose(1, 2))
    return products if len(products) == heads else products.sum(0, keepdim=True)


def diagonal_sums(matrix: Float[Tensor, "*n r k"]) -> Float[Tensor, "*n lags"]:
    """Return sums along the diagonals: entry q is the sum of `matrix[i, j]` with `i - j = q - (k - 1)`.

    Rows are padded so that viewing the same memory with rows that are one shorter shifts row i by i:
    this needs one strided sum instead of a scatter.
    """
    *lead, rows, columns = matrix.shape
    sheared = torch.nn.functional.pad(matrix.flip(-1), (0, rows))
    width = rows + columns - 1
    flat = sheared.reshape(*lead, rows * (width + 1))[..., : rows * width]
    return flat.reshape(*lead, rows, width).sum(-2)
