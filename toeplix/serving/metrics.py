"""Prometheus metrics of one server, at `/metrics`; counts of the engine are read at each request."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toeplix.serving.engine import Engine

PATHS = ("/v1/models", "/v1/completions", "/v1/chat/completions", "/health", "/metrics")
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class Metrics:
    """Metrics of requests; `follow` adds those of an engine."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        self.requests = Counter(
            "toeplix_requests", "Requests by path and status.", ["path", "status"], **own
        )
        self.lost = Counter(
            "toeplix_disconnects", "Clients that disconnected before the end.", **own
        )
        self.first = Histogram(
            "toeplix_time_to_first_token_seconds", "Time to the first text.", buckets=SECONDS, **own
        )
        self.whole = Histogram(
            "toeplix_completion_seconds", "Time of whole completions.", buckets=SECONDS, **own
        )

    def follow(self, engine: Engine) -> None:
        self.registry.register(_Engine(engine))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Engine(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Any]:
        counts = self._engine.counts
        yield GaugeMetricFamily(
            "toeplix_sequences_running", "Sequences in the batch.", counts.running
        )
        yield GaugeMetricFamily(
            "toeplix_sequences_waiting", "Sequences in the queue.", counts.waiting
        )
        for name, words, value in (
            ("decode_steps", "Decode steps of the batch.", counts.steps),
            (
                "sequence_steps",
                "Sum of the batch size over all decode steps.",
                counts.row_steps,
            ),
            ("prompt_tokens", "Prompt tokens processed.", counts.prompt_tokens),
            ("new_tokens", "Tokens sampled.", counts.sampled),
            (
                "sequences_cancelled",
                "Sequences cancelled by stop strings and disconnects.",
                counts.cancelled,
            ),
            ("failures", "Decode steps that failed.", counts.failures),
        ):
            yield CounterMetricFamily(f"toeplix_{name}", words, value)


class Counting:
    """ASGI middleware that counts requests by path and status; unknown paths count as `other`."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = scope["path"] if scope["path"] in PATHS else "other"
                self.metrics.requests.labels(path, str(message["status"])).inc()
            await send(message)

        await self.app(scope, receive, counted)
