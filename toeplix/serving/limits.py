"""What the server takes, and the gate in front of it: hosts, key, size and pace of bodies.

A refusal has OpenAI's form, `{"error": {"message", "type", "param", "code"}}`, and says what to do.
"""

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fastapi import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toeplix.serving.host_guard import LOOPBACK, is_allowed_host

OPEN = ("/health",)  # for anybody
MAX_SECONDS = 7 * 24 * 3600
MAX_OF = {
    "rows": 2**16,
    "queue": 2**24,
    "tokens": 2**24,
    "prompt": 2**28,
    "choices": 2**16,
    "body": 2**31,
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one server."""

    rows: int = 64  # decoded together
    queue: int = 256  # rows that wait
    tokens: int = 1024  # new ones of a row
    prompt: int = 16384  # tokens
    choices: int = 16  # of a request
    body: int = 2**20  # bytes
    patience: float = 20.0  # seconds for a body to arrive
    timeout: float = 300.0  # seconds for an answer, waiting included
    drain: float = 60.0  # seconds for what is running, after SIGTERM

    def __post_init__(self) -> None:
        for each in fields(self):
            value, most = getattr(self, each.name), MAX_OF.get(each.name, MAX_SECONDS)
            if not 0 < value <= most:  # nor NaN
                raise ValueError(f"{each.name}={value} must be in (0, {most:,}]")


class Refusal(HTTPException):
    """An answer that is an error, in OpenAI's form."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code

    @property
    def body(self) -> dict[str, Any]:
        return error(self.status_code, str(self.detail), self.param, self.code)

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status_code, self.headers)


KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def error(status: int, message: str, param: str | None = None, code: str | None = None) -> Any:
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Gate:
    """In front of the application: refuses before anything is read or parsed."""

    def __init__(self, app: ASGIApp, limits: Limits, key: str | None, local: bool) -> None:
        self.app, self.limits, self.local = app, limits, local
        self._key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            self._admit(scope["path"], headers)
        except Refusal as refusal:
            await refusal.response(scope, receive, send)
            return
        await self.app(scope, _Bounded(receive, self.limits), send)

    def _admit(self, path: str, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if self.local and not is_allowed_host(host, LOOPBACK):
            raise Refusal(403, "this server answers to localhost only")
        if self._key is not None and path not in OPEN:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            same = hmac.compare_digest(given.strip(), self._key)
            if not (same and scheme.lower() == b"bearer"):
                raise Refusal(
                    401,
                    "a valid API key is needed: send it as 'Authorization: Bearer KEY'",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.body:
            raise _too_large(int(length), self.limits)


def _too_large(size: int, limits: Limits) -> Refusal:
    message = f"the body has {size} bytes or more, the server takes at most {limits.body}"
    return Refusal(413, message, headers={"Connection": "close"})


class _Bounded:
    """`receive`, for a body of bounded size that arrives in bounded time."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._size, self._complete = 0, False
        self._until = asyncio.get_running_loop().time() + limits.patience

    async def __call__(self) -> Message:
        if self._complete:  # what comes now is the end of the connection
            return await self._receive()
        left = self._until - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), left)
        except asyncio.TimeoutError as problem:
            words = f"the body did not arrive within {self._limits.patience:g} seconds"
            raise Refusal(408, words, headers={"Connection": "close"}) from problem
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._size > self._limits.body:
                raise _too_large(self._size, self._limits)
        return message
