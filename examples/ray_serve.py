"""Replicas of a model behind Ray Serve, on one machine or on all machines of a Ray cluster.

    pip install 'toeplix[ray]'
    TOEPLIX_MODEL=runs/mine/model python examples/ray_serve.py --replicas 2 --port 8000
    curl http://127.0.0.1:8000/v1/models

Ray Serve routes requests, restarts replicas that fail, and replaces them without losing requests; each
replica is the ASGI application of `toeplix.serving.factory`, with the same environment variables. On a
cluster the directory of the model must be on storage that all machines share.

    health      GET /health is answered by a replica. Ray asks every replica whether its engine is alive,
                and restarts it if not. GET /-/healthz is the health of Ray's proxy.
    draining    A replica that is stopped (scaling down, redeploying, deleting) gets no new requests and
                has TOEPLIX_DRAIN seconds to complete those that it has.
    GPUs        TOEPLIX_DEVICE=cuda reserves one for every replica, --gpus 0.5 half of one; Ray chooses
                which one. Without either none is reserved.
    metrics     GET /metrics is that of the replica that answers. All replicas also publish theirs as
                gauges of Ray, with a label for the replica: ray_toeplix_* at the metrics port of every
                Ray node, which Prometheus scrapes.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any

try:
    from ray import serve
    from ray.util.metrics import Gauge
except ModuleNotFoundError as problem:
    if __name__ != "__main__":
        raise
    print(f"toeplix: {problem}: pip install 'toeplix[ray]'", file=sys.stderr)
    raise SystemExit(2) from problem

from toeplix.devices import named_device
from toeplix.serving.factory import DEVICE, Settings, create, settings

APPLICATION = "toeplix"
PUBLISH_SECONDS = 2.0
DELETE_SECONDS = 30.0  # that Ray has to delete an application whose replicas are drained


def build() -> Any:
    """Return the application of one replica; Ray calls this in the replica's process."""
    app = create(settings(os.environ))
    Published(app.state.service.metrics.registry).start()
    return app


class Published(threading.Thread):
    """Copies the metrics of a replica to Ray every two seconds, all as gauges."""

    def __init__(self, registry: Any) -> None:
        super().__init__(name="metrics", daemon=True)
        self._registry = registry
        self._gauges: dict[str, Gauge] = {}

    def run(self) -> None:
        while True:
            self.publish()
            time.sleep(PUBLISH_SECONDS)

    def publish(self) -> None:
        for family in self._registry.collect():
            for sample in family.samples:
                if sample.name not in self._gauges:
                    self._gauges[sample.name] = Gauge(
                        sample.name, family.documentation, tuple(sample.labels)
                    )
                self._gauges[sample.name].set(sample.value, sample.labels)


@serve.ingress(build)
class Replica:
    """One copy of the model with its engine."""

    def check_health(self) -> None:
        """Raise an error if this replica has to be replaced; Ray calls this every ten seconds."""
        if not self.app.state.service.engine.alive:  # type: ignore[attr-defined]
            raise RuntimeError("the engine of this replica has ended")


def reserved_gpus(chosen: Settings, asked: float | None) -> float:
    """Return the GPUs that each replica reserves: as asked for, else one if its device is CUDA."""
    device = named_device(chosen.device)
    cuda = device is not None and device.type == "cuda"
    if device is not None and cuda and device.index is not None:
        raise ValueError(f"{DEVICE}={chosen.device}: Ray chooses the GPU of a replica, give cuda")
    gpus = float(cuda) if asked is None else asked
    if not 0 <= gpus <= 1:
        raise ValueError(f"--gpus {gpus:g} must be in 0 .. 1: a replica runs on one device")
    if cuda and gpus == 0:
        raise ValueError(f"--gpus 0 reserves no GPU for {DEVICE}={chosen.device}: leave it out")
    return gpus


def deployment(chosen: Settings, replicas: int, gpus: float = 0.0) -> Any:
    """Return the application for `serve.run`; replicas get this process's TOEPLIX_ variables."""
    limits = chosen.limits
    own = {name: value for name, value in os.environ.items() if name.startswith("TOEPLIX_")}
    actor = {
        "num_cpus": chosen.threads or 1,
        "num_gpus": gpus,
        "runtime_env": {"env_vars": own},
    }
    return serve.deployment(
        Replica,
        name=APPLICATION,
        num_replicas=replicas,
        max_ongoing_requests=limits.max_batch + limits.max_waiting,
        graceful_shutdown_timeout_s=limits.drain,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=10,
        ray_actor_options=actor,
    ).bind()


def delete(drain: float) -> None:
    """Delete the application and wait until all replicas are drained, for `drain` seconds and some more.

    Ray waits for 60 seconds and raises an error then. Replicas that are still draining would end with
    this process, which has started the local Ray, and their requests with them.
    """
    end = time.monotonic() + drain + DELETE_SECONDS
    with contextlib.suppress(TimeoutError):
        serve.delete(APPLICATION)
    while APPLICATION in serve.status().applications and time.monotonic() < end:
        time.sleep(0.5)


def main() -> None:
    """Run the replicas until Ctrl-C or SIGTERM, then let them complete their requests."""
    parser = argparse.ArgumentParser(description="Serve replicas of a model with Ray.")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument(
        "--gpus",
        type=float,
        help="GPUs of each replica, 0.5 for two on one; default: 1 with TOEPLIX_DEVICE=cuda, else 0",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    try:
        chosen = settings(os.environ)
        gpus = reserved_gpus(chosen, given.gpus)
    except ValueError as problem:
        raise SystemExit(f"toeplix: {problem}") from problem
    if given.host != "127.0.0.1" and chosen.key is None:
        raise SystemExit(f"toeplix: --host {given.host} needs an API key in TOEPLIX_API_KEY")
    serve.start(http_options={"host": given.host, "port": given.port})
    serve.run(deployment(chosen, given.replicas, gpus), name=APPLICATION)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    delete(chosen.limits.drain)


if __name__ == "__main__":
    main()
