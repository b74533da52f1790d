"""Who may ask, and what a page may do.

A page elsewhere on the web can send requests to a server on this machine: under a name of its own that
it lets point here (DNS rebinding), or as a form from its own origin. The first is refused by the Host
header, which must be a number or a name that was asked for, the second by the Origin. What is served
may load and run only what this server has itself.
"""

import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY = 256 * 2**10  # bytes of a request
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
    """ASGI around an application: refuses foreign hosts and origins, and adds the headers above."""

    def __init__(self, app: App, names: tuple[str, ...] = ()) -> None:
        self._app, self._names = app, {"localhost", *names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name.decode(): value.decode() for name, value in message["headers"]}
                both = HEADERS | given  # an answer may have rules of its own
                message["headers"] = [
                    (name.encode(), value.encode()) for name, value in both.items()
                ]
            await send(message)

        refused = self.refusal(scope)
        if refused is None:
            await self._app(scope, receive, guarded)
        else:
            status, words = refused
            body = json.dumps({"error": words}).encode()
            kind = (b"content-type", b"application/json")
            size = (b"content-length", str(len(body)).encode())
            start = {"type": "http.response.start", "status": status, "headers": [kind, size]}
            await guarded(start)
            await guarded({"type": "http.response.body", "body": body})

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        host = headers.get("host", "")
        if not self.known(host):
            return (
                421,
                f"this server is not {host or 'a host without a name'}: ask for it by its address",
            )
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{host}":
            return 403, f"a page from {origin} has no business here"
        if scope["method"] not in ("GET", "HEAD"):
            length = headers.get("content-length", "")
            # with both headers the chunks count, of which there may be any number
            if not (length.isascii() and length.isdigit()) or "transfer-encoding" in headers:
                return 411, "the length of the request is missing"
            if len(length) > 18 or int(length) > BODY:
                return 413, f"the request has {length[:18]} bytes or more, at most {BODY} are read"
        return None

    def known(self, host: str) -> bool:
        """A number of this machine cannot be rebound; names must be among those that were given."""
        name = host.lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
