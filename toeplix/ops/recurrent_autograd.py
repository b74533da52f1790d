"""The product with recurrent filters as a differentiable function, and as an operator for torch.compile.

`_forward` and `_backward` choose the working precision, separate documents and prevent values that are
not finite from changing earlier outputs; chunked.py computes the product, or where they run the
kernels of triton/recurrent.py. Saved for backward are x and the sums before every chunk, which have about
an eighth of its size.
"""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import Function, once_differentiable

from toeplix.ops import chunked, packed
from toeplix.ops.paths import full_precision, working_dtype
from toeplix.ops.recurrent_filter import Filter, chunk_size
from toeplix.ops.segments import Segments
from toeplix.ops.triton import recurrent as fused

Forward = tuple[Tensor, Tensor, Tensor]  # outputs, sums after the last position, sums before chunks
Backward = tuple[Tensor | None, Filter | None, Tensor | None]  # of x, filters, the initial sums


def product(
    x: Tensor,
    free: Tensor,
    weights: Tensor,
    decays: Tensor,
    sums: Tensor | None,
    skip: int,
    segments: Segments | None,
) -> tuple[Tensor, Tensor]:
    """Return outputs and final sums; arguments are not checked here."""
    filters = (free, weights, decays)
    recorded = torch.is_grad_enabled()
    # the product depends on values (are all finite?); where these are not known it is an operator
    if torch.compiler.is_compiling() or x.is_meta or isinstance(x, FakeTensor):
        starts, lengths = segments or (None, None)
        return compiled_recurrent(x, *filters, sums, skip, starts, lengths, recorded)[:2]
    inputs = (x, *filters) if sums is None else (x, *filters, sums)
    if recorded and any(each.requires_grad for each in inputs):
        return _Recurrent.apply(x, *filters, sums, skip, segments)
    return _forward(x, *filters, sums, skip, segments, False)[:2]


def check_decays(decays: Tensor) -> Tensor:
    """Return the decays; those with which sums could grow without bound are an error.

    On an accelerator the host does not wait to see them: there they become NaN, and so do the outputs.
    """
    allowed = (decays > 0) & (decays <= 1)
    if decays.device.type != "cpu":
        return decays.where(allowed, float("nan"))
    if not allowed.all():
        raise ValueError(f"decays must lie in (0, 1], got {decays[~allowed][0].item()}")
    return decays


def _forward(
    x: Tensor,
    free: Tensor,
    weights: Tensor,
    decays: Tensor,
    sums: Tensor | None,
    skip: int,
    segments: Segments | None,
    keep: bool,
) -> Forward:
    checked = check_decays(decays.double())
    filters, dtype = Filter(free.double(), weights.double(), checked), working_dtype(x)
    if segments is None:
        if x.numel() == 0:
            shape = (x.shape[0], filters.rank, *x.shape[2:])
            nothing = x.new_zeros(shape, dtype=dtype)
            states = nothing.new_empty(_states_shape(x, skip, filters, keep))
            return x.new_empty(_output_shape(x, skip)), nothing, states
        with full_precision(x.device):
            if _fused(x, filters):
                return fused.forward(x, sums, filters, skip, keep=keep)
            return _guarded(x, sums, filters, skip, dtype, keep)
    y = x.new_zeros(x.shape)
    final = x.new_zeros(len(segments.starts), filters.rank, *x.shape[2:], dtype=dtype)
    for group in packed.groups(x, None, *segments, end_together=True):
        rows, last, _ = _forward(group.gather(x), *filters, None, 0, None, False)
        group.scatter(rows, y)
        final[group.members] = last
    return y, final, final.new_empty(_states_shape(x, skip, filters, False))


def _guarded(
    x: Tensor, sums: Tensor | None, filters: Filter, skip: int, dtype: torch.dtype, keep: bool
) -> Forward:
    """Return the product; an input that is not finite does not change outputs before it.

    In a tile such an input is multiplied by zero, which gives NaN; it is therefore removed first. A CPU
    looks for one afterwards, since there is none; an accelerator removes whatever there is, so that the
    host need not wait for an answer.
    """
    if x.device.type == "cpu":
        y, final, states = chunked.forward(x, sums, filters, skip, dtype, keep=keep)
        # a sum that is not finite remains so
        if (final if filters.rank else x).isfinite().all() or x.isfinite().all():
            return y, final, states
    lost = (~x.isfinite()).cumsum(1) > 0
    y, final, states = chunked.forward(
        x.masked_fill(lost, 0), sums, filters, skip, dtype, keep=keep
    )
    nan = float("nan")
    return y.masked_fill_(lost[:, skip:], nan), final.masked_fill_(lost[:, -1:], nan), states


