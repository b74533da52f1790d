"""Generation: prompts in, tokens out, one at a time or all at once.

    for row, token in stream(model, prompts, new=100): ...
    rows = generate(model, prompts, new=100)

Prompts of equal length run as one batch, and every row draws from its own random numbers: what else
is in the batch does not change a row, beyond rounding. Prompts are read in chunks, so that long ones
need little memory; then each architecture steps with its own state (near-linear decoders, keys and
values, a recurrence).
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.model import LanguageModel

MIN_PENALTY, MAX_PENALTY = 0.01, 100.0  # beyond, logits overflow before a text gets better


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is drawn from the logits. The default takes the most likely one."""

    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # keep the k most likely; 0: all
    top_p: float = 1.0  # keep the most likely that together reach this probability
    min_p: float = 0.0  # keep those at least this likely, relative to the most likely
    repetition_penalty: float = 1.0  # above 1: tokens already there become less likely

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature={self.temperature} must be a number of at least 0")
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k} must be at least 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} must be in (0, 1]")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p={self.min_p} must be in [0, 1]")
        if not MIN_PENALTY <= self.repetition_penalty <= MAX_PENALTY:
            raise ValueError(
                f"repetition_penalty={self.repetition_penalty} must be in "
                f"[{MIN_PENALTY:g}, {MAX_PENALTY:g}]"
            )


class BadLogits(RuntimeError, ValueError):
    """Logits are not numbers: the weights are damaged, or training diverged."""


GREEDY = Sampling()
SEEDS = -(2**63), 2**64 - 1  # what PyTorch's generators take
FEW = 256  # tokens among which most distributions have all that is kept


def probabilities(
    logits: Float[Tensor, " v"], sampling: Sampling, seen: Collection[int] = ()
) -> Float[Tensor, " v"]:
    """The distribution that the next token is drawn from: all filters see the same chances."""
    logits = logits.float()
    if sampling.repetition_penalty != 1 and seen:
        index = torch.tensor(sorted(seen), device=logits.device)
        old = logits[index]
        factor = sampling.repetition_penalty
        most = torch.finfo(logits.dtype).max  # large logits stay numbers
        new = torch.where(old > 0, old / factor, old * factor).clamp(-most, most)
        logits = logits.index_copy(0, index, new)
    if sampling.temperature == 0:
        token = torch.tensor(best(logits), device=logits.device)
        return torch.nn.functional.one_hot(token, len(logits)).float()
    chances = torch.softmax((logits - logits.max()).double() / sampling.temperature, 0)
    if (sampling.min_p, sampling.top_p, sampling.top_k) == (0, 1, 0):
        return chances.float()  # nothing to sort for
    falling, order = _likeliest(chances, sampling)
    keep = falling >= sampling.min_p * falling[0]
    keep &= (falling.cumsum(0) - falling) < sampling.top_p
    if sampling.top_k:
        keep[min(sampling.top_k, len(keep)) :] = False
    kept = torch.zeros_like(chances).index_copy(0, order, falling * keep)
    return (kept / kept.sum()).float()


