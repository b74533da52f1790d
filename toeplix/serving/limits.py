"""The limits of a server, and the middleware that enforces them: hosts, API key, size and time of bodies.

Errors have OpenAI's form, `{"error": {"message", "type", "param", "code"}}`, and say what to do.
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

KEY = "TOEPLIX_API_KEY"  # the environment variable with the API key
MAX_KEY = 4096  # characters
PATHS_WITHOUT_KEY = ("/health",)
MAX_SECONDS = 7 * 24 * 3600
MAX_OF = {
    "max_batch": 2**16,
    "max_waiting": 2**24,
    "max_tokens": 2**24,
    "max_prompt": 2**28,
    "max_choices": 2**16,
    "max_body": 2**31,
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one server."""

    max_batch: int = 64  # sequences that are decoded together
    max_waiting: int = 256  # sequences in the queue
    max_tokens: int = 1024  # new tokens of a completion
    max_prompt: int = 16384  # tokens of a prompt
    max_choices: int = 16  # completions of a request, prompts times n; see `choices`
    max_body: int = 2**20  # bytes of a request
    body_timeout: float = 20.0  # seconds to receive a body
    timeout: float = 300.0  # seconds for a completion, waiting included
    drain: float = 60.0  # seconds for running completions after SIGTERM

    def __post_init__(self) -> None:
        for each in fields(self):
            value, most = getattr(self, each.name), MAX_OF.get(each.name, MAX_SECONDS)
            if not 0 < value <= most:  # nor NaN
                raise ValueError(f"{each.name}={value} must be in (0, {most:,}]")

    @property
    def choices(self) -> int:
        """The number of completions that a request may ask for: all of them wait in the queue at once."""
        return min(self.max_choices, self.max_waiting)


def check_key(key: str, where: str) -> str:
    """Return the API key without surrounding space; `where` it comes from is named by the error."""
    key = key.strip()
    if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()) or " " in key:
        raise ValueError(
            f"{where} holds no key: one line of at most {MAX_KEY} printable ASCII characters is needed"
        )
    return key


class RequestError(HTTPException):
    """A response that is an error in OpenAI's form."""

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
    """Return the body of an error response."""
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Gate:
    """ASGI middleware that rejects requests before their bodies are read or parsed."""

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
        except RequestError as refusal:
            await refusal.response(scope, receive, send)
            return
        await self.app(scope, _Bounded(receive, self.limits), send)

    def _admit(self, path: str, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if self.local and not is_allowed_host(host, LOOPBACK):
            raise RequestError(403, "this server answers to localhost only")
        if self._key is not None and path not in PATHS_WITHOUT_KEY:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            same = hmac.compare_digest(given.strip(), self._key)
            if not (same and scheme.lower() == b"bearer"):
                raise RequestError(
                    401,
                    "a valid API key is needed: send it as 'Authorization: Bearer KEY'",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.limits.max_body:
            raise _too_large(int(length), self.limits)


def _too_large(size: int, limits: Limits) -> RequestError:
    message = f"the body has {size} bytes or more, the server takes at most {limits.max_body}"
    return RequestError(413, message, headers={"Connection": "close"})


class _Bounded:
    """The `receive` of a request, with limits on the size of the body and the time to receive it."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._size, self._complete = 0, False
        self._until = asyncio.get_running_loop().time() + limits.body_timeout

    async def __call__(self) -> Message:
        if self._complete:  # next is the end of the connection
            return await self._receive()
        left = self._until - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), left)
        except asyncio.TimeoutError as problem:
            words = f"the body did not arrive within {self._limits.body_timeout:g} seconds"
            raise RequestError(408, words, headers={"Connection": "close"}) from problem
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._size > self._limits.max_body:
                raise _too_large(self._size, self._limits)
        return message
