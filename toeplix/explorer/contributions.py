"""Contributions of earlier tokens to a token along the linear path of a model.

Each layer adds the output of its filters to the residual stream. Without the channel layers, which act on
each position separately, this is a product of linear maps on (t, d):

    E = (I + M_L) ... (I + M_1),      M_l = W_out F_l W_in      contribution[t, s] = | E[t, s] x_s |

x_s is the embedding of token s after its norm, and F_l the causal Toeplitz product; biases are omitted.
Other norms, gates and nonlinearities between filters are replaced by linear maps in one of two ways
(`linearization`):

    "at_text"       each is fixed at its value for this text: a norm divides by the standard deviation at
                    this position, a gate multiplies by its value. If the channel layers add nothing, the
                    sum over s of E[t, s] x_s is the model's residual stream
    "filters_only"  each is replaced by the identity. In a flat model |E[t, s]| is then one number, tap
                    t - s of (delta + w_L) * ... * (delta + w_1)

In a lookup block F depends on the text: it has the weights w[t - s] (q[t] . k[s]), with queries and keys
fixed at their values ("at_text"), or w[t - s] alone ("filters_only"); see linear_maps.py. The first says
which tokens were looked up in this text, the second only at which distances the block looks.

Neither measures how much a prediction depends on a token: channel layers act on sums of contributions,
and may amplify or remove them.
"""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.explorer import linear_maps
from toeplix.explorer.linear_maps import Map
from toeplix.model import Block, LanguageModel, MixerLM

LINEARIZATIONS = ("at_text", "filters_only")
MAX_POSITIONS = 256
CHUNK = 32  # source positions that are computed together


@torch.no_grad()
def contributions(
    model: LanguageModel, tokens: Int[Tensor, " t"], linearization: str = "at_text"
) -> Float[Tensor, "t s"]:
    """Return the norm of the contribution of token s to position t; 0 above the diagonal."""
    if len(tokens) > MAX_POSITIONS:
        raise ValueError(f"{len(tokens)} tokens are too many: at most {MAX_POSITIONS}")
    parts = [
        carried.norm(dim=2) for carried in _carried(model, tokens, linearization)
    ]  # (s, t) of some sources each
    return torch.cat(parts).T


@torch.no_grad()
def arrivals(
    model: LanguageModel, tokens: Int[Tensor, " t"], linearization: str = "at_text"
) -> Float[Tensor, "t d"]:
    """Return the sum of the contributions of all tokens at each position."""
    return cast(Tensor, sum(carried.sum(0) for carried in _carried(model, tokens, linearization)))


def _carried(model: LanguageModel, tokens: Tensor, linearization: str) -> list[Tensor]:
    """Return E[t, s] x_s as tensors (s, t, d), one for each chunk of source positions."""
    if linearization not in LINEARIZATIONS:
        raise ValueError(
            f"linearization={linearization!r} must be one of {', '.join(LINEARIZATIONS)}"
        )
    maps, x = linear_path(model, tokens, linearization)
    found = []
    for first in range(0, len(tokens), CHUNK):
        sources = range(first, min(first + CHUNK, len(tokens)))
        alone = x.new_zeros(len(sources), *x.shape)
        for row, source in enumerate(sources):
            alone[row, source] = x[source]
        for layer in maps:
            alone = alone + layer(alone)
        found.append(alone)
    return found


def linear_path(
    model: LanguageModel, tokens: Tensor, linearization: str
) -> tuple[list[Map], Tensor]:
    """Return the maps M_1 ... M_L, and the embeddings (t, d) to which they are applied."""
    if not isinstance(model, MixerLM) or not all(
        type(block.token_mixer) in linear_maps.MAPS for block in model.blocks
    ):
        mixers = ", ".join(dict.fromkeys(model.config.mixers))
        raise ValueError(
            f"the model has the mixers {mixers}: only those of toeplitz and lookup are linear maps"
        )
    x = model.embed(tokens[None])
    maps, start = [], x[0]
    for block in model.blocks:
        if not block.mixer_first:
            x = x + block.channel_mixer(block.channel_norm(x))
        at_text = linearization == "at_text"
        without = linear_maps.without_text
        maps.append(_fixed_at(block, x) if at_text else without(block.token_mixer, len(tokens)))
        x = x + block.token_mixer(block.token_norm(x))
        if block.mixer_first:
            x = x + block.channel_mixer(block.channel_norm(x))
    return maps, start


def _fixed_at(block: Block, x: Float[Tensor, "1 t d"]) -> Map:
    """Return the mixer behind its norm as a linear map, both fixed at their values on x."""
    norm = block.token_norm
    centred = isinstance(norm, nn.LayerNorm)
    inner = x - x.mean(-1, keepdim=True) if centred else x
    eps = norm.eps if norm.eps is not None else torch.finfo(x.dtype).eps
    scale = (inner.square().mean(-1, keepdim=True) + eps).rsqrt()
    mixed = linear_maps.at_text(block.token_mixer, norm(x))

    def through(x: Tensor) -> Tensor:
        return mixed((x - x.mean(-1, keepdim=True) if centred else x) * scale * norm.weight)

    return through
