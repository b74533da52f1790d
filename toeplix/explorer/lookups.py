"""What lookup blocks read: the weight of every earlier token for every query, of one block and head.

    A[t, s] = w_h[t - s] (q[t] . k[s])  for s <= t, else 0      y[t] = norm( sum over s of A[t, s] v[s] )

as in mixers/lookup.py. Weights have a sign: queries and keys are vectors of length 1, and filters may be
negative. The block reads the residual stream that the blocks before it have left for this text.
"""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.explorer.contributions import MAX_POSITIONS
from toeplix.mixers.lookup import LookupMixer
from toeplix.model import LanguageModel, MixerLM
from toeplix.ops import toeplitz_matrix


def lookup_heads(model: LanguageModel) -> dict[int, int]:
    """Return the heads of each lookup block by the number of the block; empty if there are none."""
    if not isinstance(model, MixerLM):
        return {}
    mixers = {number: block.token_mixer for number, block in enumerate(model.blocks)}
    return {n: mixer.heads for n, mixer in mixers.items() if isinstance(mixer, LookupMixer)}


@torch.no_grad()
def lookup_weights(
    model: LanguageModel, tokens: Int[Tensor, " t"], block: int, head: int
) -> Float[Tensor, "t s"]:
    """Return A, the weight of token s for the query at t, in one head of one lookup block.

    Raises:
        ValueError: the model has no lookup blocks, or there are too many tokens.
        LookupError: there is no such block or head.
    """
    heads = lookup_heads(model)
    if not heads:
        mixers = ", ".join(dict.fromkeys(model.config.mixers))
        raise ValueError(f"the model has the mixers {mixers}: only lookup blocks look up tokens")
    if len(tokens) > MAX_POSITIONS:
        raise ValueError(f"{len(tokens)} tokens are too many: at most {MAX_POSITIONS}")
    if not 0 <= head < heads.get(block, 0):
        known = ", ".join(f"{number} ({count} heads)" for number, count in heads.items())
        raise LookupError(f"there is no lookup block {block} with head {head}: blocks {known}")
    mixer, normed = _inputs(cast(MixerLM, model), tokens, block)
    q, k, _ = mixer.queries_keys_values(normed)
    taps = toeplitz_matrix(mixer.filter_taps(len(tokens)).to(q.dtype))[head]
    return taps * (q[0, :, head] @ k[0, :, head].T)


def _inputs(model: MixerLM, tokens: Tensor, number: int) -> tuple[LookupMixer, Tensor]:
    """Return the mixer of a block and what it reads, (1, t, d)."""
    x = model.embed(tokens[None])
    for block in list(model.blocks)[:number]:
        x = block(x)
    block = list(model.blocks)[number]
    if not block.mixer_first:
        x = x + block.channel_mixer(block.channel_norm(x))
    return cast(LookupMixer, block.token_mixer), block.token_norm(x)
