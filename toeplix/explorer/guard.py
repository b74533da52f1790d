"""Requests that the explorer accepts, and what its pages may do.

Requests for another host and from pages of another origin are rejected (serving/host_guard.py). The page
may load and run only files of this server.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from toeplix.serving.host_guard import is_allowed_host, is_same_origin

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 256 * 2**10  # bytes of a request
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """ASGI middleware that rejects other hosts and origins, and adds `HEADERS` to every response."""

    def __init__(self, app: App, names: tuple[str, ...] = ()) -> None:
        self._app, self._names = app, {"localhost", *names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name.decode(): value.decode() for name, value in message["headers"]}
                both = HEADERS | given  # a response may have a policy of its own
                message["headers"] = [
                    (name.encode(), value.encode()) for name, value in both.items()
                ]
            await send(message)

        rejected = self.rejection(scope)
        if rejected is None:
            await self._app(scope, receive, guarded)
        else:
            status, message_text = rejected
            body = json.dumps({"error": message_text}).encode()
            kind = (b"content-type", b"application/json")
            size = (b"content-length", str(len(body)).encode())
            start = {"type": "http.response.start", "status": status, "headers": [kind, size]}
            await guarded(start)
            await guarded({"type": "http.response.body", "body": body})

    def rejection(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and message for a request that is not accepted, None for one that is."""
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        host = headers.get("host", "")
        if not is_allowed_host(host, self._names, any_address=True):
            return (
                421,
                f"this server is not {host or 'a host without a name'}: ask for it by its address",
            )
        origin = headers.get("origin")
        if not is_same_origin(origin, scope["scheme"], host):
            return 403, f"a page from {origin} has no business here"
        if scope["method"] not in ("GET", "HEAD"):
            length = headers.get("content-length", "")
            # with both headers the chunks count, of which there may be any number
            if not (length.isascii() and length.isdigit()) or "transfer-encoding" in headers:
                return 411, "the length of the request is missing"
            if len(length) > 18 or int(length) > MAX_BODY:
                return (
                    413,
                    f"the request has {length[:18]} bytes or more, at most {MAX_BODY} are read",
                )
        return None
