"""Continuous batching: a thread in which all requests are read and written together.

Every turn reads some of the prompts that wait, then takes one step for all rows there are. A row that has
ended makes room at once, for a prompt that waits. What a row gives depends on its job alone: its own
position (ragged.py), its own random numbers.

    submit(jobs, deliver)    tickets, or `Full` or `Draining`; events go to `deliver(ticket, events)`
    ticket.cancel(...)       rows end after the present step
    drain(), close()         take no more; end

Delivery runs where `wake` puts it, once a turn for all tickets: the event loop of the server.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toeplix.inference.generation import Row
from toeplix.inference.ragged import ragged_batch
from toeplix.inference.sampling import GREEDY, Sampling
from toeplix.model import LanguageModel

log = logging.getLogger("toeplix.serving")


class Full(Exception):
    """The queue has no room."""


class Draining(Exception):
    """The server is about to end."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A prompt, what may follow it, and what is to be told about it."""

    prompt: Sequence[int]
    new: int
    sampling: Sampling = GREEDY
    seeds: Sequence[int] = (0,)  # a row for each
    ends: frozenset[int] = frozenset()  # tokens that end a row
    top: int | None = None  # how many of the likeliest tokens are told with each; None: no chances
    scored: bool = False  # tell the chances of the prompt's tokens too


class Score(NamedTuple):
    """Log-chance of a token, and the likeliest tokens at its place with theirs."""

    chance: float
    likeliest: list[tuple[int, float]]


class Read(NamedTuple):
    """The prompt has been read; scores of its tokens from the second on, if asked for."""

    scores: list[Score]


class Drawn(NamedTuple):
    """A token of a row, and why the row ends if it does: "stop" or "length"."""

    row: int
    token: int
    score: Score | None
    ended: str | None


class Failed(NamedTuple):
    """Something went wrong: "fault", which is in the log, or "logits", which were not finite."""

    reason: str = "fault"


Event = Read | Drawn | Failed


class Ticket:
    """A job that was taken."""

    def __init__(self, job: Job, deliver: Callable[["Ticket", list[Event]], object]) -> None:
        self.job, self.deliver = job, deliver
        self.open = set(range(len(job.seeds)))  # rows that go on
        self.rows = [
            Row(n, list(job.prompt), job.sampling, seed) for n, seed in enumerate(job.seeds)
        ]
        self.state: Any = None
        self.done = 0  # positions of the prompt that have been read
        self.scores: list[Score] = []

    def cancel(self, *rows: int) -> None:
        """End these rows, or all."""
        self.open -= set(rows) if rows else set(self.open)


@dataclass
class Counts:
    """Since the start."""

    steps: int = 0
    row_steps: int = 0
    read: int = 0  # tokens of prompts
    drawn: int = 0
    cancelled: int = 0  # rows that were ended from outside: stop strings, disconnects
    failures: int = 0
    waiting: int = 0  # rows, now
    running: int = 0  # rows, now