def _likeliest(chances: Float[Tensor, " v"], sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Falling chances and their tokens: as many as can be kept, or all."""
    few = chances.topk(min(len(chances), max(sampling.top_k, FEW)))
    if sampling.top_k or bool(few.values.sum() > sampling.top_p):
        return few.values, few.indices  # the rest is not kept, and need not be sorted
    falling, order = chances.sort(descending=True, stable=True)
    return falling, order


def best(logits: Float[Tensor, " v"]) -> int:
    """The most likely token; NaN counts as the largest of all, so one look finds it."""
    token = logits.argmax()
    if not math.isfinite(largest := float(logits[token].detach())):
        raise BadLogits(
            f"the largest logit is {largest}: weights are damaged, or training diverged"
        )
    return int(token)


def drawn(chances: Float[Tensor, " v"], generator: torch.Generator) -> int:
    """A token by its chance: the first whose sum of chances is above a uniform number.

    `torch.multinomial` draws a number for every token: sixteen times as long for 8,000 of them.
    """
    sums = chances.cpu().double().cumsum(0)
    if not torch.isfinite(sums[-1]):
        raise BadLogits(
            f"probabilities add up to {float(sums[-1].detach())}: logits are no numbers, "
            "weights are damaged, or training diverged"
        )
    point = torch.rand((), dtype=torch.float64, generator=generator) * sums[-1]
    # at most 1 - 2^-53 of the sum, which is never rounded up to it: there is always such a token
    return int(torch.searchsorted(sums, point, right=True))


def generate(
    model: LanguageModel, prompts: Sequence[Sequence[int]], *, new: int, **how: Any
) -> list[list[int]]:
    """The new tokens of every prompt, a stop token included; arguments as for `stream`."""
    rows: list[list[int]] = [[] for _ in prompts]
    for row, token in stream(model, prompts, new=new, **how):
        rows[row].append(token)
    return rows


@torch.no_grad()
def stream(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    new: int,
    sampling: Sampling = GREEDY,
    seed: int | Sequence[int] = 0,
    stop_tokens: Sequence[int] = (),
    stop_strings: Sequence[str] = (),
    decode: Callable[[list[int]], str] | None = None,
    chunk: int = 2048,
) -> Iterator[tuple[int, int]]:
    """Pairs of (row, token) as they come, at most `new` a row.

    Args:
        model: any architecture.
        prompts: tokens of each row, at least one; lengths may differ.
        new: how many tokens a row may get.
        sampling: how tokens are drawn.
        seed: of the random numbers; row i draws from `seed + i`, or from the i-th of a list.
        stop_tokens: a row ends after any of these.
        stop_strings: a row ends once its new text contains one of these; needs `decode`.
        decode: from tokens to text.
        chunk: positions of a prompt that are read at once.
    """
    seeds = [seed + row for row in range(len(prompts))] if isinstance(seed, int) else list(seed)
    _check(model, prompts, new, seeds, stop_tokens, stop_strings, decode, chunk)
    training = model.training
    model.eval()
    try:
        for length in sorted({len(prompt) for prompt in prompts}):
            rows = [
                Row(number, list(prompt), seeds[number])
                for number, prompt in enumerate(prompts)
                if len(prompt) == length
            ]
            tokens = torch.tensor([row.prompt for row in rows], device=_device(model))
            logits, state = prefill(model, tokens, chunk, horizon=new)
            for count in range(1, new + 1):
                for row, scores in zip(rows, logits, strict=True):
                    if row.done:
                        continue
                    token = row.draw(scores, sampling)
                    yield row.number, token
                    text = decode(row.new) if decode and stop_strings else ""
                    row.done = token in stop_tokens or any(stop in text for stop in stop_strings)
                if count == new or all(row.done for row in rows):
                    break
                latest = torch.tensor([[row.new[-1]] for row in rows], device=tokens.device)
                step, state = model.step(latest, state)
                logits = step[:, -1]
    finally:
        model.train(training)


class Row:
    """One prompt, what was generated after it, and its own random numbers."""

    def __init__(self, number: int, prompt: list[int], seed: int) -> None:
        self.number, self.prompt = number, prompt
        self.new: list[int] = []
        self.seen = set(prompt)
        self.done = False
        self._generator = torch.Generator().manual_seed(seed)

    def draw(self, logits: Tensor, sampling: Sampling) -> int:
        if sampling == GREEDY:
            token = best(logits)
        else:
            chances = probabilities(logits, sampling, self.seen)
            token = drawn(chances, self._generator)
        self.new.append(token)
        self.seen.add(token)
        return token


def prefill(
    model: LanguageModel, tokens: Int[Tensor, "b t"], chunk: int, horizon: int | None = None
) -> tuple[Float[Tensor, "b v"], Any]:
    """Logits after the last position, and the state there; the output layer sees that one only."""
    state = model.start(horizon)
    for part in tokens.split(chunk, dim=1):
        features, state = model.advance(part, state)
    return model.logits(features[:, -1:])[:, 0], state


def _device(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device


def _check(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    new: int,
    seeds: list[int],
    stop_tokens: Sequence[int],
    stop_strings: Sequence[str],
    decode: Callable[[list[int]], str] | None,
    chunk: int,
) -> None:
    if new < 1:
        raise ValueError(f"new={new} must be at least 1")
    if chunk < 1:
        raise ValueError(f"chunk={chunk} must be at least 1")
    if len(seeds) != len(prompts):
        raise ValueError(f"there are {len(seeds)} seeds for {len(prompts)} prompts")
    for seed in seeds:
        if not SEEDS[0] <= seed <= SEEDS[1]:
            shown = seed if abs(seed) < 2**80 else f"a number of {seed.bit_length()} bits"
            raise ValueError(f"seed={shown} must be in {SEEDS[0]} .. {SEEDS[1]}")
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
