"""Answers as they grow: from the engine's tokens to pieces of text with their log probabilities.

    answer = Answer(service, prompts, request, stops)    takes its place in the queue, or is rejected
    async for piece in answer: ...                        pieces of all choices, as they come

Leaving the loop early, for whatever reason, ends the work.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from toeplix.inference.detokenization import Detokenizer
from toeplix.inference.scheduler import (
    Event,
    Job,
    PromptRead,
    RequestFailed,
    Score,
    Ticket,
    TokenSampled,
)
from toeplix.serving.engine import Draining, Full
from toeplix.serving.limits import RequestError
from toeplix.serving.requests import Asked
from toeplix.serving.service import Service

AGAIN = {"Retry-After": "1"}  # seconds
FAILURES = {
    "fault": "the server failed to answer; the fault is in its log",
    "logits": "the model gave logits that are not finite for this request: change the prompt, or "
    "check the model's weights",
}


class Scored(NamedTuple):
    """A token, its log probability, and where its text begins in the text of its choice."""

    token: int
    score: Score | None  # None: the first of a sequence, before which there is nothing
    offset: int


class Piece(NamedTuple):
    """More of a choice."""

    choice: int
    text: str
    scored: list[Scored]
    ended: str | None  # "stop" or "length"


@dataclass(kw_only=True)
class Prompt:
    """Tokens, and what of them is shown when the prompt is to be echoed."""

    tokens: list[int]
    text: str = ""
    hidden: int = 0  # tokens in front that are not of the text


@dataclass
class _Choice:
    detokenizer: Detokenizer
    start: int = 0  # characters of the echoed prompt
    pending: list[Scored] = field(default_factory=list)
    tokens: int = 0
    ended: bool = False


class Answer:
    """All choices of one request."""

    def __init__(
        self, service: Service, prompts: Sequence[Prompt], asked: Asked, *, new: int, echo: bool
    ) -> None:
        self.service, self.prompts, self.echo, self.top = service, prompts, echo, asked.top
        self.began = time.monotonic()
        each = asked.choices
        seed = secrets.randbits(62) if asked.seed is None else asked.seed
        jobs = [
            Job(
                prompt=prompt.tokens,
                max_new_tokens=new,
                sampling=asked.sampling,
                # as `toeplix generate` does with several prompts
                seeds=[(seed + i * each + j) % 2**64 for j in range(each)],
                stop_tokens=service.ends,
                top_logprobs=asked.top,
                echo_logprobs=echo and asked.top is not None,
            )
            for i, prompt in enumerate(prompts)
        ]
        self._news: asyncio.Queue[tuple[Ticket | None, list[Event]]] = asyncio.Queue()
        try:
            self._tickets = service.engine.submit(jobs, lambda *news: self._news.put_nowait(news))
        except Full:
            raise RequestError(
                429, "too many requests wait here: try again", headers=AGAIN
            ) from None
        except Draining:
            raise RequestError(503, "the server is about to end", headers=AGAIN) from None
        stops = [*asked.stops, *(service.conversations.stops if service.chats(asked) else ())]
        self._choices = [
            _Choice(Detokenizer(service.tokenizer.decode, stops), len(prompt.text) if echo else 0)
            for prompt in prompts
            for _ in range(each)
        ]
        self._first = {ticket: i * each for i, ticket in enumerate(self._tickets)}

    @property
    def usage(self) -> dict[str, int]:
        read = sum(len(prompt.tokens) for prompt in self.prompts)
        new = sum(choice.tokens for choice in self._choices)
        return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}

    @property
    def choices(self) -> int:
        return len(self._choices)

    def cancel(self) -> None:
        """End the work."""
        for ticket in self._tickets:
            ticket.cancel()

    async def __aiter__(self) -> AsyncIterator[Piece]:
        seconds = self.service.limits.timeout
        late: tuple[Ticket | None, list[Event]] = (None, [RequestFailed()])
        alarm = asyncio.get_running_loop().call_later(seconds, self._news.put_nowait, late)
        told = False
        try:
            while not all(choice.ended for choice in self._choices):
                ticket, events = await self._news.get()
                if ticket is None:
                    raise RequestError(504, f"the answer took more than {seconds:g} seconds")
                for event in events:
                    for piece in self._pieces(ticket, event):
                        if not told:
                            self.service.metrics.first.observe(time.monotonic() - self.began)
                            told = True
                        yield piece
            self.service.metrics.whole.observe(time.monotonic() - self.began)
        finally:
            alarm.cancel()
            self.cancel()

    def _pieces(self, ticket: Ticket, event: Event) -> list[Piece]:
        if isinstance(event, RequestFailed):
            raise RequestError(500, FAILURES[event.reason])
        if isinstance(event, PromptRead):
            return self._after_reading(ticket, event)
        choice = self._choices[self._first[ticket] + event.row]
        piece = None if choice.ended else self._piece(ticket, choice, event)
        return [] if piece is None else [piece]

    def _after_reading(self, ticket: Ticket, event: PromptRead) -> list[Piece]:
        """The prompt itself, if it is to be shown; and all there is if nothing is to follow."""
        first = self._first[ticket]
        count = len(ticket.rows)
        prompt = self.prompts[first // count]
        ended = "length" if ticket.job.max_new_tokens == 0 else None
        scored: list[Scored] = []
        if ticket.job.echo_logprobs:
            scores: list[Score | None] = [None, *event.scores]
            detokenizer = Detokenizer(self.service.tokenizer.decode)
            for token, score in list(zip(prompt.tokens, scores, strict=True))[prompt.hidden :]:
                scored.append(Scored(token, score, detokenizer.length))
                detokenizer.add(token)
        if not self.echo:
            return []
        for choice in self._choices[first : first + count]:
            choice.ended = ended is not None
        return [Piece(first + row, prompt.text, scored, ended) for row in range(count)]

    def _piece(self, ticket: Ticket, choice: _Choice, event: TokenSampled) -> Piece | None:
        """What a token adds; None while it is held back."""
        detokenizer, ended = choice.detokenizer, event.finish_reason
        choice.tokens += 1
        offset = choice.start + detokenizer.length
        text = "" if event.token in ticket.job.stop_tokens else detokenizer.add(event.token)
        if ended:
            text += detokenizer.end()
        if detokenizer.stopped:
            ended = "stop"
            ticket.cancel(event.row)
        if event.score is not None and event.token not in ticket.job.stop_tokens:
            choice.pending.append(Scored(event.token, event.score, offset))
        if not (text or ended):
            return None
        scored, choice.pending = choice.pending, []
        if detokenizer.stopped:  # tokens of the stop string are not part of the answer
            scored = [each for each in scored if each.offset < choice.start + detokenizer.length]
        choice.ended = ended is not None
        return Piece(self._first[ticket] + event.row, text, scored, ended)
