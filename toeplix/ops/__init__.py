"""The causal Toeplitz product, on which all Toeplitz and Hyena models are built.

    y[b, t, h, c] = sum over s <= t of kernel[h, t - s] * x[b, s, h, c]

    toeplitz             a whole sequence             dense.py blocked.py fft.py halving.py triton/
    toeplitz_packed      documents laid end to end    packed.py
    toeplitz_padded      batches with padding         packed.py
    toeplitz_windowed    longer than the kernel       windowed.py
    toeplitz_continued   the next chunk of a prompt   windowed.py
    decoder              one position at a time       decoding/
    toeplitz_recurrent   recurrent filters, in O(t)   recurrent.py chunked.py
    toeplitz_lookup      a mask of linear attention   lookup.py

Axes: b batch, t time, h heads, c channels of one head. Of these b, h and c may be 0, in every call:
the result is as empty; t and the number of taps are at least 1. Rows are independent, bit for bit:
whatever one holds (1e20, inf, NaN), no bit of another changes, in a product, its gradient for x, or a
decoder.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from toeplix.ops import autograd, dispatch
from toeplix.ops.checks import (
    check_horizon,
    check_kernel,
    check_mask,
    check_offsets,
    check_past,
    check_path,
    check_product,
)
from toeplix.ops.decoding.base import Decoder
from toeplix.ops.decoding.history import History
from toeplix.ops.decoding.online import Online
from toeplix.ops.decoding.recurrent import RecurrentDecoder
from toeplix.ops.dense import toeplitz_matrix
from toeplix.ops.lookup import toeplitz_lookup, toeplitz_lookup_recurrent
from toeplix.ops.recurrent import RecurrentState, recurrent_kernel, toeplitz_recurrent
from toeplix.ops.segments import segments_from_mask, segments_from_offsets
from toeplix.ops.windowed import toeplitz_continued, toeplitz_windowed

__all__ = [
    "Decoder",
    "RecurrentDecoder",
    "RecurrentState",
    "decoder",
    "recurrent_kernel",
    "toeplitz",
    "toeplitz_continued",
    "toeplitz_lookup",
    "toeplitz_lookup_recurrent",
    "toeplitz_matrix",
    "toeplitz_packed",
    "toeplitz_padded",
    "toeplitz_recurrent",
    "toeplitz_windowed",
]

DECODERS: dict[str, type[Decoder]] = {"history": History, "online": Online}


def toeplitz(
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h n"],
    *,
    path: str = "auto",
    exact: bool = False,
) -> Float[Tensor, "b t h c"]:
    """Return the causal product `y[b,t,h,c] = sum_{s<=t} kernel[h,t-s] x[b,s,h,c]`, in x's dtype.

    Every head has one filter, shared by its channels. The kernel may have more taps than x has
    positions; the additional taps are not used.

    Args:
        x: sequences `(b, t, h, c)`, of any floating dtype and layout. Half precision is computed
            in float32 inside, with or without autocast; the path `triton` adds in float32, but
            multiplies in the dtype of x, to which it rounds the filter.
        kernel: filters `(h, n)` with `n >= t`.
        path: `"auto"` takes the fastest by device and sizes (a measured rule, see
            `toeplix.ops.dispatch`); `"dense"`, `"blocked"`, `"fft"`, `"halving"` name one, and
            so does `"triton"` for GPU kernels, where Triton is installed.
        exact: with True, no rounding from the future reaches the past: whatever finite values
            follow position t, the outputs up to t stay the same bit for bit. The path `fft` does
            not promise this: its rounding errors scale with the largest value of the whole
            sequence, so a spike of 1e4 in the future moves the past by about 1e-4 in float32.

    Differentiable to any order in x and kernel (reverse mode); under `torch.compile` to first order.

    >>> import torch
    >>> x = torch.tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1)
    >>> kernel = torch.tensor([[1.0, 2.0, 3.0]])
    >>> toeplitz(x, kernel).flatten().tolist()
    [1.0, 12.0, 123.0]
    """
    check_product(x, kernel)
    return autograd.product(x, kernel, check_path(path, exact))


def toeplitz_packed(
    x: Float[Tensor, "1 t h c"],
    kernel: Float[Tensor, "h n"],
    offsets: Int[Tensor, " documents_plus_1"] | list[int],
    *,
    path: str = "auto",
    exact: bool = False,
) -> Float[Tensor, "1 t h c"]:
    """Return the product of packed documents, each computed independently of the others.

    Document i has the positions `offsets[i] .. offsets[i + 1]`, as in the `cu_seqlens` of attention
    kernels; offsets rise from 0 to t, and empty documents are allowed. The kernel needs as many taps
    as the longest document has positions. The cost is close to the sum over documents.
    """
    check_product(x, kernel, beyond=True)
    if x.shape[0] != 1:
        raise ValueError(f"packed documents lie in one row: x must be (1, t, h, c), got {x.shape}")
    bounds = check_offsets(offsets)
    segments = segments_from_offsets(bounds, x.shape[1])
    return autograd.product(x, kernel, check_path(path, exact), segments)


def toeplitz_padded(
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h n"],
    mask: Bool[Tensor, "b t"] | Int[Tensor, "b t"],
    *,
    path: str = "auto",
    exact: bool = False,
) -> Float[Tensor, "b t h c"]:
    """Return the product of a batch padded on the left, the right or both; outputs at padding are zero.

    `mask` is true (or 1) at positions that are not padding, as tokenizers return it. The first such
    position of a row is its time 0, so the values equal those of the document without padding.
    """
    check_product(x, kernel, beyond=True)
    real = check_mask(mask, x)
    return autograd.product(x, kernel, check_path(path, exact), segments_from_mask(real))


def decoder(
    kernel: Float[Tensor, "h n"],
    past: Float[Tensor, "b p h c"],
    *,
    horizon: int | None = None,
    kind: str = "auto",
) -> Decoder:
    """Return a decoding state, which computes the outputs of `toeplitz_windowed` one position at a time.

    Args:
        kernel: filters `(h, n)`; the receptive field of a step is the last n positions.
        past: inputs before the first step (the prompt), `(b, p, h, c)`; p may be 0.
        horizon: the maximum number of decode steps, which bounds the memory. None: no limit.
        kind: `"history"` keeps the inputs in the receptive field and reads all of them at every step;
            `"online"` keeps their contributions to later outputs, and is near-linear; `"auto"` selects
            the faster one by the size of the receptive field, as measured.

    >>> import torch
    >>> state = decoder(torch.tensor([[1.0, 2.0, 3.0]]), past=torch.zeros(1, 0, 1, 1))
    >>> [state.step(torch.tensor([[[v]]])).item() for v in (1.0, 10.0, 100.0)]
    [1.0, 12.0, 123.0]
    """
    check_kernel(kernel)
    check_past(kernel, past)
    check_horizon(horizon)
    if kind == "auto":
        reach = min(kernel.shape[-1], past.shape[1] + (horizon or kernel.shape[-1]))
        longest = dispatch.DECODE_HISTORY.get(past.device.type, dispatch.DECODE_HISTORY["cpu"])
        kind = "history" if reach <= longest else "online"
    if kind not in DECODERS:
        raise ValueError(f"kind={kind!r} is unknown: use 'auto' or one of {', '.join(DECODERS)}")
    return DECODERS[kind](kernel, past, horizon)
