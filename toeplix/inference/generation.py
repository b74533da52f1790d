"""Generation: prompts in, tokens out, one at a time or all at once.

    for row, token in stream(model, prompts, max_new_tokens=100): ...
    rows = generate(model, prompts, max_new_tokens=100)
    for job, event in complete(model, jobs): ...               each prompt with settings of its own

All prompts run in one ragged batch (scheduler.py), whatever their lengths, and every row is sampled from
its own random numbers: what else is in the batch does not change a row, beyond rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from toeplix.inference.sampling import GREEDY, MAX_SEED, MIN_SEED, BadLogits, Sampling
from toeplix.inference.scheduler import Job, RequestFailed, Scheduler, TokenSampled
from toeplix.model import DecodingState, LanguageModel

MAX_BATCH = 64  # rows that are decoded together


def generate(
    model: LanguageModel, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, **how: Any
) -> list[list[int]]:
    """Return the new tokens of every prompt, a stop token included; arguments as for `stream`."""
    rows: list[list[int]] = [[] for _ in prompts]
    for row, token in stream(model, prompts, max_new_tokens=max_new_tokens, **how):
        rows[row].append(token)
    return rows


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
    """Yield pairs of (row, token) as they are sampled, at most `max_new_tokens` a row.

    Args:
        model: any architecture.
        prompts: tokens of each row, at least one; lengths may differ.
        max_new_tokens: maximum number of new tokens of a row.
        sampling: how tokens are sampled.
        seed: of the random numbers; row i samples from `seed + i`, or from the i-th of a list.
        stop_tokens: a row ends after any of these.
        stop_strings: a row ends once its new text contains one of these; needs `decode`.
        decode: from tokens to text.
        chunk: positions of prompts that are read between two decode steps.
    """
    seeds = [seed + row for row in range(len(prompts))] if isinstance(seed, int) else list(seed)
    _check(model, prompts, max_new_tokens, seeds, stop_tokens, stop_strings, decode, chunk)
    jobs = [
        Job(
            prompt=list(prompt),
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            seeds=(own,),
            stop_tokens=frozenset(stop_tokens),
            stop_strings=stop_strings,
            decode=decode,
        )
        for prompt, own in zip(prompts, seeds, strict=True)
    ]
    for number, event in complete(model, jobs, chunk=chunk):
        yield number, event.token


def complete(
    model: LanguageModel,
    jobs: Sequence[Job],
    *,
    max_batch: int = MAX_BATCH,
    chunk: int | None = None,
) -> Iterator[tuple[int, TokenSampled]]:
    """Run jobs to their end in this thread; yield (number of the job, sampled token) as they come.

    A job whose logits are not finite ends alone: the others go on, and `BadLogits` is raised at the end.
    """
    if not jobs:
        return
    longest = max(1, *(job.max_new_tokens for job in jobs))
    scheduler = Scheduler(model, max_batch=max_batch, max_new_tokens=longest, chunk=chunk)
    numbers = {scheduler.add(job): number for number, job in enumerate(jobs)}
    failed: dict[int, str] = {}
    while scheduler.busy:
        with _evaluating(model):  # not around `yield`: the caller may train, or run other jobs
            turn = scheduler.turn()
        for ticket, events in turn.items():
            for event in events:
                if isinstance(event, RequestFailed):
                    failed[numbers[ticket]] = event.detail
                if isinstance(event, TokenSampled):
                    yield numbers[ticket], event
    for number, detail in failed.items():
        raise BadLogits(f"prompt {number}: {detail}: weights are damaged, or training diverged")


@contextmanager
def _evaluating(model: LanguageModel) -> Iterator[None]:
    """Set evaluation mode, and after it the mode of before."""
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


def prefill(
    model: LanguageModel, tokens: Int[Tensor, "b t"], chunk: int
) -> tuple[Float[Tensor, "b v"], DecodingState]:
    """Read prompts, and return the logits of their last position (no others) and the state after it."""
    state = model.start()
    for part in tokens.split(chunk, dim=1):
        features, state = model.advance(part, state, last=True)
    return model.logits(features)[:, 0], state


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
