"""Lookup: linear attention under a causal Toeplitz mask.

    y[b, t, h, c] = sum over s <= t of w[h, t - s] * (q[b, t, h] . k[b, s, h]) * v[b, s, h, c]

    lookup_dense                the whole matrix: the definition, and the oracle of the tests
    toeplitz_lookup             free filters, a sliding window beyond their n taps
        path "tiles"            block rows of (Q K^T * T) V: short sequences             lookup_tiles.py
        path "products"         e Toeplitz products, y = sum over i of q_i * T(k_i v): long filters
    toeplitz_lookup_recurrent   w[l] = sum_j weights[j] decays[j]^l, in O(t)           lookup_chunks.py
    lookup_step                 one position after a state

The state of a recurrent filter is r matrices for every head, whatever the length:

    sums[j] = sum over s <= t of decays[j]^(t - s) * k[s] v[s]^T

Axes: b batch, t time, h heads, e channels of queries and keys, c channels of values, r decays.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.utils.checkpoint import checkpoint

from toeplix.ops import dispatch, lookup_autograd
from toeplix.ops.checks import check_kernel, check_sequence
from toeplix.ops.dense import toeplitz_matrix
from toeplix.ops.paths import full_precision, working_dtype
from toeplix.ops.recurrent_autograd import check_decays
from toeplix.ops.triton import lookup as fused
from toeplix.ops.windowed import toeplitz_continued

PATHS = ("tiles", "products")


def lookup_dense(
    q: Float[Tensor, "b t h e"],
    k: Float[Tensor, "b t h e"],
    v: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h n"],
) -> Float[Tensor, "b t h c"]:
    """Return the definition of `toeplitz_lookup`, in O(t^2) memory."""
    time = q.shape[1]
    taps = torch.nn.functional.pad(kernel[:, :time], (0, max(0, time - kernel.shape[1])))
    scores = torch.einsum("bthe,bshe->bhts", q, k) * toeplitz_matrix(taps)
    return torch.einsum("bhts,bshc->bthc", scores, v)


def toeplitz_lookup(
    q: Float[Tensor, "b t h e"],
    k: Float[Tensor, "b s h e"],
    v: Float[Tensor, "b s h c"],
    kernel: Float[Tensor, "h n"],
    *,
    path: str = "auto",
) -> Float[Tensor, "b t h c"]:
    """Return the lookup with free filters, in v's dtype; beyond n positions they are a sliding window.

    Args:
        q: queries `(b, t, h, e)`, of any floating dtype and layout. Half precision is computed in
            float32 inside, with or without autocast.
        k: keys `(b, s, h, e)`. Keys and values may begin before the queries (s > t): the last t
            positions are those of q. Only the last n - 1 before them are read.
        v: values `(b, s, h, c)`.
        kernel: filters `(h, n)`.
        path: `"tiles"` takes O(s n) time and is causal bit for bit: outputs up to t stay the same
            whatever follows t, NaN and infinity included. `"products"` takes O(e s log n) and is causal
            to rounding. `"auto"` chooses by length (`dispatch.LOOKUP_TILES`).

    Never more than a block row of the matrix is in memory. Differentiable once in all tensors.

    >>> one = torch.ones(1, 3, 1, 1)
    >>> v = torch.tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1)
    >>> toeplitz_lookup(one, one, v, torch.tensor([[1.0, 2.0, 3.0]])).flatten().tolist()
    [1.0, 12.0, 123.0]
    """
    _check(q, k, v)
    check_kernel(kernel)
    if kernel.shape[0] != v.shape[2] or kernel.device != v.device:
        raise ValueError(
            f"kernel has {kernel.shape[0]} heads on {kernel.device} and v {v.shape[2]} on {v.device}: "
            "kernel must be (h, n) and v (b, s, h, c) with the same h and device"
        )
    if path == "auto":
        reach = min(kernel.shape[1], k.shape[1])
        path = "tiles" if q.shape[1] == 1 else free_path(v.device.type, reach, q.shape[3])
    if path not in PATHS:
        raise ValueError(f"path={path!r} is unknown: use 'auto' or one of {', '.join(PATHS)}")
    if path == "tiles":
        return lookup_autograd.tiled(q, k, v, kernel)
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, kernel))
    if recorded and torch.compiler.is_compiling():
        # the compiler's own way to compute again in backward: it does not trace autograd inside one
        again = partial(checkpoint, _product, use_reentrant=False)
        return _products(q, k, v, kernel, again)
    return (_Products.apply if recorded else _products)(q, k, v, kernel)


def free_path(device: str, reach: int, keys: int) -> str:
    """Return the path of free filters that reach so many positions, for a type of device."""
    longest = dispatch.LOOKUP_TILES.get(device, dispatch.LOOKUP_TILES["cpu"])
    return "tiles" if reach <= longest * keys else "products"


def _product(q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
    dtype, before = working_dtype(v), k.shape[1] - q.shape[1]
    x = k.to(dtype) * v.to(dtype)
    return q.to(dtype) * toeplitz_continued(x[:, before:], kernel.to(dtype), x[:, :before])


def _products(
    q: Tensor, k: Tensor, v: Tensor, kernel: Tensor, product: Callable[..., Tensor] = _product
) -> Tensor:
    """Return the sum over key channels i of `q_i * T(k_i v)`."""
    total = v.new_zeros(*q.shape[:3], v.shape[3], dtype=working_dtype(v))
    with full_precision(v.device):
        for i in range(q.shape[3]):
            total = total + product(q[..., i : i + 1], k[..., i : i + 1], v, kernel)
    return total.to(v.dtype)


class _Products(Function):
    """Computes every product again in backward: only q, k and v are saved."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, kernel: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v, kernel)
        return _products(q, k, v, kernel)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        q, k, v, kernel = ctx.saved_tensors
        dq, dk = torch.empty_like(q), torch.empty_like(k)
        dv, dkernel = (torch.zeros_like(each, dtype=working_dtype(v)) for each in (v, kernel))
        with full_precision(v.device):
            for i in range(q.shape[3]):
                parts = (q[..., i : i + 1], k[..., i : i + 1], v, kernel)
                leaves = [part.detach().requires_grad_() for part in parts]
                with torch.enable_grad():
                    y = _product(*leaves)
                found = torch.autograd.grad(y, leaves, g.to(y.dtype))
                dq[..., i : i + 1], dk[..., i : i + 1] = found[:2]
                dv += found[2]
                dkernel += found[3]
        return dq, dk, dv.to(v.dtype), dkernel.to(kernel.dtype)


