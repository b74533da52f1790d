"""The explorer's server: the page, and the routes that it requests.

GET  /, /page/NAME            the page, and its files, all inside this package
GET  /api/list                runs and models by name
GET  /api/metrics             rows of a run after a cursor
GET  /api/settings            run.json and the last sample
GET  /api/filters             indices of all filters of a model
GET  /api/filter              taps and symbol of one filter
POST /api/generate            generated text, one line of JSON for each token
POST /api/reach               which earlier tokens each token of a text reads
GET  /api/claims              the paper's claims, with verdicts
GET  /figures/NAME            a figure of an experiment
"""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import torch
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import AfterValidator, BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as Rejection

from toeplix.explorer import reach as linear
from toeplix.explorer import runs
from toeplix.explorer.cache import ModelCache
from toeplix.explorer.discovery import find
from toeplix.explorer.generation import Event, name, write
from toeplix.explorer.guard import App, Guard
from toeplix.files import printable
from toeplix.inference.detokenization import Detokenizer
from toeplix.inference.sampling import Sampling
from toeplix.training.summary import latest_sample

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
MAX_GENERATIONS = 4  # texts that are generated at the same time


def _characters(text: str) -> str:
    """Return the text; raise ValueError if it has a lone surrogate."""
    if printable(text) != text:
        raise ValueError("the text has half of a surrogate pair, which is no character")
    return text


Characters = Annotated[str, AfterValidator(_characters)]


class GenerateRequest(BaseModel):
    """The body of POST /api/generate."""

    model: str
    prompt: Characters = Field("", max_length=50_000)
    new: int = Field(100, ge=1, le=2000)
    temperature: float = 0.8
    top_k: int = Field(0, ge=0, lt=2**31)
    top_p: float = 0.95
    seed: int = Field(0, ge=0, lt=2**63)


class ReachRequest(BaseModel):
    """The body of POST /api/reach."""

    model: str
    text: Characters = Field(max_length=20_000)
    linearization: str = "at_text"