def _backward(
    g: Tensor,
    dfinal: Tensor | None,
    x: Tensor | None,
    states: Tensor | None,
    free: Tensor,
    weights: Tensor,
    decays: Tensor,
    skip: int,
    segments: Segments | None,
    need_x: bool,
) -> Backward:
    """Return gradients in the dtypes of their tensors; x is None if the filters need none."""
    filters, dtype = Filter(free.double(), weights.double(), decays.double()), working_dtype(g)
    dsums = None
    if g.numel() == 0:
        dx = g.new_zeros(_output_shape(g, -skip)) if need_x else None
        found = None if x is None else Filter(*map(torch.zeros_like, filters))
        if segments is None:
            dsums = g.new_zeros(g.shape[0], filters.rank, *g.shape[2:], dtype=dtype)
    elif segments is not None:
        dx, found = _backward_of_segments(g, dfinal, x, filters, segments, need_x)
    else:
        arguments = (g, dfinal, x, states, filters, skip)
        with full_precision(g.device):
            if _fused(g, filters):
                dx, dsums, found = fused.gradient(*arguments, need_x)
            else:
                dx, dsums, found = chunked.gradient(*arguments, dtype, need_x)
    if found is not None:
        likes = (free, weights, decays)
        found = Filter(*(value.to(like.dtype) for value, like in zip(found, likes, strict=True)))
    return dx, found, dsums


def _backward_of_segments(
    g: Tensor,
    dfinal: Tensor | None,
    x: Tensor | None,
    filters: Filter,
    segments: Segments,
    need_x: bool,
) -> tuple[Tensor | None, Filter | None]:
    """Return the gradients, document by document.

    Sums before chunks are computed again, which is cheap, so that only x is saved.
    """
    dx = g.new_zeros(g.shape) if need_x else None
    total = None if x is None else Filter(*map(torch.zeros_like, filters))
    for group in packed.groups(g, None, *segments, end_together=True):
        rows = states = None
        if x is not None:
            rows = group.gather(x)
            with full_precision(g.device):
                states = _states(rows, filters)
        last = None if dfinal is None else dfinal[group.members]
        du, found, _ = _backward(group.gather(g), last, rows, states, *filters, 0, None, need_x)
        if dx is not None and du is not None:
            group.scatter(du, dx)
        for value, part in zip(total or (), found or (), strict=True):
            value += part
    return dx, total


def _output_shape(x: Tensor, skip: int) -> tuple[int, ...]:
    return (x.shape[0], x.shape[1] - skip, *x.shape[2:])


def _fused(x: Tensor, filters: Filter) -> bool:
    """Return whether kernels compute the product: it decides the shape of the states, too."""
    return fused.supports(x, filters.free.shape[1], filters.rank)


def _states(x: Tensor, filters: Filter) -> Tensor:
    """Return the sums before every chunk."""
    if _fused(x, filters):
        return fused.sums_before_chunks(x, filters)
    return chunked.forward(x, None, filters, 0, working_dtype(x), outputs=False, keep=True)[2]


def _states_shape(x: Tensor, skip: int, filters: Filter, keep: bool) -> tuple[int, ...]:
    batch, time, heads, channels = x.shape
    if _fused(x, filters):
        slots, *rest = fused.states_shape(x, skip, filters.rank)
        return (slots if keep else 0, *rest)
    size = chunk_size(filters.free.shape[1], batch * (time - skip) * channels)
    chunks = -(-(time - skip) // size) if keep else 0
    return (heads, filters.rank, chunks, batch, channels)


class _Recurrent(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        free: Tensor,
        weights: Tensor,
        decays: Tensor,
        sums: Tensor | None,
        skip: int,
        segments: Segments | None,
    ) -> tuple[Tensor, Tensor]:
        learned = any(ctx.needs_input_grad[1:4])
        arguments = (x, free, weights, decays, sums, skip, segments)
        y, final, states = _forward(*arguments, keep=learned)
        # frozen filters keep no activations alive
        ctx.save_for_backward(x if learned else None, states, free, weights, decays)
        ctx.set_materialize_grads(False)
        ctx.skip, ctx.segments, ctx.has_sums = skip, segments, sums is not None
        ctx.output = (y.shape, y.dtype)
        return y, final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, dfinal: Tensor | None) -> Any:
        x, states, free, weights, decays = ctx.saved_tensors
        if g is None:
            if dfinal is None:
                return (None,) * 7
            g = dfinal.new_zeros(ctx.output[0], dtype=ctx.output[1])
        how = (ctx.skip, ctx.segments, ctx.needs_input_grad[0])
        dx, found, dsums = _backward(g, dfinal, x, states, free, weights, decays, *how)
        return dx, *(found or (None,) * 3), dsums if ctx.has_sums else None, None, None