def toeplitz_lookup_recurrent(
    q: Float[Tensor, "b t h e"],
    k: Float[Tensor, "b t h e"],
    v: Float[Tensor, "b t h c"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, " r"],
    *,
    state: Float[Tensor, "b r h e c"] | None = None,
) -> tuple[Float[Tensor, "b t h c"], Float[Tensor, "b r h e c"]]:
    """Return the lookup with recurrent filters, computed in O(t), and the state after it.

    Args:
        q: queries, as for `toeplitz_lookup`.
        k: keys, of as many positions as q.
        v: values, of as many positions as q.
        weights: of the decays, `(h, r)`.
        decays: in (0, 1], `(r,)`, which get no gradient.
        state: the sums after the positions before q, as an earlier call returned them. None: q is the
            beginning.

    Causality is exact: outputs up to t stay the same bit for bit whatever follows t. From its first key
    or value that is not finite on, a head's outputs are NaN. Differentiable once in q, k, v, weights and
    the state.

    >>> one = torch.ones(1, 4, 1, 1)
    >>> v = torch.tensor([1.0, 0.0, 0.0, 10.0]).view(1, 4, 1, 1)
    >>> y, sums = toeplitz_lookup_recurrent(one, one, v, torch.ones(1, 1), torch.tensor([0.5]))
    >>> y.flatten().tolist(), sums.item()
    ([1.0, 0.5, 0.25, 10.125], 10.125)
    """
    decays = _check_recurrent(q, k, v, weights, decays, state)
    sums = None if state is None else state.transpose(1, 2).flatten(2, 3)
    y, sums = lookup_autograd.chunked(q, k, v, weights, decays, sums)
    return y, sums.unflatten(2, (len(decays), q.shape[3])).transpose(1, 2)


def lookup_recurrent_whole(
    q: Float[Tensor, "b t h e"],
    k: Float[Tensor, "b t h e"],
    v: Float[Tensor, "b t h c"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, " r"],
) -> Float[Tensor, "b t h c"]:
    """Return the outputs of `toeplitz_lookup_recurrent` for a whole sequence, without a state.

    The kernels of triton/lookup.py compute chunks at every length. Where they do not run, block rows are
    faster than states for short sequences (`dispatch.LOOKUP_CHUNKS`).
    """
    if takes_chunks(v.device.type, q.shape[1]) or _kernels_run(q, k, v, len(decays)):
        return toeplitz_lookup_recurrent(q, k, v, weights, decays)[0]
    decays = _check_recurrent(q, k, v, weights, decays, None)
    lags = torch.arange(q.shape[1], device=v.device, dtype=torch.float64)
    powers = (decays.double()[:, None] ** lags).to(weights.dtype)
    with full_precision(v.device):
        return toeplitz_lookup(q, k, v, weights @ powers, path="tiles")


