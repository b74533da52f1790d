"""Sampling: from the logits of one position to the next token of one sequence.

probabilities(logits, sampling)    the distribution after temperature, top-k, top-p and min-p
sample(probs, generator)           a token from a distribution
Sampler(prompt, sampling, seed)    the tokens of one sequence, from its own random numbers
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

MIN_PENALTY, MAX_PENALTY = 0.01, 100.0  # beyond, logits overflow before a text gets better


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is sampled from the logits. The default takes the most likely one."""

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
MIN_SEED, MAX_SEED = -(2**63), 2**64 - 1  # what PyTorch's generators take
TOP_TOKENS = 256  # number of tokens among which most distributions have all that is kept


def probabilities(
    logits: Float[Tensor, " v"], sampling: Sampling, seen: Collection[int] = ()
) -> Float[Tensor, " v"]:
    """Return the distribution of the next token. Every filter sees the same probabilities."""
    logits = logits.float()
    if sampling.repetition_penalty != 1 and seen:
        index = torch.tensor(sorted(seen), device=logits.device)
        old = logits[index]
        factor = sampling.repetition_penalty
        most = torch.finfo(logits.dtype).max  # large logits stay numbers
        new = torch.where(old > 0, old / factor, old * factor).clamp(-most, most)
        logits = logits.index_copy(0, index, new)
    if sampling.temperature == 0:
        token = torch.tensor(argmax(logits), device=logits.device)
        return torch.nn.functional.one_hot(token, len(logits)).float()
    probs = torch.softmax((logits - logits.max()).double() / sampling.temperature, 0)
    if (sampling.min_p, sampling.top_p, sampling.top_k) == (0, 1, 0):
        return probs.float()  # nothing to sort for
    descending, order = _sorted(probs, sampling)
    keep = descending >= sampling.min_p * descending[0]
    keep &= (descending.cumsum(0) - descending) < sampling.top_p
    if sampling.top_k:
        keep[min(sampling.top_k, len(keep)) :] = False
    kept = torch.zeros_like(probs).index_copy(0, order, descending * keep)
    return (kept / kept.sum()).float()


def _sorted(probs: Float[Tensor, " v"], sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return descending probabilities and their tokens: as many as can be kept, or all."""
    few = probs.topk(min(len(probs), max(sampling.top_k, TOP_TOKENS)))
    if sampling.top_k or bool(few.values.sum() > sampling.top_p):
        return few.values, few.indices  # the rest is not kept, and need not be sorted
    descending, order = probs.sort(descending=True, stable=True)
    return descending, order


def argmax(logits: Float[Tensor, " v"]) -> int:
    """Return the most likely token. NaN counts as the largest of all, so one comparison finds it."""
    token = logits.argmax()
    if not math.isfinite(largest := float(logits[token].detach())):
        raise BadLogits(
            f"the largest logit is {largest}: weights are damaged, or training diverged"
        )
    return int(token)


def sample(probs: Float[Tensor, " v"], generator: torch.Generator) -> int:
    """Sample a token: the first whose cumulative probability is above a uniform random number.

    `torch.multinomial` needs a random number for every token, and takes sixteen times as long for a
    vocabulary of 8,000.
    """
    sums = probs.cpu().double().cumsum(0)
    if not torch.isfinite(sums[-1]):
        raise BadLogits(
            f"probabilities add up to {float(sums[-1].detach())}: logits are no numbers, "
            "weights are damaged, or training diverged"
        )
    point = torch.rand((), dtype=torch.float64, generator=generator) * sums[-1]
    # at most 1 - 2^-53 of the sum, which is never rounded up to it: there is always such a token
    return int(torch.searchsorted(sums, point, right=True))


class Sampler:
    """Samples the tokens of one sequence, from its own random numbers."""

    def __init__(self, prompt: Iterable[int], sampling: Sampling, seed: int) -> None:
        self.sampling = sampling
        self._seen = set(prompt)  # what the repetition penalty applies to
        self._generator = torch.Generator().manual_seed(seed)

    def next(self, logits: Float[Tensor, " v"]) -> int:
        """Sample the next token."""
        if self.sampling == GREEDY:
            token = argmax(logits)
        else:
            token = sample(probabilities(logits, self.sampling, self._seen), self._generator)
        self._seen.add(token)
        return token