def explorer(
    root: Path,
    *,
    results: Path = Path("results"),
    figures: Path = Path("figures"),
    names: tuple[str, ...] = (),
) -> App:
    """Return the application for one path; `names` are its host names beside localhost."""
    find(root)  # fails now, not at the first request
    app = FastAPI(openapi_url=None)
    cache, slots = ModelCache(), threading.Semaphore(MAX_GENERATIONS)
    parts = _parts()

    def run(name: str) -> Path:
        return _named("run", name, find(root).runs)

    def checkpoint(name: str) -> Path:
        return _named("model", name, find(root).models)

    @app.get("/")
    def index() -> Response:
        return Response(parts["index.html"], media_type=KINDS[".html"])

    @app.get("/page/{name}")
    def part(name: str) -> Response:
        body = _named("part of the page", name, parts)
        return Response(body, media_type=KINDS[Path(name).suffix])

    @app.get("/api/list")
    def listing() -> Any:
        found = find(root)
        described = [runs.describe(name, folder) for name, folder in found.runs.items()]
        for about in described:
            if about["name"] in found.escaped:
                about["problem"] = about["problem"] or "its directory's name is not UTF-8"
        return {"root": printable(root), "runs": described, "models": list(found.models)}

    @app.get("/api/metrics")
    def metrics(name: str, cursor: str = "") -> Any:
        return runs.follow(run(name), cursor)._asdict()

    @app.get("/api/settings")
    def settings(name: str) -> Any:
        folder = run(name)
        return {"settings": runs.record(folder), "sample": _sample(folder)}

    @app.get("/api/filters")
    def filters(name: str) -> Any:
        found = cache.filters(checkpoint(name))
        return runs.clean({"config": found.config, "rows": found.rows})

    @app.get("/api/filter")
    def one(name: str, layer: str, head: int = 0, kernel: int = 0) -> Any:
        return cache.filters(checkpoint(name)).one(layer, head, kernel)

    @app.post("/api/generate")
    def generate(request: GenerateRequest) -> Response:
        loaded = cache.loaded(checkpoint(request.model))
        sampling = Sampling(
            temperature=request.temperature, top_k=request.top_k, top_p=request.top_p
        )
        events = write(
            *loaded,
            request.prompt,
            new=request.new,
            sampling=sampling,
            seed=request.seed,
            alone=cache.alone,
        )
        if not slots.acquire(blocking=False):
            raise HTTPException(429, f"{MAX_GENERATIONS} texts are being written: stop one of them")
        return StreamingResponse(_lines(events, slots), media_type="application/x-ndjson")

    @app.post("/api/reach")
    def reach(request: ReachRequest) -> Any:
        model, tokenizer = cache.loaded(checkpoint(request.model))
        whole = [tokenizer.start, *tokenizer.encode(request.text)]
        most = min(linear.MAX_POSITIONS, model.config.context)
        tokens = whole[:most]
        with cache.alone:
            found = linear.reach(model, torch.tensor(tokens), request.linearization)
        if not bool(found.isfinite().all()):
            raise ValueError("what arrives is not finite: check the model's weights")
        text = Detokenizer(tokenizer.decode)
        return {
            "tokens": [name(tokenizer, tokens[0]), *(text.add(token) for token in tokens[1:])],
            "names": [name(tokenizer, token) for token in tokens],
            "left_out": len(whole) - len(tokens),
            "reach": [
                [float(f"{value:.4g}") for value in row[: place + 1]]
                for place, row in enumerate(found.tolist())
            ],
        }

    @app.get("/api/claims")
    def claimed() -> Any:
        from toeplix.explorer.claims import table

        return table(results, figures)

    @app.get("/figures/{name}")
    def figure(name: str) -> Response:
        from toeplix.explorer.claims import drawn

        files = {file.name: file for file in drawn(figures).values()}
        body = _named("figure", name, files).read_bytes()
        own = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
        return Response(body, media_type=KINDS[".svg"], headers=own)

    @app.exception_handler(RequestValidationError)
    def unreadable(_: Request, problem: RequestValidationError) -> Response:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        words = f"{place}: {first['msg'].removeprefix('Value error, ')}"
        return JSONResponse({"error": printable(words)[:400]}, 422)

    @app.exception_handler(Rejection)
    def rejected(_: Request, problem: Rejection) -> Response:
        return JSONResponse({"error": problem.detail}, problem.status_code)

    for kind, status in ((LookupError, 404), (ValueError, 400), (OSError, 400)):
        app.add_exception_handler(kind, _error_response(status))
    return Guard(app, names)


def _error_response(status: int) -> Any:
    """Return an exception handler that responds with the status and the message of the exception."""

    def respond(_: Request, problem: Exception) -> Response:
        return JSONResponse({"error": runs.message(problem)}, status)

    return respond


def _sample(folder: Path) -> str:
    try:
        return printable(latest_sample(folder))
    except (OSError, ValueError) as problem:  # the settings are shown without it
        return f"samples.txt cannot be read: {runs.message(problem)}"


def _named(what: str, name: str, known: dict[str, Any]) -> Any:
    """Return the entry of a name. All names of requests are looked up here, none becomes a path."""
    if name not in known:
        raise LookupError(f"there is no {what} {name[:200]!r}")
    return known[name]


def _parts() -> dict[str, bytes]:
    folder = resources.files("toeplix.explorer") / "page"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


async def _lines(events: Iterator[Event], slots: threading.Semaphore) -> AsyncIterator[bytes]:
    """Yield events as lines of JSON; generation stops when the browser disconnects."""
    try:
        while (event := await run_in_threadpool(_next, events)) is not None:
            yield (json.dumps(event) + "\n").encode()
    finally:
        slots.release()


def _next(events: Iterator[Event]) -> Event | None:
    try:
        return next(events, None)
    except (ValueError, RuntimeError) as problem:  # PyTorch raises RuntimeError
        return {"kind": "error", "text": runs.message(problem)}
