"""Uvicorn as both servers run it: HTTP/1.1 alone, quiet, and of one mind about malformed requests.

When a body turns out to be malformed, uvicorn answers 400 by itself while the application may still be
at work: its answer then fails, with a traceback in the log for every such request. Here the application
is told that the client has left, and what it still sends is dropped.
"""

from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class Protocol(H11Protocol):
    """See the module."""

    def send_400_response(self, msg: str) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:  # too late for another answer
                self.transport.close()
                return
        super().send_400_response(msg)


def configuration(app: Any, **more: Any) -> uvicorn.Config:
    """Of a server: nothing is logged but its own faults, however many bad requests come."""
    quiet: dict[str, Any] = {"log_level": "error", "access_log": False, "server_header": False}
    return uvicorn.Config(app, http=Protocol, ws="none", **quiet, **more)