@torch.library.custom_op("toeplix::recurrent", mutates_args=())
def compiled_recurrent(
    x: Tensor,
    free: Tensor,
    weights: Tensor,
    decays: Tensor,
    sums: Tensor | None,
    skip: int,
    starts: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    segments = _segments(starts, lengths)
    return _forward(x, free, weights, decays, sums, skip, segments, keep)


@compiled_recurrent.register_fake
def _(
    x: Tensor,
    free: Tensor,
    weights: Tensor,
    decays: Tensor,
    sums: Tensor | None,
    skip: int,
    starts: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    filters, dtype = Filter(free, weights, decays), working_dtype(x)
    batch, _, heads, channels = x.shape
    rows = batch if starts is None else starts.shape[0]
    final = x.new_empty(rows, filters.rank, heads, channels, dtype=dtype)
    shape = _states_shape(x, skip, filters, keep and starts is None)
    states = x.new_empty(shape, dtype=dtype)
    return x.new_empty(_output_shape(x, skip)), final, states


@torch.library.custom_op("toeplix::recurrent_gradient", mutates_args=())
def compiled_gradient(
    g: Tensor,
    dfinal: Tensor | None,
    x: Tensor | None,
    states: Tensor,
    free: Tensor,
    weights: Tensor,
    decays: Tensor,
    skip: int,
    starts: Tensor | None,
    lengths: Tensor | None,
    need_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients; those that are not needed are empty tensors."""
    segments = _segments(starts, lengths)
    dx, found, dsums = _backward(
        g, dfinal, x, states, free, weights, decays, skip, segments, need_x
    )
    dfree, dweights, ddecays = found or (g.new_empty(0) for _ in range(3))
    absent = g.new_empty(0)
    return (
        absent if dx is None else dx,
        dfree,
        dweights,
        ddecays,
        absent.clone() if dsums is None else dsums,
    )


@compiled_gradient.register_fake
def _(
    g: Tensor,
    dfinal: Tensor | None,
    x: Tensor | None,
    states: Tensor,
    free: Tensor,
    weights: Tensor,
    decays: Tensor,
    skip: int,
    starts: Tensor | None,
    lengths: Tensor | None,
    need_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dx = g.new_empty(_output_shape(g, -skip) if need_x else (0,))
    dfree, dweights, ddecays = (
        g.new_empty(0) if x is None else each.new_empty(each.shape)
        for each in (free, weights, decays)
    )
    if starts is not None:
        return dx, dfree, dweights, ddecays, g.new_empty(0)
    shape = (g.shape[0], weights.shape[1], *g.shape[2:])
    return dx, dfree, dweights, ddecays, g.new_empty(shape, dtype=working_dtype(g))


def _segments(starts: Tensor | None, lengths: Tensor | None) -> Segments | None:
    return None if starts is None or lengths is None else Segments(starts, lengths)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Forward) -> None:
    x, free, weights, decays, _, ctx.skip, starts, lengths, _ = inputs
    learned = any(ctx.needs_input_grad[1:4])
    saved = (x if learned else None, output[2], free, weights, decays, starts, lengths)
    ctx.save_for_backward(*saved)
    ctx.mark_non_differentiable(output[2])


def _compiled_backward(ctx: Any, g: Tensor, dfinal: Tensor, _: Tensor) -> Any:
    x, states, free, weights, decays, starts, lengths = ctx.saved_tensors
    found = compiled_gradient(
        g,
        dfinal,
        x,
        states,
        free,
        weights,
        decays,
        ctx.skip,
        starts,
        lengths,
        ctx.needs_input_grad[0],
    )
    kept = zip(found, ctx.needs_input_grad[:5], strict=True)
    return *(value if need else None for value, need in kept), None, None, None, None


compiled_recurrent.register_autograd(_compiled_backward, setup_context=_save)
