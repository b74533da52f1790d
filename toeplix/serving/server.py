"""The HTTP server, which completes running requests when it is stopped.

with running(service, port=0) as server: ...     in a thread, for tests and programs
run(service, listening, ...)                       until SIGTERM or Ctrl-C; a second signal ends at once
"""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from toeplix.files import printable
from toeplix.serving.api import application
from toeplix.serving.http_protocol import configuration
from toeplix.serving.service import Service

MAX_CONNECTIONS = 1024  # at a time; uvicorn responds to more with 503


class Server(uvicorn.Server):
    """Uvicorn with draining: after `stop` no request is accepted, and accepted ones are completed."""

    def __init__(
        self,
        service: Service,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        key: str | None = None,
        ready: Callable[["Server"], object] = lambda server: None,
    ) -> None:
        self.service, self._ready = service, ready
        check_exposure(host, key)
        config = configuration(
            application(service, key=key, local=is_local(host)),
            host=host,
            port=port,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=max(1, round(service.limits.drain)),
        )
        super().__init__(config)

    @property
    def url(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def startup(self, sockets: Any = None) -> None:
        loop = asyncio.get_running_loop()
        self.service.engine.wake = loop.call_soon_threadsafe
        await super().startup(sockets)
        if self.started:
            self._ready(self)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals so that a server that was stopped exits with status 0."""
        here = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if here else ()
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.stop()

    def stop(self) -> None:
        """Complete accepted requests and end; the second call ends at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.service.engine.draining = True


def run(
    service: Service,
    listening: socket.socket,
    *,
    host: str,
    key: str | None,
    ready: Callable[[Server], object],
) -> None:
    """Serve at a socket until a signal; `host` is the name or address of the socket."""
    try:
        Server(service, host=host, key=key, ready=ready).run(sockets=[listening])
    finally:
        service.close()


@contextlib.contextmanager
def running(service: Service, **where: Any) -> Iterator[Server]:
    """Run a server in a thread of this process."""
    begun = threading.Event()
    server = Server(service, ready=lambda server: begun.set(), **where)
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    if not begun.wait(30):
        raise OSError("the server did not start")
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        service.close()


def is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, key: str | None) -> None:
    """Raise ValueError if other machines can reach the address and there is no API key."""
    if key is None and not is_local(host):
        shown = printable(host)[:80]
        raise ValueError(
            f"host {shown} can be reached from other machines: set a key first, in the environment "
            "variable TOEPLIX_API_KEY or by --key-file"
        )
