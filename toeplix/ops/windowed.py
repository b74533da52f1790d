"""Sequences longer than the kernel, and sequences computed in chunks.

The receptive field of a position is the last n positions, itself included. The result is the same whether
a sequence is computed as a whole, in chunks or step by step:

    y[t] = sum over lags l < min(t + 1, n) of kernel[l] * x[t - l]
"""

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import autograd
from toeplix.ops.checks import check_like, check_path, check_product
from toeplix.ops.continuation import carry
from toeplix.ops.paths import full_precision, working_dtype

# length of a segment as a multiple of the kernel's; a quarter of the work overlaps
SEGMENT_KERNELS = 4


def toeplitz_windowed(
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h n"],
    *,
    path: str = "auto",
    exact: bool = False,
) -> Float[Tensor, "b t h c"]:
    """Return the product for any length: beyond n positions the kernel is a sliding window. O(t log n).

    Arguments are those of `toeplitz`, and for `t <= n` so is the result.
    """
    check_product(x, kernel, beyond=True)
    return _windowed(x, kernel, check_path(path, exact))


def toeplitz_continued(
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h n"],
    history: Float[Tensor, "b p h c"],
    *,
    path: str = "auto",
    exact: bool = False,
) -> Float[Tensor, "b t h c"]:
    """Return the outputs of the chunk x that follows `history`, for prefill in chunks.

    The result equals `toeplitz_windowed(cat([history, x], 1), kernel)[:, p:]`. Only the last n - 1
    positions of the history are read, so a caller need not keep more.
    """
    check_product(x, kernel, beyond=True)
    name = check_path(path, exact)
    check_like("history", history, x)
    reach = kernel.shape[1] - 1
    history = history[:, max(0, history.shape[1] - reach) :]
    if history.shape[1] == 0:
        return _windowed(x, kernel, name)
    recorded = torch.is_grad_enabled() and any(p.requires_grad for p in (x, kernel, history))
    if (
        recorded or torch.compiler.is_compiling()
    ):  # one operator that autograd and the compiler support
        whole = torch.cat([history, x], 1)
        return _windowed(whole, kernel, name)[:, history.shape[1] :]
    work = working_dtype(x)  # in which both parts are added, lest half precision round twice
    y = _windowed(x.to(work), kernel.to(work), name)
    ahead = min(x.shape[1], reach)
    with full_precision(x.device):
        y[:, :ahead] += carry(history.to(work), kernel.to(work), ahead)
    return y.to(x.dtype)


def _windowed(x: Tensor, kernel: Tensor, path: str) -> Tensor:
    time, taps = x.shape[1], kernel.shape[1]
    if time <= taps:
        return autograd.product(x, kernel, path)
    if time <= SEGMENT_KERNELS * taps:
        longer = torch.nn.functional.pad(kernel, (0, time - taps))
        return autograd.product(x, longer, path)
    if x.dtype != working_dtype(x):  # gradients of overlaps are added before they are rounded
        return _windowed(x.to(working_dtype(x)), kernel, path).to(x.dtype)
    # overlapping segments: each recomputes the n - 1 positions before its own and drops them
    size = SEGMENT_KERNELS * taps
    hop = size - taps + 1
    count = -(-time // hop)
    padded = torch.nn.functional.pad(x, (0, 0, 0, 0, taps - 1, count * hop - time))
    segments = padded.unfold(1, size, hop).permute(0, 1, 4, 2, 3).flatten(0, 1)
    longer = torch.nn.functional.pad(kernel, (0, size - taps))
    y = autograd.product(segments, longer, path)[:, taps - 1 :]
    return y.unflatten(0, (x.shape[0], count)).flatten(1, 2)[:, :time]
