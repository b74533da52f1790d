"""Continuous batching: jobs in, events out, all of it in the caller's thread.

Every turn reads some of the prompts that wait (prefill, in chunks), then takes one decode step for all
running rows. A row that has ended makes room at once for a prompt that waits. What a row gives depends
on its job alone: it has its own position (ragged.py) and its own random numbers (sampling.py).

    scheduler = Scheduler(model, max_batch=64, max_new_tokens=256)
    ticket = scheduler.add(job)
    while scheduler.busy:
        for ticket, events in scheduler.turn().items(): ...

Logits are copied to the host once a step for all rows, and sampled there: on an accelerator this is the
one moment of a step at which the host waits.

`generation.py` runs it to the end; the server's engine runs it in a thread. Jobs may be added from
another thread than that of the turns, by one thread at a time.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toeplix.inference.detokenization import Detokenizer
from toeplix.inference.ragged import ragged_batch
from toeplix.inference.sampling import GREEDY, Sampler, Sampling
from toeplix.model import LanguageModel

log = logging.getLogger("toeplix.inference")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A prompt, what may follow it, and what is to be reported about it."""

    prompt: Sequence[int]
    max_new_tokens: int
    sampling: Sampling = GREEDY
    seeds: Sequence[int] = (0,)  # a row for each
    stop_tokens: frozenset[int] = frozenset()  # a row ends after any of these
    stop_strings: Sequence[str] = ()  # a row ends once its text has one of these; needs `decode`
    decode: Callable[[list[int]], str] | None = None
    top_logprobs: int | None = None  # report so many most likely tokens with each; None: no scores
    echo_logprobs: bool = False  # report the scores of the prompt's tokens too


class Score(NamedTuple):
    """Log probability and rank of a token, and the most likely tokens at its position with theirs."""

    logprob: float
    top_logprobs: list[tuple[int, float]]
    rank: int  # 1: no token is more likely


class PromptRead(NamedTuple):
    """The prompt has been read; scores of its tokens from the second on, if asked for."""

    scores: list[Score]


class TokenSampled(NamedTuple):
    """A new token of a row, and why the row ends if it does: "stop" or "length"."""

    row: int
    token: int
    score: Score | None
    finish_reason: str | None


class RequestFailed(NamedTuple):
    """The job has ended: by a "fault", which is in the log, or by "logits" that are not finite."""

    reason: str = "fault"
    detail: str = ""


Event = PromptRead | TokenSampled | RequestFailed


class Row:
    """One sequence of a job: its new tokens, their sampler, and their text if stop strings need it."""

    def __init__(self, number: int, job: Job, seed: int) -> None:
        self.number = number
        self.new: list[int] = []
        self.done = False
        self.sampler = Sampler(job.prompt, job.sampling, seed)
        stops = job.stop_strings
        self.text = Detokenizer(job.decode, stops) if stops and job.decode else None


class Ticket:
    """A job that was accepted. `listener` is for the owner of the scheduler, which ignores it."""

    def __init__(self, job: Job, listener: Any = None) -> None:
        self.job, self.listener = job, listener
        self.rows = [Row(number, job, seed) for number, seed in enumerate(job.seeds)]
        self.open = set(range(len(job.seeds)))  # rows that go on
        self.state: Any = None
        self.read = 0  # positions of the prompt that have been read
        self.scores: list[Score] = []

    def cancel(self, *rows: int) -> None:
        """End these rows, or all."""
        self.open -= set(rows) if rows else set(self.open)


@dataclass
class Counts:
    """Since the start, in rows unless said otherwise."""

    added: int = 0
    taken: int = 0  # no longer waiting
    running: int = 0  # now
    steps: int = 0  # of the batch
    row_steps: int = 0
    prompt_tokens: int = 0  # tokens
    sampled: int = 0  # tokens
    cancelled: int = 0  # ended from outside: stop strings of clients, disconnects
    failures: int = 0  # turns

    @property
    def waiting(self) -> int:
        """Rows that wait now. Each side of the difference is written by one thread."""
        return self.added - self.taken


