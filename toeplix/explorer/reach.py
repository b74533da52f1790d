"""Which earlier tokens reach a token: the linear path of a Toeplitz model through its filters.

Along the residual stream each layer adds what its filters make of it. Without the channel layers, which
look at one position only, this is a product of linear maps on (t, d):

    E = (I + M_L) ... (I + M_1),      M_l = W_out F_l W_in      reach[t, s] = | E[t, s] x_s |

x_s is the embedding of token s, F_l the causal Toeplitz product, biases are left out. What stands between
is nonlinear and has to be held somewhere:

    "filters"   norms, gates and nonlinearities between filters are taken for the identity. In a flat
                model |E[t, s]| is then one number, tap t - s of (delta + w_L) * ... * (delta + w_1)
    "text"      they are held at what they are in this text: a norm divides by the deviation that it
                found, a gate multiplies by the value that it had. If the channel layers add nothing, the
                sum over s of E[t, s] x_s is the model's own residual stream

Neither says how much a prediction depends on a token: channel layers see sums, and may double or
delete what arrives.
"""

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.mixers.toeplitz import ToeplitzMixer
from toeplix.model import Block, LanguageModel, MixerLM

HELD = ("text", "filters")
LONGEST = 256  # positions
CHUNK = 32  # sources that are followed at once
Map = Callable[[Tensor], Tensor]  # linear, on (s, t, d)


@torch.no_grad()
def reach(
    model: LanguageModel, tokens: Int[Tensor, " t"], held: str = "text"
) -> Float[Tensor, "t s"]:
    """How much of token s arrives at position t, in the units of the stream; 0 above the diagonal."""
    if len(tokens) > LONGEST:
        raise ValueError(f"{len(tokens)} tokens are too many: at most {LONGEST}")
    parts = [
        carried.norm(dim=2) for carried in _followed(model, tokens, held)
    ]  # (s, t) of some sources each
    return torch.cat(parts).T


@torch.no_grad()
def arrivals(
    model: LanguageModel, tokens: Int[Tensor, " t"], held: str = "text"
) -> Float[Tensor, "t d"]:
    """The sum over sources of what arrives."""
    return cast(Tensor, sum(carried.sum(0) for carried in _followed(model, tokens, held)))


def _followed(model: LanguageModel, tokens: Tensor, held: str) -> list[Tensor]:
    """E[t, s] x_s, (s, t, d) for chunks of sources."""
    if held not in HELD:
        raise ValueError(f"held={held!r} must be one of {', '.join(HELD)}")
    maps, x = linear_path(model, tokens, held)
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


def linear_path(model: LanguageModel, tokens: Tensor, held: str) -> tuple[list[Map], Tensor]:
    """The maps M_1 ... M_L, and the embeddings (t, d) that they start from."""
    if not isinstance(model, MixerLM) or model.config.arch != "toeplitz":
        raise ValueError(
            f"the model is {model.config.arch}: only Toeplitz models have a linear path"
        )
    x = model.embedding(tokens[None])
    maps, start = [], x[0]
    for block in model.blocks:
        if not block.mixer_first:
            x = x + block.channel_mixer(block.channel_norm(x))
        maps.append(_held(block, x) if held == "text" else _filters(block))
        x = x + block.token_mixer(block.token_norm(x))
        if block.mixer_first:
            x = x + block.channel_mixer(block.channel_norm(x))
    return maps, start


def _filters(block: Block) -> Map:
    """The mixer without its gate, norm and biases."""
    mixer = cast(ToeplitzMixer, block.token_mixer)

    def through(x: Tensor) -> Tensor:
        y = _linear(mixer.project_in, x).unflatten(-1, (mixer.heads, -1))
        for layer in mixer.filters:
            y = layer.product(y)
        return _linear(mixer.project_out, y.flatten(2))

    return through


def _held(block: Block, x: Float[Tensor, "1 t d"]) -> Map:
    """The mixer with its norm, gate and nonlinearities held at what they are on x."""
    mixer, norm = cast(ToeplitzMixer, block.token_mixer), block.token_norm
    centred = isinstance(norm, nn.LayerNorm)
    inner = x - x.mean(-1, keepdim=True) if centred else x
    eps = norm.eps if norm.eps is not None else torch.finfo(x.dtype).eps
    scale = (inner.square().mean(-1, keepdim=True) + eps).rsqrt()
    normed = norm(x)
    gate = mixer.gate(normed) if mixer.gate is not None else None
    slopes: list[Tensor | None] = [None]
    y = mixer.project_in(normed).unflatten(-1, (mixer.heads, -1))
    for index, layer in enumerate(mixer.filters):
        if index:
            curved = mixer.between(y)
            slopes.append(torch.where(y == 0, 0.5, curved / torch.where(y == 0, 1.0, y)))
            y = curved
        y = layer(y)

    def through(x: Tensor) -> Tensor:
        x = (x - x.mean(-1, keepdim=True) if centred else x) * scale * norm.weight
        y = _linear(mixer.project_in, x).unflatten(-1, (mixer.heads, -1))
        for layer, slope in zip(mixer.filters, slopes, strict=True):
            y = layer.product(y if slope is None else y * slope)
        y = y.flatten(2)
        return _linear(mixer.project_out, y if gate is None else y * gate)

    return through


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    """Without the bias."""
    return nn.functional.linear(x, layer.weight) if isinstance(layer, nn.Linear) else x
