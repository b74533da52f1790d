"""The engine of the server: a scheduler (continuous batching) in a thread, behind a bounded queue.

    submit(jobs, deliver)    tickets, or `Full` or `Draining`; events go to `deliver(ticket, events)`
    ticket.cancel(...)       rows end after the present step
    drain(), close()         accept no more jobs; end

Delivery runs where `wake` puts it, once a turn for all tickets: the event loop of the server.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from toeplix.inference.scheduler import Counts, Event, Job, RequestFailed, Scheduler, Ticket
from toeplix.model import LanguageModel

log = logging.getLogger("toeplix.serving")


class Full(Exception):
    """The queue has no room."""


class Draining(Exception):
    """The server is about to end."""


class Engine:
    """See the module. `queue` bounds the rows that wait; the rest is as for `Scheduler`."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        max_batch: int,
        queue: int,
        max_new_tokens: int,
        chunk: int | None = None,
        wake: Callable[[Callable[[], None]], object] = lambda call: call(),
    ) -> None:
        self.queue, self.wake = queue, wake
        self.draining = False
        self._scheduler = Scheduler(
            model, max_batch=max_batch, max_new_tokens=max_new_tokens, chunk=chunk
        )
        self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> Counts:
        return self._scheduler.counts

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs; it should until `close`."""
        return self._thread.is_alive()

    def submit(
        self, jobs: Sequence[Job], deliver: Callable[[Ticket, list[Event]], object]
    ) -> list[Ticket]:
        """Accept all of the jobs or none."""
        rows = sum(len(job.seeds) for job in jobs)
        with self._change:
            if self.draining:
                raise Draining
            if self.counts.waiting + rows > self.queue:
                raise Full
            tickets = [self._scheduler.add(job, deliver) for job in jobs]
            self._change.notify()
        return tickets

    def drain(self) -> None:
        """Accept no more jobs; those that were accepted go on."""
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
                while not (self._closed or self._scheduler.busy):
                    self._change.wait()
                if self._closed:
                    return
            try:
                events = self._scheduler.turn()
            except Exception:
                log.exception("a step failed; its rows are given up")
                events = self._scheduler.give_up()
            if events:
                self._hand_out(events)

    def _hand_out(self, events: dict[Ticket, list[Event]]) -> None:
        for event in (event for news in events.values() for event in news):
            if isinstance(event, RequestFailed) and event.reason == "logits":
                log.error("a request was given up: its logits are not finite")

        def deliver() -> None:
            for ticket, news in events.items():
                ticket.listener(ticket, news)

        try:
            self.wake(deliver)
        except RuntimeError:  # the event loop is closed: nobody listens
            for ticket in events:
                ticket.cancel()
