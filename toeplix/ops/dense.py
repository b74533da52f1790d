"""The definition of the causal Toeplitz product, against which every other path is tested.

    y[b, t, h, c] = sum over s <= t of kernel[h, t - s] * x[b, s, h, c]

    toeplitz_matrix    the lower-triangular matrix of a kernel
    product            that matrix times x:                       O(t^2) time and memory
    gradient           its transpose, and the sums along its diagonals

Axes, here and in every file of this package: b batch, t time (s a second time axis),
h heads, c channels of one head, l lag.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops.contraction import Gradient


def toeplitz_matrix(kernel: Float[Tensor, "h t"]) -> Float[Tensor, "h t t"]:
    """Return the lower-triangular matrix with `kernel[:, l]` on its l-th subdiagonal."""
    lag = _lags(kernel.shape[-1], kernel.device)
    return kernel[:, lag.clamp(min=0)].masked_fill(lag < 0, 0)


def product(x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h t"]) -> Float[Tensor, "b t h c"]:
    """Return `y[b, t, h, c] = sum_s matrix[h, t, s] x[b, s, h, c]`."""
    return torch.einsum("hts,bshc->bthc", toeplitz_matrix(kernel), x)


def gradient(
    g: Float[Tensor, "b t h c"],
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h t"],
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    """Return `dx[s] = sum_{t>=s} kernel[t-s] g[t]` and `dkernel[l] = sum_{b,t,c} g[t] x[t-l]`."""
    dx = torch.einsum("hts,bthc->bshc", toeplitz_matrix(kernel), g) if need_x else None
    if not need_kernel:
        return dx, None
    lag = _lags(kernel.shape[-1], kernel.device)
    dmatrix = torch.einsum("bthc,bshc->hts", g, x)
    # entries above the diagonal are added as zeros: to leave them out, the host would have to count them
    causal = dmatrix.masked_fill(lag < 0, 0).flatten(1)
    return dx, torch.zeros_like(kernel).index_add_(1, lag.clamp(min=0).flatten(), causal)


def _lags(time: int, device: torch.device) -> Tensor:
    position = torch.arange(time, device=device)
    return position[:, None] - position
