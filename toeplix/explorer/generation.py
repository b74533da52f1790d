"""Text from a model, token by token, with the probability of each and of its alternatives.

The prompt's tokens come first, with the probabilities that the model gives them; then those that it
samples, the same as `toeplix.inference.generate` samples from the same seed.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from toeplix.data import Tokenizer
from toeplix.inference.detokenization import Detokenizer
from toeplix.inference.sampling import Sampling
from toeplix.inference.scheduler import Job, PromptRead, RequestFailed, Scheduler, Score
from toeplix.model import LanguageModel

SHOWN = 8  # alternatives
CHUNK = 256  # positions of a prompt that are read at once
MAX_PROMPT_TOKENS = 4096  # tokens of a prompt
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
    """Yield an event for each token. `alone` is held during each turn, and released between them."""
    tokens = [tokenizer.start, *tokenizer.encode(prompt)]
    if len(tokens) > MAX_PROMPT_TOKENS:
        raise ValueError(f"the prompt has {len(tokens)} tokens: at most {MAX_PROMPT_TOKENS}")
    if max(tokens) >= model.config.vocab:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab} tokens, the model {model.config.vocab}"
        )
    job = Job(
        prompt=tokens,
        max_new_tokens=new,
        sampling=sampling,
        seeds=(seed,),
        stop_tokens=frozenset([tokenizer.end]),
        top_logprobs=SHOWN,
        echo_logprobs=True,
    )
    scheduler = Scheduler(model, max_batch=1, max_new_tokens=max(1, new), chunk=CHUNK)
    ticket = scheduler.add(job)
    text = Detokenizer(tokenizer.decode)
    while scheduler.busy:
        with alone:
            events = scheduler.turn().get(ticket, [])
        for event in events:
            if isinstance(event, RequestFailed):
                raise ValueError(
                    "the model's logits are not finite: change the prompt, or check its weights"
                )
            if isinstance(event, PromptRead):
                for token, score in zip(tokens[1:], event.scores, strict=True):
                    yield _event("prompt", token, score, tokenizer, text)
            elif event.score is not None:
                yield _event("model", event.token, event.score, tokenizer, text)
    if rest := text.end():
        yield {"kind": "rest", "text": rest}


def _event(kind: str, token: int, score: Score, tokenizer: Tokenizer, text: Detokenizer) -> Event:
    """Return what is shown of one token; probabilities are the model's own, at temperature 1."""
    return {
        "kind": kind,
        "token": token,
        "text": text.add(token),
        "name": name(tokenizer, token),
        "p": math.exp(score.logprob),
        "bits": -score.logprob / math.log(2),
        "rank": score.rank,
        "top": [[name(tokenizer, each), math.exp(p)] for each, p in score.top_logprobs],
    }


def name(tokenizer: Tokenizer, token: int) -> str:
    """Return a token alone as text, control tokens spelled out."""
    return tokenizer.decode([token], control=True)
