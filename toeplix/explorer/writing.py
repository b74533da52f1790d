"""Text from a model, token by token, with the chance of each and of what else could have stood there.

The prompt's tokens come first, with the chances that the model gave them; then those that it draws, the
same as `toeplix.inference.generation` draws from the same seed.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from toeplix.data import Tokenizer
from toeplix.inference.detokenization import Detokenizer
from toeplix.inference.sampling import Sampling, probabilities, sample
from toeplix.model import LanguageModel

SHOWN = 8  # alternatives
CHUNK = 256  # positions of a prompt that are read at once
LONGEST = 4096  # tokens of a prompt
Event = dict[str, Any]


def write(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    new: int,
    sampling: Sampling,
    seed: int,
    alone: AbstractContextManager[Any],
) -> Iterator[Event]:
    """A token each. `alone` is entered for every piece of computing, and left before each token."""
    tokens = [tokenizer.start, *tokenizer.encode(prompt)]
    if len(tokens) > LONGEST:
        raise ValueError(f"the prompt has {len(tokens)} tokens: at most {LONGEST}")
    if max(tokens) >= model.config.vocab:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab} tokens, the model {model.config.vocab}"
        )
    text = Detokenizer(tokenizer.decode)
    state, last = model.start(), torch.empty(0)
    for first in range(0, len(tokens), CHUNK):
        with alone, torch.no_grad():
            part = torch.tensor([tokens[first : first + CHUNK]])
            features, state = model.advance(part, state)
            logits = model.logits(features)[0]
        following = tokens[first + 1 : first + CHUNK + 1]
        for scores, token in zip(logits, following, strict=False):
            yield _event("prompt", scores, token, tokenizer, text)
        last = logits[-1]
    state.begin_decoding(new)
    yield from _sampled(model, last, state, tokens, tokenizer, text, new, sampling, seed, alone)
    if rest := text.end():
        yield {"kind": "rest", "text": rest}


def _sampled(
    model: LanguageModel,
    scores: Tensor,
    state: Any,
    tokens: list[int],
    tokenizer: Tokenizer,
    text: Detokenizer,
    new: int,
    sampling: Sampling,
    seed: int,
    alone: AbstractContextManager[Any],
) -> Iterator[Event]:
    seen, generator = set(tokens), torch.Generator().manual_seed(seed)
    for count in range(1, new + 1):
        _check(scores)
        chances = probabilities(scores, sampling, seen)
        token = int(chances.argmax()) if sampling.temperature == 0 else sample(chances, generator)
        seen.add(token)
        yield _event("model", scores, token, tokenizer, text)
        if token == tokenizer.end or count == new:
            return
        with alone:
            logits, state = model.step(torch.tensor([[token]]), state)
            scores = logits[0, -1]


def _event(kind: str, scores: Tensor, token: int, tokenizer: Tokenizer, text: Detokenizer) -> Event:
    """What is shown of one token; chances are the model's own, at temperature 1."""
    chances = torch.softmax(scores.double(), 0)
    _check(scores)
    best, which = chances.topk(min(SHOWN, len(chances)))
    chance = float(chances[token])
    return {
        "kind": kind,
        "token": token,
        "text": text.add(token),
        "name": name(tokenizer, token),
        "p": chance,
        "bits": -math.log2(max(chance, 1e-300)),
        "rank": int((chances > chance).sum()) + 1,
        "top": [[name(tokenizer, int(i)), float(p)] for p, i in zip(best, which, strict=True)],
    }


def _check(scores: Tensor) -> None:
    if not bool(scores.isfinite().all()):
        raise ValueError(
            "the model's logits are not finite: change the prompt, or check its weights"
        )


def name(tokenizer: Tokenizer, token: int) -> str:
    """Return a token alone as text, control tokens spelled out."""
    return tokenizer.decode([token], control=True)
