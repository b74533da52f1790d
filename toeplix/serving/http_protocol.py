"""Uvicorn's settings for both servers: HTTP/1.1 only, without logs of requests.

When a body is malformed, uvicorn responds with 400 by itself while the application may still be running,
whose response then fails with a traceback in the log. Here the application is notified of a disconnect
instead, and what it still sends is dropped.
"""

from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class Protocol(H11Protocol):
    """HTTP/1.1 that disconnects the application when a request is malformed."""

    def send_400_response(self, msg: str) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:  # the response has begun
                self.transport.close()
                return
        super().send_400_response(msg)


def configuration(app: Any, **more: Any) -> uvicorn.Config:
    """Return the configuration of a server that logs only its own errors, not those of requests."""
    quiet: dict[str, Any] = {"log_level": "error", "access_log": False, "server_header": False}
    return uvicorn.Config(app, http=Protocol, ws="none", **quiet, **more)
