"""Lookup as differentiable functions, and as operators for torch.compile.

The working precision and the layout are chosen here, and values that are not finite are kept from outputs
before them. Saved for backward are q, k, v and, with recurrent filters, the sums before every chunk;
tiles are computed again. A lookup is differentiable once. Recurrent filters are computed by
lookup_chunks.py, or where they run by the kernels of triton/lookup.py.
"""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import Function, once_differentiable

from toeplix.ops import lookup_chunks, lookup_tiles
from toeplix.ops.paths import full_precision, working_dtype
from toeplix.ops.triton import lookup as fused


def tiled(q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
    """Return the lookup by block rows; arguments are not checked here."""
    if _unknown_values(v):
        return compiled_tiled(q, k, v, kernel)
    if torch.is_grad_enabled() and any(each.requires_grad for each in (q, k, v, kernel)):
        return _Tiled.apply(q, k, v, kernel)
    return _tiled(q, k, v, kernel)


def chunked(
    q: Tensor, k: Tensor, v: Tensor, weights: Tensor, decays: Tensor, sums: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the lookup by chunks, and the sums (b, h, r e, c) after it; arguments are not checked."""
    inputs = (q, k, v, weights) if sums is None else (q, k, v, weights, sums)
    recorded = torch.is_grad_enabled() and any(each.requires_grad for each in inputs)
    if _unknown_values(v):
        return compiled_chunked(q, k, v, weights, decays, sums, recorded)[:2]
    if recorded:
        return _Chunked.apply(q, k, v, weights, decays, sums)
    return _chunked(q, k, v, weights, decays, sums, False)[:2]


def _unknown_values(x: Tensor) -> bool:
    """Return whether values cannot be looked at (are all finite?): then a lookup is an operator."""
    return torch.compiler.is_compiling() or x.is_meta or isinstance(x, FakeTensor)


def _head_major(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (b, t, h, .) sequences as contiguous (b, h, t, .) in the working precision of v."""
    dtype = working_dtype(v)
    return _turned(q, dtype), _turned(k, dtype), _turned(v, dtype)


def _turned(part: Tensor, dtype: torch.dtype) -> Tensor:
    return part.transpose(1, 2).to(dtype).contiguous()


def _back(part: Tensor, like: Tensor) -> Tensor:
    return part.transpose(1, 2).to(like.dtype).contiguous()


def _lost(k: Tensor, v: Tensor, taps: int | None) -> tuple[Tensor, Tensor]:
    """Return the positions (b, t, h) that are not finite, and those that read one within `taps` lags."""
    wrong = ~(k.isfinite().all(-1) & v.isfinite().all(-1))
    count = wrong.cumsum(1)
    if taps is not None and taps < count.shape[1]:
        count = torch.cat([count[:, :taps], count[:, taps:] - count[:, :-taps]], 1)
    return wrong, count > 0


def _host_may_look(x: Tensor) -> bool:
    """Return whether the host can ask at no cost if values are finite, and usually save their removal.

    It would have to wait for an accelerator, where values that are not finite are always removed.
    """
    return x.device.type == "cpu"


def _tiled(q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
    y = v.new_empty(*q.shape[:3], v.shape[-1])
    if y.numel() == 0 or q.shape[-1] == 0:
        return y.zero_()
    taps = kernel.to(working_dtype(v))
    with full_precision(v.device):
        if _host_may_look(v):
            lookup_tiles.forward(*_head_major(q, k, v), kernel=taps, y=y)
            # if any is not finite the sum is not; ten times as fast as asking all
            if y.sum().isfinite():
                return y
        # in a tile a later value meets a zero, which makes NaN of what is not finite: remove it
        wrong, reading = _lost(k, v, kernel.shape[1])
        k, v = (part.masked_fill(wrong[..., None], 0) for part in (k, v))
        lookup_tiles.forward(*_head_major(q, k, v), kernel=taps, y=y)
    return y.masked_fill_(reading[:, -q.shape[1] :, :, None], float("nan"))


def _tiled_gradient(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, kernel: Tensor, need_kernel: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if g.numel() == 0 or q.shape[-1] == 0:
        return tuple(torch.zeros_like(each) for each in (q, k, v, kernel))  # type: ignore[return-value]
    dtype = working_dtype(v)
    with full_precision(v.device):
        parts = _head_major(q, k, v)
        found = lookup_tiles.gradient(
            _turned(g, dtype), *parts, kernel=kernel.to(dtype), need_kernel=need_kernel
        )
        dkernel = g.new_empty(0) if found.kernel is None else found.kernel.to(kernel.dtype)
        return _back(found.q, q), _back(found.k, k), _back(found.v, v), dkernel


def _chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    decays: Tensor,
    sums: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    if v.numel() == 0 or q.shape[-1] == 0:
        batch, _, heads, size = q.shape
        shape, dtype = (batch, heads, len(decays) * size, v.shape[-1]), working_dtype(v)
        total = v.new_zeros(shape, dtype=dtype) if sums is None else sums.clone()
        states = v.new_zeros(_states_shape(q, k, v, len(decays), keep), dtype=dtype)
        return v.new_zeros(v.shape), total, states
    how = (weights, decays, sums, keep)
    with full_precision(v.device):
        if _host_may_look(v):
            y, total, states = _by_chunks(q, k, v, *how)
            if total.sum().isfinite():  # a sum that is not finite remains so
                return y, total, states
        wrong, reading = _lost(k, v, None)
        k, v = (part.masked_fill(wrong[..., None], 0) for part in (k, v))
        y, total, states = _by_chunks(q, k, v, *how)
    y.masked_fill_(reading[..., None], float("nan"))
    return y, total.masked_fill(reading[:, -1, :, None, None], float("nan")), states


def _by_chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    decays: Tensor,
    sums: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs, the sums after them, and those before every chunk."""
    if fused.supports(q, k, v, len(decays)):
        begin = None if sums is None else _rank_major(sums, len(decays))
        y, states = fused.forward(q, k, v, weights, decays.expand_as(weights), begin)
        return y, _head_major_sums(states[-1]), states if keep else states[:0].clone()
    y, dtype = v.new_empty(v.shape), working_dtype(v)
    begin = None if sums is None else sums.to(dtype)
    parts = _head_major(q, k, v)
    return y, *lookup_chunks.forward(*parts, weights, decays, begin, y, keep)


def _rank_major(sums: Tensor, rank: int) -> Tensor:
    """Return sums (b, h, r e, c) as the kernels have them, (b, r, h, e, c)."""
    return sums.unflatten(2, (rank, -1)).transpose(1, 2)


def _head_major_sums(sums: Tensor) -> Tensor:
    """Return sums (b, r, h, e, c) as a new tensor (b, h, r e, c)."""
    return sums.transpose(1, 2).clone(memory_format=torch.contiguous_format).flatten(2, 3)


def _chunked_gradient(
    g: Tensor,
    final: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    decays: Tensor,
    states: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k, v, weights and of the sums before the first position."""
    dtype = working_dtype(v)
    if v.numel() == 0 or q.shape[-1] == 0:
        batch, _, heads, size = q.shape
        none = v.new_zeros(batch, heads, len(decays) * size, v.shape[-1], dtype=dtype)
        dq, dk, dv, dweights = (torch.zeros_like(each) for each in (q, k, v, weights))
        return dq, dk, dv, dweights, none if final is None else final.clone()
    with full_precision(v.device):
        if fused.supports(q, k, v, len(decays)):
            last = None if final is None else _rank_major(final, len(decays))
            table = decays.expand_as(weights)
            got = fused.backward(g, last, q, k, v, weights, table, states, need_decays=False)
            dsums = _head_major_sums(got.state)
            return got.q, got.k, got.v, got.weights.to(weights.dtype), dsums
        queries, keys, values = _head_major(q, k, v)
        found = lookup_chunks.gradient(
            _turned(g, dtype), final, queries, keys, values, weights, decays, states
        )
        dq, dk, dv = _back(found.q, q), _back(found.k, k), _back(found.v, v)
        return dq, dk, dv, found.weights.to(weights.dtype), found.sums


def _states_shape(q: Tensor, k: Tensor, v: Tensor, rank: int, keep: bool) -> tuple[int, ...]:
    """Return the shape of the sums that are kept for backward: it depends on what computes them."""
    batch, time, heads, keys = q.shape
    if fused.supports(q, k, v, rank):
        slots, *rest = fused.states_shape(q, v, rank)
        return (slots if keep else 0, *rest)
    chunks = -(-time // min(lookup_chunks.CHUNK_LENGTH, time)) if keep else 0
    return (batch, heads, chunks, rank * keys, v.shape[-1])


class _Tiled(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v, kernel)
        return _tiled(q, k, v, kernel)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        need = ctx.needs_input_grad
        q, k, v, kernel = ctx.saved_tensors
        found = _tiled_gradient(g, q, k, v, kernel, need[3])
        return tuple(part if wanted else None for part, wanted in zip(found, need, strict=True))


class _Chunked(Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        weights: Tensor,
        decays: Tensor,
        sums: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        y, total, states = _chunked(q, k, v, weights, decays, sums, True)
        ctx.save_for_backward(q, k, v, weights, decays, states)
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, final: Tensor | None) -> Any:
        if g is None and final is None:
            return (None,) * 6
        q, k, v, *rest = ctx.saved_tensors
        upper = torch.zeros_like(v) if g is None else g
        *found, dsums = _chunked_gradient(upper, final, q, k, v, *rest)
        return *found, None, dsums if ctx.needs_input_grad[5] else None


@torch.library.custom_op("toeplix::lookup", mutates_args=())
def compiled_tiled(q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
    return _tiled(q, k, v, kernel)


@compiled_tiled.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
    return v.new_empty(*q.shape[:3], v.shape[-1])


@torch.library.custom_op("toeplix::lookup_gradient", mutates_args=())
def compiled_tiled_gradient(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, kernel: Tensor, need_kernel: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _tiled_gradient(g, q, k, v, kernel, need_kernel)


@compiled_tiled_gradient.register_fake
def _(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, kernel: Tensor, need_kernel: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv = (each.new_empty(each.shape) for each in (q, k, v))
    return dq, dk, dv, kernel.new_empty(kernel.shape) if need_kernel else g.new_empty(0)


def _save_tiled(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _compiled_tiled_backward(ctx: Any, g: Tensor) -> Any:
    need = ctx.needs_input_grad
    found = compiled_tiled_gradient(g, *ctx.saved_tensors, need[3])
    return tuple(part if wanted else None for part, wanted in zip(found, need, strict=True))


compiled_tiled.register_autograd(_compiled_tiled_backward, setup_context=_save_tiled)


@torch.library.custom_op("toeplix::lookup_recurrent", mutates_args=())
def compiled_chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    decays: Tensor,
    sums: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _chunked(q, k, v, weights, decays, sums, keep)


@compiled_chunked.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    decays: Tensor,
    sums: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, _, heads, keys = q.shape
    shape = (batch, heads, len(decays) * keys, v.shape[-1])
    total = v.new_empty(shape, dtype=working_dtype(v))
    states = total.new_empty(_states_shape(q, k, v, len(decays), keep))
    return v.new_empty(v.shape), total, states


@torch.library.custom_op("toeplix::lookup_recurrent_gradient", mutates_args=())
def compiled_chunked_gradient(
    g: Tensor,
    final: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    decays: Tensor,
    states: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _chunked_gradient(g, final, q, k, v, weights, decays, states)


@compiled_chunked_gradient.register_fake
def _(
    g: Tensor,
    final: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    decays: Tensor,
    states: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv, dweights = (each.new_empty(each.shape) for each in (q, k, v, weights))
    batch, _, heads, keys = q.shape
    shape = (batch, heads, len(decays) * keys, v.shape[-1])
    return dq, dk, dv, dweights, v.new_empty(shape, dtype=working_dtype(v))


def _save_chunked(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:5], output[2])
    ctx.mark_non_differentiable(output[2])


def _compiled_chunked_backward(ctx: Any, g: Tensor, final: Tensor, _: Tensor) -> Any:
    *found, dsums = compiled_chunked_gradient(g, final, *ctx.saved_tensors)
    return *found, None, dsums if ctx.needs_input_grad[5] else None, None


compiled_chunked.register_autograd(_compiled_chunked_backward, setup_context=_save_chunked)
