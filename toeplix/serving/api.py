"""The routes: OpenAI's endpoints, `/health` and `/metrics`.

Every error has OpenAI's form. Internal errors are logged by the server and not described to clients.
"""

import asyncio
import functools
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from toeplix.files import printable
from toeplix.serving import bodies
from toeplix.serving.answers import Answer, Piece, Prompt
from toeplix.serving.formats import Chats, Completions, Format
from toeplix.serving.limits import Gate, RequestError, error
from toeplix.serving.metrics import Counting
from toeplix.serving.openapi import document
from toeplix.serving.requests import Asked, Chat, Completion
from toeplix.serving.service import Service

DEFAULT_MAX_TOKENS = 16  # of a completion without `max_tokens`, as at OpenAI


def application(
    service: Service, *, key: str | None = None, local: bool = True, lifespan: Any = None
) -> FastAPI:
    """Return the ASGI application; `local`: accept only requests to this machine's loopback names.

    `lifespan` is Starlette's: what starts and ends with the event loop of another server than ours.
    """
    about: dict[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(title="toeplix", lifespan=lifespan, **about)
    limits = service.limits
    app.openapi = functools.partial(document, app, service, secured=key is not None)  # type: ignore[method-assign]
    app.add_middleware(Gate, limits=limits, key=key, local=local)
    app.add_middleware(Counting, metrics=service.metrics)
    described = {
        "id": service.name,
        "object": "model",
        "created": service.began,
        "owned_by": "toeplix",
    }

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [described]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        _known(service, name)
        return described

    @app.post("/v1/completions", response_model=None)
    async def completions(request: Request) -> Response:
        asked = await bodies.read(request, Completion)
        _known(service, asked.model)
        new = (
            min(DEFAULT_MAX_TOKENS, limits.max_tokens)
            if asked.max_tokens is None
            else asked.max_tokens
        )
        if new == 0 and not asked.echo:
            raise RequestError(400, "max_tokens: 0 is for echo only", param="max_tokens")
        _check_amount(service, asked, new, len(asked.prompt))
        prompts = await run_in_threadpool(lambda: [_prompt(service, each) for each in asked.prompt])
        answer = _answer(service, prompts, asked, new, bool(asked.echo))
        return await _respond(request, answer, asked, Completions)

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(request: Request) -> Response:
        asked = await bodies.read(request, Chat)
        _known(service, asked.model)
        if asked.max_tokens == 0:
            raise RequestError(400, "max_tokens: at least 1 is needed", param="max_tokens")
        new = asked.max_completion_tokens or asked.max_tokens or limits.max_tokens
        _check_amount(service, asked, new, 1)
        messages = [(message.role, message.text) for message in asked.messages]
        tokens = await run_in_threadpool(service.conversations.tokens, messages)
        answer = _answer(service, [Prompt(tokens=tokens)], asked, new, False)
        return await _respond(request, answer, asked, Chats)

    @app.get("/health")
    async def health() -> Response:
        draining = service.engine.draining
        return JSONResponse({"status": "draining" if draining else "ok"}, 503 if draining else 200)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    app.add_exception_handler(HTTPException, _rejected)
    app.add_exception_handler(Exception, _failed)
    return app


def _known(service: Service, name: str) -> None:
    if name != service.name:
        shown = printable(repr(name[:80]))
        message = f"there is no model {shown} here, only {service.name!r}"
        raise RequestError(404, message, param="model", code="model_not_found")


def _prompt(service: Service, given: str | list[int]) -> Prompt:
    """Return a prompt: a text after the start token, or the given tokens."""
    tokenizer = service.tokenizer
    if isinstance(given, str):
        tokens = [tokenizer.start, *tokenizer.encode(given)]
        return Prompt(tokens=tokens, text=given, hidden=1)
    vocab = service.model.config.vocab
    if min(given) < 0 or max(given) >= vocab:
        raise RequestError(400, f"prompt: tokens must be in 0 .. {vocab - 1}", param="prompt")
    return Prompt(tokens=given, text=tokenizer.decode(given))


def _check_amount(service: Service, asked: Asked, new: int, prompts: int) -> None:
    """Reject requests for too many tokens or choices, before their texts are tokenized."""
    limits = service.limits
    if new > limits.max_tokens:
        message = f"max_tokens: {new} is more than the {limits.max_tokens} that this server writes"
        raise RequestError(400, message, param="max_tokens")
    if prompts * asked.choices > limits.choices:
        message = f"{prompts} prompts times n={asked.choices} is more than {limits.choices} choices"
        raise RequestError(400, message, param="n")


def _answer(service: Service, prompts: list[Prompt], asked: Asked, new: int, echo: bool) -> Answer:
    most, longest = service.limits.max_prompt, max(len(prompt.tokens) for prompt in prompts)
    if longest > most:
        message = f"the prompt has {longest} tokens, the server reads at most {most}"
        raise RequestError(400, message, param="prompt", code="context_length_exceeded")
    return Answer(service, prompts, asked, new=new, echo=echo)


async def _respond(request: Request, answer: Answer, asked: Asked, form: type[Format]) -> Response:
    service = answer.service
    written = form(service.name, service.tokenizer, asked.top is not None)
    if asked.stream:
        return Events(answer, written, asked.usage_in_stream)
    work = asyncio.ensure_future(_all(answer))
    disconnected = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((work, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            service.metrics.lost.inc()
            return Response(status_code=499)  # the client has disconnected
        return JSONResponse(written.whole(work.result(), answer.usage))
    finally:
        disconnected.cancel()
        work.cancel()
        answer.cancel()


async def _all(answer: Answer) -> list[Piece]:
    return [piece async for piece in answer]


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Events(StreamingResponse):
    """Server-sent events: chunks, usage if requested, `[DONE]`. Cancels when the client disconnects."""

    def __init__(self, answer: Answer, form: Format, usage: bool) -> None:
        self._answer, self._form, self._usage, self._complete = answer, form, usage, False
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(self._lines(), media_type="text/event-stream", headers=headers)

    async def _lines(self) -> AsyncIterator[str]:
        counted = {"usage": None} if self._usage else {}
        try:
            for choice in range(self._answer.choices):
                if opening := self._form.opening(choice):
                    yield _event(opening | counted)
            async for piece in self._answer:
                yield _event(self._form.chunk(piece) | counted)
            if self._usage:
                yield _event(self._form.last(self._answer.usage))
            yield "data: [DONE]\n\n"
        except RequestError as refusal:  # the status has been sent already
            yield _event(refusal.body)
        self._complete = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits = self._answer.service.limits
        try:  # also if the client stops reading
            patience = limits.timeout + limits.body_timeout
            await asyncio.wait_for(super().__call__(scope, receive, send), patience)
        finally:
            self._answer.cancel()
            if not self._complete:
                self._answer.service.metrics.lost.inc()


def _event(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document, separators=(',', ':'))}\n\n"


async def _rejected(request: Request, problem: Exception) -> Response:
    if isinstance(problem, RequestError):
        return problem.response
    assert isinstance(problem, HTTPException)
    return JSONResponse(
        error(problem.status_code, str(problem.detail)), problem.status_code, problem.headers
    )


async def _failed(request: Request, problem: Exception) -> Response:
    return JSONResponse(error(500, "the server failed to answer; the fault is in its log"), 500)