class Engine:
    """See the module. `life` bounds the new tokens of a row, `chunk` the positions read in a turn."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        rows: int,
        queue: int,
        life: int,
        chunk: int | None = None,
        wake: Callable[[Callable[[], None]], object] = lambda call: call(),
    ) -> None:
        self.model, self.rows, self.queue, self.life = model, rows, queue, life
        self.wake = wake
        self.counts = Counts()
        self.draining = False
        self._closed = False
        self._batch = ragged_batch(model, life)
        self.chunk = chunk or self._batch.chunk
        self._waiting: deque[Ticket] = deque()
        self._reading: Ticket | None = None  # still the first that waits, unless it has just joined
        self._here: list[tuple[Ticket, Row]] = []  # in the order of the batch
        self._events: dict[Ticket, list[Event]] = {}
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    def submit(
        self, jobs: Sequence[Job], deliver: Callable[[Ticket, list[Event]], object]
    ) -> list[Ticket]:
        """All of the jobs or none."""
        rows = sum(len(job.seeds) for job in jobs)
        with self._change:
            if self.draining:
                raise Draining
            if self.counts.waiting + rows > self.queue:
                raise Full
            tickets = [Ticket(job, deliver) for job in jobs]
            self._waiting.extend(tickets)
            self.counts.waiting += rows
            self._change.notify()
        return tickets

    def drain(self) -> None:
        """Take no more jobs; those that were taken go on."""
        with self._change:
            self.draining = True

    def close(self) -> None:
        """End after the present turn."""
        with self._change:
            self.draining = self._closed = True
            self._change.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._change:
                while not (self._closed or self._waiting or self._here):
                    self._change.wait()
                if self._closed:
                    return
            try:
                self._turn()
            except Exception:
                log.exception("a step failed; its rows are given up")
                self._give_up()
            self._hand_out()

    @torch.no_grad()
    def _turn(self) -> None:
        self._leave()
        left = self.chunk
        while left > 0 and (ticket := self._next()) is not None:
            self._reading = ticket
            left -= self._read(ticket)
            self._reading = None
        if self._here:
            logits = self._batch.step([row.new[-1] for _, row in self._here])
            self.counts.steps += 1
            self.counts.row_steps += len(self._here)
            fine = _finite(logits)
            for (ticket, row), scores, good in zip(self._here, logits, fine, strict=True):
                self._draw(ticket, row, scores if good else None)
            self._leave()

    def _next(self) -> Ticket | None:
        """The first that waits, if there is room for all of its rows; those cancelled are dropped."""
        with self._change:
            while self._waiting:
                ticket = self._waiting[0]
                if not ticket.open:
                    self._taken(cancelled=len(ticket.rows))
                elif len(self._here) + len(ticket.rows) <= self.rows or not self._here:
                    return ticket
                else:
                    return None
        return None

    def _taken(self, cancelled: int = 0) -> None:
        """The first no longer waits."""
        ticket = self._waiting.popleft()
        self.counts.waiting -= len(ticket.rows)
        self.counts.cancelled += cancelled

    def _read(self, ticket: Ticket) -> int:
        """A chunk of the prompt; after the last one its rows join the others."""
        prompt, first = ticket.job.prompt, ticket.done
        last = min(first + self.chunk, len(prompt))
        if first == 0:
            ticket.state = self.model.start()
        tokens = torch.tensor([prompt[first:last]], device=self.model.head.weight.device)
        features, ticket.state = self.model.advance(tokens, ticket.state)
        ticket.done = last
        self.counts.read += last - first
        if ticket.job.scored:
            logits = self.model.logits(features)[0]
            if not all(_finite(logits)):
                self._spoiled(ticket)
            after = prompt[first + 1 : last + 1]
            ticket.scores += [_score(*pair, ticket.job.top or 0) for pair in zip(logits, after)]  # noqa: B905 - the last has none
        if last == len(prompt):
            (logits,) = self.model.logits(features[:, -1:])[:, 0]
            self._join(ticket, logits if _finite(logits[None])[0] else None)
        return last - first

    def _join(self, ticket: Ticket, logits: Tensor | None) -> None:
        with self._change:
            self._taken()
        self._tell(ticket, Read(ticket.scores))
        state, ticket.state = ticket.state, None
        for row in ticket.rows:
            if row.number in ticket.open:
                self._draw(ticket, row, logits)
        going = [(ticket, row) for row in ticket.rows if row.number in ticket.open]
        if going:
            self._batch.add(state, len(going))
            self._here += going
            self.counts.running = len(self._here)

    def _draw(self, ticket: Ticket, row: Row, logits: Tensor | None) -> None:
        """The next token of a row that goes on; None stands for logits that are not finite."""
        job = ticket.job
        if row.number not in ticket.open:
            return
        if logits is None:
            self._spoiled(ticket)
            return
        if job.new == 0:
            ticket.cancel(row.number)
            return
        try:
            token = row.sample(logits)
        except RuntimeError:  # logits that are no numbers; other rows may be well
            log.exception("a row could not be sampled")
            self._tell(ticket, Failed())
            ticket.cancel()
            return
        self.counts.drawn += 1
        ended = "stop" if token in job.ends else "length" if len(row.new) == job.new else None
        score = None if job.top is None else _score(logits, token, job.top)
        self._tell(ticket, Drawn(row.number, token, score, ended))
        if ended:
            row.done = True
            ticket.cancel(row.number)

    def _spoiled(self, ticket: Ticket) -> None:
        """Other rows are well: only this request ends, and a NaN is never taken for a token."""
        if ticket.open:
            log.error("a request was given up: its logits are not finite")
            self._tell(ticket, Failed("logits"))
            ticket.cancel()

    def _leave(self) -> None:
        """Rows that have ended or were cancelled make room."""
        places = [i for i, (ticket, row) in enumerate(self._here) if row.number in ticket.open]
        if len(places) < len(self._here):
            self.counts.cancelled += sum(
                row.number not in ticket.open and not row.done for ticket, row in self._here
            )
            # the last rows take the places of those that leave: fewer columns move
            count = len(places)
            movers = [place for place in places if place >= count]
            stay = set(places)
            order = [place if place in stay else movers.pop() for place in range(count)]
            self._here = [self._here[place] for place in order]
            self._batch.keep(order)
            self.counts.running = len(self._here)

    def _give_up(self) -> None:
        """After a failure the state of the rows is unknown."""
        self.counts.failures += 1
        tickets = {ticket for ticket, _ in self._here}
        if self._reading is not None:
            tickets.add(self._reading)
            with self._change:
                if self._waiting and self._waiting[0] is self._reading:
                    self._taken()
            self._reading = None
        for ticket in tickets:
            self._tell(ticket, Failed())
            ticket.cancel()
        self._here = []
        self._batch = ragged_batch(self.model, self.life)
        self.counts.running = 0

    def _tell(self, ticket: Ticket, event: Event) -> None:
        self._events.setdefault(ticket, []).append(event)

    def _hand_out(self) -> None:
        if self._events:
            events, self._events = self._events, {}

            def deliver() -> None:
                for ticket, news in events.items():
                    ticket.deliver(ticket, news)

            try:
                self.wake(deliver)
            except RuntimeError:  # the event loop is closed: nobody listens
                for ticket in events:
                    ticket.cancel()


def _finite(logits: Tensor) -> list[bool]:
    """Of each row: a sum shows NaN and infinities, fifty times as fast as a look at each logit."""
    sums = logits.sum(1, dtype=torch.float32)
    if bool(torch.isfinite(sums).all()):
        return [True] * len(logits)
    found: list[bool] = torch.isfinite(logits).all(1).tolist()  # large finite ones may overflow
    return found


def _score(logits: Tensor, token: int, top: int) -> Score:
    chances = torch.log_softmax(logits.float(), 0)
    best = chances.topk(min(top, len(chances)))
    likeliest = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return Score(float(chances[token]), likeliest)
