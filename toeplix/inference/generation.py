"""Generation: prompts in, tokens out, one at a time or all at once.

    for row, token in stream(model, prompts, max_new_tokens=100): ...
    rows = generate(model, prompts, max_new_tokens=100)

Prompts of equal length run as one batch, and every row is sampled from its own random numbers: what else
is in the batch does not change a row, beyond rounding. Prompts are read in chunks, so that long ones
need little memory; then each architecture steps with its own state (near-linear decoders, keys and
values, a recurrence).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.inference.sampling import GREEDY, MAX_SEED, MIN_SEED, Sampler, Sampling
from toeplix.model import DecodingState, LanguageModel


def generate(
    model: LanguageModel, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, **how: Any
) -> list[list[int]]:
    """The new tokens of every prompt, a stop token included; arguments as for `stream`."""
    rows: list[list[int]] = [[] for _ in prompts]
    for row, token in stream(model, prompts, max_new_tokens=max_new_tokens, **how):
        rows[row].append(token)
    return rows


@torch.no_grad()
def stream(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    seed: int | Sequence[int] = 0,
    stop_tokens: Sequence[int] = (),
    stop_strings: Sequence[str] = (),
    decode: Callable[[list[int]], str] | None = None,
    chunk: int = 2048,
) -> Iterator[tuple[int, int]]:
    """Pairs of (row, token) as they come, at most `max_new_tokens` a row.

    Args:
        model: any architecture.
        prompts: tokens of each row, at least one; lengths may differ.
        max_new_tokens: how many tokens a row may get.
        sampling: how tokens are sampled.
        seed: of the random numbers; row i samples from `seed + i`, or from the i-th of a list.
        stop_tokens: a row ends after any of these.
        stop_strings: a row ends once its new text contains one of these; needs `decode`.
        decode: from tokens to text.
        chunk: positions of a prompt that are read at once.
    """
    seeds = [seed + row for row in range(len(prompts))] if isinstance(seed, int) else list(seed)
    _check(model, prompts, max_new_tokens, seeds, stop_tokens, stop_strings, decode, chunk)
    training = model.training
    model.eval()
    try:
        for length in sorted({len(prompt) for prompt in prompts}):
            rows = [
                Row(number, list(prompt), sampling, seeds[number])
                for number, prompt in enumerate(prompts)
                if len(prompt) == length
            ]
            tokens = torch.tensor([row.prompt for row in rows], device=_device(model))
            logits, state = prefill(model, tokens, chunk)
            state.begin_decoding(max_new_tokens)
            for count in range(1, max_new_tokens + 1):
                for row, scores in zip(rows, logits, strict=True):
                    if row.done:
                        continue
                    token = row.sample(scores)
                    yield row.number, token
                    text = decode(row.new) if decode and stop_strings else ""
                    row.done = token in stop_tokens or any(stop in text for stop in stop_strings)
                if count == max_new_tokens or all(row.done for row in rows):
                    break
                latest = torch.tensor([[row.new[-1]] for row in rows], device=tokens.device)
                step, state = model.step(latest, state)
                logits = step[:, -1]
    finally:
        model.train(training)


class Row:
    """One prompt, the tokens sampled after it, and their sampler."""

    def __init__(self, number: int, prompt: list[int], sampling: Sampling, seed: int) -> None:
        self.number, self.prompt = number, prompt
        self.new: list[int] = []
        self.done = False
        self._sampler = Sampler(prompt, sampling, seed)

    def sample(self, logits: Tensor) -> int:
        token = self._sampler.next(logits)
        self.new.append(token)
        return token


def prefill(
    model: LanguageModel, tokens: Int[Tensor, "b t"], chunk: int
) -> tuple[Float[Tensor, "b v"], DecodingState]:
    """Read prompts, and return the logits of their last position (no others) and the state after it."""
    state = model.start()
    for part in tokens.split(chunk, dim=1):
        features, state = model.advance(part, state)
    return model.logits(features[:, -1:])[:, 0], state


def _device(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device


def _check(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    seeds: list[int],
    stop_tokens: Sequence[int],
    stop_strings: Sequence[str],
    decode: Callable[[list[int]], str] | None,
    chunk: int,
) -> None:
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens={max_new_tokens} must be at least 1")
    if chunk < 1:
        raise ValueError(f"chunk={chunk} must be at least 1")
    if len(seeds) != len(prompts):
        raise ValueError(f"there are {len(seeds)} seeds for {len(prompts)} prompts")
    for seed in seeds:
        if not MIN_SEED <= seed <= MAX_SEED:
            shown = seed if abs(seed) < 2**80 else f"a number of {seed.bit_length()} bits"
            raise ValueError(f"seed={shown} must be in {MIN_SEED} .. {MAX_SEED}")
    if isinstance(stop_strings, str) or not all(stop_strings):
        raise ValueError(
            f"stop_strings={stop_strings!r} must be a list of strings, none of them empty"
        )
    if isinstance(stop_tokens, int):
        raise ValueError(f"stop_tokens={stop_tokens} must be a list of tokens")
    if stop_strings and decode is None:
        raise ValueError("stop_strings need decode=, from tokens to text")
    for row, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompt {row} is empty: give at least one token")
        if min(prompt) < 0 or max(prompt) >= model.config.vocab:
            raise ValueError(
                f"prompt {row} has tokens outside the vocabulary of {model.config.vocab}: "
                f"{min(prompt)} .. {max(prompt)}"
            )
