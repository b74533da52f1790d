"""Texts after prompts of uneven length, in batches without a single pad.

    write(model, tokenizer, [Job(prompt, new), ...]) -> [tokens after each prompt, ...]

A batch reads what all of its prompts have, then steps. A row whose prompt goes on is fed from the prompt,
another from what it has written: every row sees its own tokens at its own positions and nothing else, for
any architecture, and decoding stays near-linear. So a text does not depend on the batch it was written
in, as long as no two tokens are equally likely within rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from toeplix.data import Tokenizer
from toeplix.inference.detokenization import Detokenizer
from toeplix.inference.generation import prefill
from toeplix.inference.sampling import GREEDY, Sampling, probabilities, sample
from toeplix.model import LanguageModel

ROWS = 32  # of a batch whose size is chosen here
CHUNK = 2048  # positions of prompts that are read at once


@dataclass(frozen=True, kw_only=True)
class Job:
    """A prompt, how many tokens may follow it, what ends them, and how they are drawn."""

    prompt: tuple[int, ...]
    new: int
    stops: tuple[str, ...] = ()
    sampling: Sampling = GREEDY
    seed: int = 0


@torch.no_grad()
def write(
    model: LanguageModel,
    tokenizer: Tokenizer,
    jobs: Sequence[Job],
    *,
    batch: int | None = None,
    done: Callable[[int], object] = lambda count: None,
) -> list[list[int]]:
    """The new tokens of every job, in order. A row ends at the end token, which is not part of it."""
    results: list[list[int]] = [[] for _ in jobs]
    device = next(model.parameters()).device
    for numbers in batches(jobs, batch or ROWS):
        rows = [_Row(jobs[number], tokenizer) for number in numbers]
        start = min(len(row.job.prompt) for row in rows)
        steps = max(len(row.job.prompt) - start + row.job.new for row in rows)
        tokens = torch.tensor([row.job.prompt[:start] for row in rows], device=device)
        logits, state = prefill(model, tokens, CHUNK)
        state.begin_decoding(steps or None)
        for time in range(start, start + steps):
            likeliest = logits.argmax(-1).tolist()
            latest = [row.next(time, likeliest[i], logits[i]) for i, row in enumerate(rows)]
            if all(row.done for row in rows):
                break
            step, state = model.step(torch.tensor(latest, device=device)[:, None], state)
            logits = step[:, -1]
        for number, row in zip(numbers, rows, strict=True):
            results[number] = row.new
        done(len(rows))
    return results


def batches(jobs: Sequence[Job], size: int) -> Iterator[list[int]]:
    """Numbers of jobs, the longest prompts first; prompts that differ by many steps stay apart."""
    order = sorted(range(len(jobs)), key=lambda i: (-len(jobs[i].prompt), jobs[i].prompt, i))
    group: list[int] = []
    for number in order:
        if group:
            first = jobs[group[0]]
            apart = len(first.prompt) - len(jobs[number].prompt) > max(8, first.new // 4)
            if len(group) == size or apart:
                yield group
                group = []
        group.append(number)
    if group:
        yield group


class _Row:
    """What one job has written so far."""

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        self.job, self._tokenizer = job, tokenizer
        self.new: list[int] = []
        self.done = job.new == 0
        self._text = Detokenizer(tokenizer.decode, job.stops)
        self._generator = torch.Generator().manual_seed(job.seed)

    def next(self, time: int, likeliest: int, logits: torch.Tensor) -> int:
        """The token at this position: of the prompt, or the one that is drawn now."""
        if time < len(self.job.prompt):
            return self.job.prompt[time]
        if self.done:
            return 0
        token = likeliest
        if self.job.sampling != GREEDY:
            seen = {*self.job.prompt, *self.new}
            token = sample(probabilities(logits, self.job.sampling, seen), self._generator)
        if token == self._tokenizer.end:
            self.done = True
            return token
        self.new.append(token)
        self._text.add(token)
        self.done = len(self.new) == self.job.new or self._text.stopped
        return token