class Scheduler:
    """Continuous batching of at most `max_batch` rows with at most `max_new_tokens` new tokens each.

    `chunk` bounds the positions of prompts that are read in a turn. A job with more rows than
    `max_batch` runs alone.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        max_batch: int,
        max_new_tokens: int,
        chunk: int | None = None,
    ) -> None:
        self.model, self.max_batch, self.max_new_tokens = model, max_batch, max_new_tokens
        self.counts = Counts()
        self._batch = ragged_batch(model, max_new_tokens)
        self.chunk = chunk or self._batch.chunk
        self._waiting: deque[Ticket] = deque()
        self._reading: Ticket | None = None  # still the first that waits, unless it has just joined
        self._running: list[tuple[Ticket, Row]] = []  # in the order of the batch
        self._events: dict[Ticket, list[Event]] = {}

    def add(self, job: Job, listener: Any = None) -> Ticket:
        """Accept a job, which waits for its turn."""
        ticket = Ticket(job, listener)
        self.counts.added += len(ticket.rows)
        self._waiting.append(ticket)
        return ticket

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    @torch.no_grad()
    def turn(self) -> dict[Ticket, list[Event]]:
        """Read a chunk of the prompts that wait, take one decode step, and return what happened."""
        self._remove_ended()
        left = self.chunk
        while (ticket := self._next(left)) is not None:
            self._reading = ticket
            left -= self._read(ticket, left)
            self._reading = None
        if self._running:
            logits = self._batch.step([row.new[-1] for _, row in self._running]).cpu()
            self.counts.steps += 1
            self.counts.row_steps += len(self._running)
            finite = _finite(logits)
            for (ticket, row), scores, good in zip(self._running, logits, finite, strict=True):
                self._sample(ticket, row, scores, good)
            self._remove_ended()
        return self._taken_events()

    def give_up(self) -> dict[Ticket, list[Event]]:
        """After a failed turn, in which the state of the rows was lost: end all jobs under way."""
        self.counts.failures += 1
        tickets = {ticket for ticket, _ in self._running}
        if self._reading is not None:
            tickets.add(self._reading)
            if self._waiting and self._waiting[0] is self._reading:
                self._take()
            self._reading = None
        for ticket in tickets:
            self._tell(ticket, RequestFailed())
            ticket.cancel()
        self._running = []
        self._batch = ragged_batch(self.model, self.max_new_tokens)
        self.counts.running = 0
        return self._taken_events()

    def _next(self, left: int) -> Ticket | None:
        """Return the first that waits, if there is room for its rows and `left` positions suffice.

        Chunks of a prompt begin at multiples of `chunk`, whatever else is read in the turn, so that
        others do not change how its numbers are rounded. Tickets that are cancelled are dropped.
        """
        while self._waiting and left > 0:
            ticket = self._waiting[0]
            if not ticket.open:
                self._take()
                self.counts.cancelled += len(ticket.rows)
                continue
            fits = len(self._running) + len(ticket.rows) <= self.max_batch or not self._running
            whole = left == self.chunk or len(ticket.job.prompt) - ticket.read <= left
            return ticket if fits and whole else None
        return None

    def _take(self) -> None:
        """The first no longer waits."""
        self.counts.taken += len(self._waiting.popleft().rows)

    def _read(self, ticket: Ticket, left: int) -> int:
        """Read at most `left` positions of the prompt; after the last one its rows join the batch."""
        prompt, first = ticket.job.prompt, ticket.read
        last = min(first + left, len(prompt))
        if first == 0:
            ticket.state = self.model.start()
        tokens = torch.tensor([prompt[first:last]], device=self.model.head.weight.device)
        scored = ticket.job.echo_logprobs
        features, ticket.state = self.model.advance(tokens, ticket.state, last=not scored)
        ticket.read = last
        self.counts.prompt_tokens += last - first
        if scored:
            logits = self.model.logits(features)[0].cpu()
            if not all(_finite(logits)):
                self._not_finite(ticket, logits)
            # the last position of the prompt has no token after it
            after = prompt[first + 1 : last + 1]
            top = ticket.job.top_logprobs or 0
            ticket.scores += [_score(*pair, top) for pair in zip(logits, after, strict=False)]
        if last == len(prompt):
            logits = self.model.logits(features[:, -1:])[:, 0].cpu()
            self._join(ticket, logits[0], _finite(logits)[0])
        return last - first

    def _join(self, ticket: Ticket, logits: Tensor, finite: bool) -> None:
        self._take()
        self._tell(ticket, PromptRead(ticket.scores))
        state, ticket.state = ticket.state, None
        for row in ticket.rows:
            self._sample(ticket, row, logits, finite)
        going = [(ticket, row) for row in ticket.rows if row.number in ticket.open]
        if going:
            self._batch.add(state, len(going))
            self._running += going
            self.counts.running = len(self._running)

    def _sample(self, ticket: Ticket, row: Row, logits: Tensor, finite: bool) -> None:
        """Sample the next token of a row, if it goes on."""
        job = ticket.job
        if row.number not in ticket.open:
            return
        if not finite:
            self._not_finite(ticket, logits)
            return
        if job.max_new_tokens == 0:
            ticket.cancel(row.number)
            return
        try:
            token = row.sampler.next(logits)
        except RuntimeError as problem:  # of this row; others may be well
            log.exception("a row could not be sampled")
            self._tell(ticket, RequestFailed(detail=str(problem)))
            ticket.cancel()
            return
        row.new.append(token)
        self.counts.sampled += 1
        if row.text is not None:
            row.text.add(token)
        stopped = token in job.stop_tokens or (row.text is not None and row.text.stopped)
        full = len(row.new) == job.max_new_tokens
        finish_reason = "stop" if stopped else "length" if full else None
        score = None if job.top_logprobs is None else _score(logits, token, job.top_logprobs)
        self._tell(ticket, TokenSampled(row.number, token, score, finish_reason))
        if finish_reason:
            row.done = True
            ticket.cancel(row.number)

    def _not_finite(self, ticket: Ticket, logits: Tensor) -> None:
        """Other rows are well: only this job ends, and a NaN is never taken for a token."""
        if ticket.open:
            detail = f"the largest logit is {float(logits.max())}"
            self._tell(ticket, RequestFailed("logits", detail))
            ticket.cancel()

    def _remove_ended(self) -> None:
        """Rows that have ended or were cancelled make room."""
        places = [i for i, (ticket, row) in enumerate(self._running) if row.number in ticket.open]
        if len(places) < len(self._running):
            self.counts.cancelled += sum(
                row.number not in ticket.open and not row.done for ticket, row in self._running
            )
            # the last rows take the places of those that leave: fewer columns move
            count = len(places)
            movers = [place for place in places if place >= count]
            stay = set(places)
            order = [place if place in stay else movers.pop() for place in range(count)]
            self._running = [self._running[place] for place in order]
            self._batch.keep(order)
            self.counts.running = len(self._running)

    def _tell(self, ticket: Ticket, event: Event) -> None:
        self._events.setdefault(ticket, []).append(event)

    def _taken_events(self) -> dict[Ticket, list[Event]]:
        events, self._events = self._events, {}
        return events


def _finite(logits: Tensor) -> list[bool]:
    """Of each row: a sum shows NaN and infinities, fifty times as fast as a look at each logit."""
    sums = logits.sum(1, dtype=torch.float32)
    if bool(torch.isfinite(sums).all()):
        return [True] * len(logits)
    found: list[bool] = torch.isfinite(logits).all(1).tolist()  # large finite ones may overflow
    return found


def _score(logits: Tensor, token: int, top: int) -> Score:
    logprobs = torch.log_softmax(logits.float(), 0)
    best = logprobs.topk(min(top, len(logprobs)))
    most_likely = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    rank = int((logprobs > logprobs[token]).sum()) + 1
    return Score(float(logprobs[token]), most_likely, rank)
