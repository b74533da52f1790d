"""Token mixers as linear maps along time, for `contributions`.

    toeplitz   M = W_out F W_in, with the causal Toeplitz product F; a gate multiplies by its value
    lookup     M = W_out A S W_v, with A[t, s] = w[t - s] (q[t] . k[s]) and the short convolution S of
               values; queries and keys are fixed at their values for the text, as the factor of the
               norm is. Without a text ("filters_only") every score q . k is replaced by 1

Biases are omitted. What a mixer computes in float32 between projections in half precision is in float32
here too.
"""

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from toeplix.mixers.base import TokenMixer
from toeplix.mixers.lookup import MIN_MEAN_SQUARE, LookupMixer
from toeplix.mixers.quantized import QuantizedLinear
from toeplix.mixers.short_convolution import short_convolution
from toeplix.mixers.toeplitz import ToeplitzMixer
from toeplix.ops import toeplitz_matrix

Map = Callable[[Tensor], Tensor]  # linear, on (n, t, d)


def without_text(mixer: TokenMixer, time: int) -> Map:
    """Return a mixer as a linear map without what depends on its input."""
    return MAPS[type(mixer)](mixer, None, time)


def at_text(mixer: TokenMixer, normed: Float[Tensor, "1 t d"]) -> Map:
    """Return a mixer as a linear map, with all else fixed at its values on this input."""
    return MAPS[type(mixer)](mixer, normed, normed.shape[1])


def _toeplitz(module: TokenMixer, normed: Tensor | None, time: int) -> Map:
    mixer = cast(ToeplitzMixer, module)
    gate = None if normed is None or mixer.gate is None else mixer.gate(normed)
    slopes: list[Tensor | None] = [None for _ in mixer.filters]
    if normed is not None:
        y = mixer.project_in(normed).unflatten(-1, (mixer.heads, -1))
        for index, layer in enumerate(mixer.filters):
            if index:
                curved = mixer.between(y)
                slopes[index] = torch.where(y == 0, 0.5, curved / torch.where(y == 0, 1.0, y))
                y = curved
            y = layer(y)

    def through(x: Tensor) -> Tensor:
        y = linear(mixer.project_in, x).unflatten(-1, (mixer.heads, -1))
        for layer, slope in zip(mixer.filters, slopes, strict=True):
            y = layer.product(y if slope is None else y * slope)
        y = y.flatten(2)
        return linear(mixer.project_out, y if gate is None else y * gate)

    return through


def _lookup(module: TokenMixer, normed: Tensor | None, time: int) -> Map:
    mixer = cast(LookupMixer, module)
    taps = mixer.filter_taps(time)
    weights = toeplitz_matrix(taps.to(torch.promote_types(taps.dtype, torch.float32)))  # (h, t, s)
    factor: Tensor | float = 1.0
    if normed is not None:
        q, k, v = mixer.queries_keys_values(normed)
        weights = weights * torch.einsum("bthe,bshe->hts", q, k)
        y = torch.einsum("hts,bshc->bthc", weights, v)
        factor = (y.square().mean(-1, keepdim=True) + MIN_MEAN_SQUARE).rsqrt()
    keys = 2 * mixer.heads * mixer.keys  # channels of queries and keys, which come first

    def through(x: Tensor) -> Tensor:
        v = linear(mixer.project_in, x)[..., keys:].to(weights.dtype)
        if isinstance(mixer.short, nn.Conv1d):
            padded = nn.functional.pad(v, (0, 0, mixer.taps - 1, 0))
            v = short_convolution(padded, mixer.short.weight[keys:].to(v.dtype))
        v = v.unflatten(-1, (mixer.heads, -1))
        y = torch.einsum("hts,nshc->nthc", weights, v) * factor
        return linear(mixer.project_out, y.flatten(2).to(x.dtype))

    return through


MAPS: dict[type[TokenMixer], Callable[[TokenMixer, Tensor | None, int], Map]] = {
    ToeplitzMixer: _toeplitz,
    LookupMixer: _lookup,
}


def linear(layer: nn.Module, x: Tensor) -> Tensor:
    """Apply a projection without its bias."""
    if isinstance(layer, QuantizedLinear):
        return nn.functional.linear(x, layer.dequantized(x.dtype))
    return nn.functional.linear(x, layer.weight) if isinstance(layer, nn.Linear) else x