def takes_chunks(device: str, time: int) -> bool:
    """Return whether recurrent filters are computed by chunks where their kernels do not run."""
    return time > dispatch.LOOKUP_CHUNKS.get(device, dispatch.LOOKUP_CHUNKS["cpu"])


def _kernels_run(q: Tensor, k: Tensor, v: Tensor, rank: int) -> bool:
    """Return whether kernels compute chunks.

    torch.compile cannot trace the search for Triton; on CUDA it needs Triton itself.
    """
    if torch.compiler.is_compiling():
        return v.device.type == "cuda" and fused.fits(q, k, v, rank)
    return fused.supports(q, k, v, rank)


@torch.no_grad()
def lookup_step(
    q: Float[Tensor, "b h e"],
    k: Float[Tensor, "b h e"],
    v: Float[Tensor, "b h c"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, " r"],
    state: Float[Tensor, "b r h e c"],
) -> Float[Tensor, "b h c"]:
    """Return the output at the next position in constant time; the state is changed in place."""
    sums = state.transpose(1, 2)  # (b, h, r, e, c), contiguous as the chunks return it
    batch, heads, rank, keys, channels = sums.shape
    written = (k[..., None] * v[..., None, :])[:, :, None].to(sums.dtype)
    torch.addcmul(written, sums, decays.to(sums.dtype)[:, None, None], out=sums)
    factors = weights[..., None].to(sums.dtype) * q[:, :, None].to(sums.dtype)  # (b, h, r, e)
    matrices = sums.reshape(batch * heads, rank * keys, channels)
    y = torch.bmm(factors.reshape(batch * heads, 1, rank * keys), matrices)
    return y.view(v.shape).to(v.dtype)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, each in (("q", q), ("k", k), ("v", v)):
        check_sequence(name, each)
    shape = (q.shape[0], k.shape[1], q.shape[2])
    if k.shape != (*shape, q.shape[3]) or v.shape[:3] != shape or q.shape[1] > k.shape[1]:
        raise ValueError(
            "q must be (b, t, h, e), k (b, s, h, e) and v (b, s, h, c) with the same b, h and e, and "
            f"s at least t, got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    if not q.device == k.device == v.device:
        raise ValueError(f"q is on {q.device}, k on {k.device} and v on {v.device}: move them")


def _check_recurrent(
    q: Tensor, k: Tensor, v: Tensor, weights: Tensor, decays: Tensor, state: Tensor | None
) -> Tensor:
    """Return the decays, as `check_decays` does."""
    _check(q, k, v)
    if q.shape[1] != k.shape[1]:
        raise ValueError(
            f"q has {q.shape[1]} positions and k {k.shape[1]}: give earlier positions as the state"
        )
    for name, value in (("weights", weights), ("decays", decays)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a tensor of a floating dtype, got {kind}")
    if decays.ndim != 1 or weights.shape != (v.shape[2], len(decays)):
        raise ValueError(
            f"weights must be (h, r) and decays (r,) with h={v.shape[2]} heads, got "
            f"{tuple(weights.shape)} and {tuple(decays.shape)}"
        )
    if decays.requires_grad:
        raise ValueError("decays get no gradient: pass decays.detach()")
    if not (torch.compiler.is_compiling() or decays.is_meta):
        decays = check_decays(decays)
    shape = (v.shape[0], len(decays), *k.shape[2:], v.shape[3])
    if state is not None and state.shape != shape:
        raise ValueError(f"state must be (b, r, h, e, c) = {shape}, got {tuple(state.shape)}")
    return decays


def lookup_continued(
    q: Float[Tensor, "b t h e"],
    sums: Float[Tensor, "b r h e c"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, " r"],
) -> Float[Tensor, "b t h c"]:
    """Return what the sums before the first of these positions contribute to their lookup.

    y[t] = sum over j of weights[j] decays[j]^(t + 1) q[t] sums[j]
    """
    dtype = sums.dtype
    powers = torch.arange(1, q.shape[1] + 1, device=q.device)
    curves = weights.double()[..., None] * decays.double()[:, None] ** powers
    with full_precision(q.device):
        spread = torch.einsum("bthe,hrt->bhtre", q.to(dtype), curves.to(dtype)).flatten(3)
        y = spread @ sums.transpose(1, 2).flatten(2, 3)
    return y.transpose(1, 2)
