"""The product as a function that is differentiable to any order, and as an operator for torch.compile.

With T(w) the Toeplitz matrix of a kernel, all derivatives stay within three products:

    product   T(w) x            transpose   T(w)^T g            correlation   <g, T(.) x>

`_Gradient` computes the last two together, since they share the transform of g; its own derivative
consists of products and gradients again. Eager mode uses autograd functions, whose overhead per call is
half that of a registered operator; under torch.compile the operators `toeplix::product` and
`toeplix::gradient` avoid graph breaks.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function

from toeplix.ops import packed, paths
from toeplix.ops.contraction import Gradient
from toeplix.ops.segments import Segments


def product(x: Tensor, kernel: Tensor, path: str, segments: Segments | None = None) -> Tensor:
    """Return `T(kernel) x` for whole rows or for segments; arguments are not checked here."""
    if torch.compiler.is_compiling():
        return compiled_product(x, kernel, path, *(segments or (None, None)))
    recorded = torch.is_grad_enabled() and (x.requires_grad or kernel.requires_grad)
    if recorded or _forward_mode():
        return _Product.apply(x, kernel, path, segments)
    return _forward(x, kernel, path, segments)


def _forward_mode() -> bool:
    """Return whether forward-mode differentiation is active.

    The autograd function rejects it with an error; a plain call would silently lose the tangent.
    """
    return torch.autograd.forward_ad._current_level >= 0


def _forward(x: Tensor, kernel: Tensor, path: str, segments: Segments | None) -> Tensor:
    if segments is None:
        return paths.forward(x, kernel, path)
    return packed.forward(x, kernel, path, *segments)


def _backward(
    g: Tensor,
    x: Tensor | None,
    kernel: Tensor,
    path: str,
    segments: Segments | None,
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    if segments is None:
        return paths.backward(g, x, kernel, path, need_x, need_kernel)
    return packed.backward(g, x, kernel, path, need_x, need_kernel, *segments)


# `forward` takes ctx, the older of the two styles: a separate `setup_context` costs 60 us per call.
class _Product(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, path: str, segments: Segments | None
    ) -> Tensor:
        # x is needed for the gradient of the kernel only, so a frozen kernel keeps no activations
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, kernel)
        ctx.set_materialize_grads(False)
        ctx.how = (path, segments)
        return _forward(x, kernel, path, segments)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> Any:
        if g is None:
            return None, None, None, None
        x, kernel = ctx.saved_tensors
        need = ctx.needs_input_grad[:2]
        return *_gradient(g, x, kernel, *ctx.how, *need), None, None


class _Gradient(Function):
    @staticmethod
    def forward(
        ctx: Any,
        g: Tensor,
        x: Tensor | None,
        kernel: Tensor,
        path: str,
        segments: Segments | None,
        need_x: bool,
        need_kernel: bool,
    ) -> Gradient:
        ctx.save_for_backward(g, x, kernel)
        ctx.set_materialize_grads(False)
        ctx.how = (path, segments)
        return _backward(g, x, kernel, path, segments, need_x, need_kernel)

    @staticmethod
    def backward(ctx: Any, u: Tensor | None, v: Tensor | None) -> Any:
        """Return the gradients of g, x and kernel.

        u is the gradient of `T(kernel)^T g`, v that of the correlation of g and x.
        """
        g, x, kernel = ctx.saved_tensors
        path, segments = ctx.how
        need_g, need_x, need_kernel = ctx.needs_input_grad[:3]
        dg = dx = dkernel = None
        if need_g and u is not None:
            dg = product(u, kernel, path, segments)
        if need_g and v is not None:
            other = product(x, v, path, segments).to(g.dtype)
            dg = other if dg is None else dg + other
        if need_x and v is not None:
            dx, _ = _gradient(g, None, v, path, segments, True, False)
        if need_kernel and u is not None:
            _, dkernel = _gradient(g, u, kernel, path, segments, False, True)
        return dg, dx, dkernel, None, None, None, None


def _gradient(
    g: Tensor,
    x: Tensor | None,
    kernel: Tensor,
    path: str,
    segments: Segments | None,
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    """Compute the gradient; it is recorded for higher derivatives only if gradients are enabled."""
    call = _Gradient.apply if torch.is_grad_enabled() else _backward
    return call(g, x, kernel, path, segments, need_x, need_kernel)


@torch.library.custom_op("toeplix::product", mutates_args=())
def compiled_product(
    x: Tensor, kernel: Tensor, path: str, starts: Tensor | None, lengths: Tensor | None
) -> Tensor:
    return _forward(x, kernel, path, _segments(starts, lengths))


@compiled_product.register_fake
def _(
    x: Tensor, kernel: Tensor, path: str, starts: Tensor | None, lengths: Tensor | None
) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("toeplix::gradient", mutates_args=())
def compiled_gradient(
    g: Tensor,
    x: Tensor | None,
    kernel: Tensor,
    path: str,
    starts: Tensor | None,
    lengths: Tensor | None,
    need_x: bool,
    need_kernel: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and kernel; one that is not needed is an empty tensor."""
    segments = _segments(starts, lengths)
    dx, dkernel = _backward(g, x, kernel, path, segments, need_x, need_kernel)
    return g.new_empty(0) if dx is None else dx, g.new_empty(0) if dkernel is None else dkernel


@compiled_gradient.register_fake
def _(
    g: Tensor,
    x: Tensor | None,
    kernel: Tensor,
    path: str,
    starts: Tensor | None,
    lengths: Tensor | None,
    need_x: bool,
    need_kernel: bool,
) -> tuple[Tensor, Tensor]:
    return (
        g.new_empty(g.shape if need_x else 0),
        kernel.new_empty(kernel.shape) if need_kernel else g.new_empty(0),
    )


def _segments(starts: Tensor | None, lengths: Tensor | None) -> Segments | None:
    return None if starts is None or lengths is None else Segments(starts, lengths)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, kernel, ctx.path, starts, lengths = inputs
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, kernel, starts, lengths)


def _compiled_backward(ctx: Any, g: Tensor) -> Any:
    x, kernel, *segments = ctx.saved_tensors
    need_x, need_kernel = ctx.needs_input_grad[:2]
    dx, dkernel = compiled_gradient(g, x, kernel, ctx.path, *segments, need_x, need_kernel)
    return dx if need_x else None, dkernel if need_kernel else None, None, None, None


compiled_product.register_autograd(_compiled_backward, setup_context=_save)
