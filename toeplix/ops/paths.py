"""The registry of paths, and the two functions through which they are called: `forward` and `backward`.

The working precision is chosen here: paths compute in float64 for float64 inputs and in float32 for all
others, with or without autocast, and results have the dtype of the inputs. Paths that convert get
their arguments as they are: `fft` chunk by chunk, `triton` on the way to tensor cores.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from toeplix.ops import blocked, dense, dispatch, fft, halving, triton
from toeplix.ops.contraction import Gradient
from toeplix.ops.segments import Segments
from toeplix.ops.triton import product as fused


def _supports_all(x: Tensor) -> bool:
    return True


class Path(NamedTuple):
    product: Callable[[Tensor, Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor, Tensor, bool, bool], Gradient]
    exact: bool  # later inputs do not change earlier outputs, not even by rounding
    converts: bool = False  # accepts half precision and converts it by itself
    supports: Callable[[Tensor], bool] = _supports_all  # where a rule may select it
    packed_product: Callable[[Tensor, Tensor, Segments], Tensor] | None = None  # of all segments
    packed_gradient: Callable[[Tensor, Tensor, Tensor, Segments, bool, bool], Gradient] | None = (
        None
    )


PATHS: dict[str, Path] = {
    "dense": Path(dense.product, dense.gradient, exact=True),
    "blocked": Path(blocked.product, blocked.gradient, exact=True),
    "fft": Path(fft.product, fft.gradient, exact=False, converts=True),
    "halving": Path(halving.product, halving.gradient, exact=True),
    "triton": Path(
        fused.product,
        fused.gradient,
        exact=True,
        converts=True,
        supports=triton.supports,
        packed_product=fused.packed_product,
        packed_gradient=fused.packed_gradient,
    ),
}


NO_CONTEXT = nullcontext()


def forward(x: Tensor, kernel: Tensor, path: str) -> Tensor:
    """Return the product, contiguous and in x's dtype. The kernel may be longer than x."""
    if x.numel() == 0:
        return x.new_empty(x.shape)
    chosen = resolve(path, x)
    with full_precision(x.device):
        work, used = x, kernel[:, : x.shape[1]]
        if not chosen.converts:
            work, used = work.to(working_dtype(x)), used.to(working_dtype(x))
        return chosen.product(work, used).to(x.dtype).contiguous()


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
    chosen, dtype = resolve(path, g), working_dtype(g)
    with full_precision(g.device):
        work_g, work_x, used = (
            part if chosen.converts else part.to(dtype)
            for part in (g, g if x is None else x, kernel[:, :time])
        )
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


def resolve(name: str, x: Tensor, time: int | None = None, rows: int | None = None) -> Path:
    """Return the path of a name, or what the rule selects for sequences like x.

    Length and number of sequences are those of x unless they are given.
    """
    if name in (dispatch.AUTO, dispatch.AUTO_EXACT):
        time = x.shape[1] if time is None else time
        columns = (x.shape[0] if rows is None else rows) * x.shape[3]
        kind = dispatch.kind_of(x.device.type, x.dtype.itemsize)
        name = dispatch.choose(
            name, kind, time, columns, x.shape[3], usable=lambda path: PATHS[path].supports(x)
        )
    return PATHS[name]


def runnable(x: Tensor) -> list[str]:
    """Return the names of the paths that compute sequences like x where it is."""
    return [name for name, path in PATHS.items() if path.supports(x)]


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Where autocast, if there is one, does not reach."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return NO_CONTEXT
