"""The registry of paths, and the two functions through which they are called: `forward` and `backward`.

The working precision is chosen here: paths compute in float64 for float64 inputs and in float32 for all
others, with or without autocast, and results have the dtype of the inputs.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from toeplix.ops import blocked, dense, dispatch, fft, halving
from toeplix.ops.contraction import Gradient


class Path(NamedTuple):
    product: Callable[[Tensor, Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor, Tensor, bool, bool], Gradient]
    exact: bool  # later inputs do not change earlier outputs, not even by rounding
    converts: bool = False  # accepts half precision and converts it chunk by chunk


PATHS: dict[str, Path] = {
    "dense": Path(dense.product, dense.gradient, exact=True),
    "blocked": Path(blocked.product, blocked.gradient, exact=True),
    "fft": Path(fft.product, fft.gradient, exact=False, converts=True),
    "halving": Path(halving.product, halving.gradient, exact=True),
}


NO_CONTEXT = nullcontext()


def forward(x: Tensor, kernel: Tensor, path: str) -> Tensor:
    """Return the product, contiguous and in x's dtype. The kernel may be longer than x."""
    if x.numel() == 0:
        return x.new_empty(x.shape)
    chosen = _path(path, x)
    with full_precision(x.device):
        work = x if chosen.converts else x.to(working_dtype(x))
        y = chosen.product(work, kernel[:, : x.shape[1]].to(working_dtype(x)))
        return y.to(x.dtype).contiguous()


def backward(
    g: Tensor, x: Tensor | None, kernel: Tensor, path: str, need_x: bool, need_kernel: bool
) -> Gradient:
    """Return the gradients in the dtypes of g and of the kernel; unused taps get zero.

    x is needed for the gradient of the kernel only.
    """
    if g.numel() == 0:
        return (
            g.new_empty(g.shape) if need_x else None,
            kernel.new_zeros(kernel.shape) if need_kernel else None,
        )
    time, taps = g.shape[1], kernel.shape[1]
    chosen, dtype = _path(path, g), working_dtype(g)
    with full_precision(g.device):
        work_g, work_x = (
            part if chosen.converts else part.to(dtype) for part in (g, g if x is None else x)
        )
        used = kernel[:, :time].to(dtype)
        dx, dkernel = chosen.gradient(work_g, work_x, used, need_x, need_kernel)
        if dx is not None:
            dx = dx.to(g.dtype).contiguous()
        if dkernel is not None:
            if taps > time:
                dkernel = torch.nn.functional.pad(dkernel, (0, taps - time))
            dkernel = dkernel.to(kernel.dtype).contiguous()
        return dx, dkernel


def working_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _path(name: str, x: Tensor) -> Path:
    if name in (dispatch.AUTO, dispatch.AUTO_EXACT):
        batch, time, _, channels = x.shape
        name = dispatch.choose(name, x.device.type, time, batch * channels)
    return PATHS[name]


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Where autocast, if there is one, does not reach."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return NO_CONTEXT
