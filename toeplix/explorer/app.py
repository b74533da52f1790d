"""The explorer's server: a page, and what it asks for.

GET  /                        the page; /page/NAME: its parts, all inside this package
GET  /api/places              runs and models by name
GET  /api/metrics             rows of a run after a cursor
GET  /api/settings            run.json and the last sample
GET  /api/filters, /api/filter   of a model: indices of all, curves of one
POST /api/write               text token by token, a line of JSON each
POST /api/reach               which earlier tokens reach each token of a text
GET  /api/claims, /figures/NAME
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
from starlette.exceptions import HTTPException as Refusal

from toeplix.explorer import reach as linear
from toeplix.explorer import runs
from toeplix.explorer.cache import Shelf
from toeplix.explorer.discovery import find
from toeplix.explorer.guard import App, Guard
from toeplix.explorer.writing import Event, name, write
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
WRITERS = 4  # texts that are written at the same time


def _characters(text: str) -> str:
    if printable(text) != text:
        raise ValueError("the text has half of a surrogate pair, which is no character")
    return text


Characters = Annotated[str, AfterValidator(_characters)]


class Wish(BaseModel):
    """A text to be written."""

    model: str
    prompt: Characters = Field("", max_length=50_000)
    new: int = Field(100, ge=1, le=2000)
    temperature: float = 0.8
    top_k: int = Field(0, ge=0, lt=2**31)
    top_p: float = 0.95
    seed: int = Field(0, ge=0, lt=2**63)


class Question(BaseModel):
    """A text of which the linear path is asked."""

    model: str
    text: Characters = Field(max_length=20_000)
    held: str = "text"


def explorer(
    root: Path,
    *,
    results: Path = Path("results"),
    figures: Path = Path("figures"),
    names: tuple[str, ...] = (),
) -> App:
    """The application over one path; `names` are host names beside localhost that it answers to."""
    find(root)  # what cannot be explored is said now
    app = FastAPI(openapi_url=None)
    shelf, writers = Shelf(), threading.Semaphore(WRITERS)
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

    @app.get("/api/places")
    def places() -> Any:
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
        found = shelf.filters(checkpoint(name))
        return runs.clean({"config": found.config, "rows": found.rows})

    @app.get("/api/filter")
    def one(name: str, layer: str, head: int = 0, kernel: int = 0) -> Any:
        return shelf.filters(checkpoint(name)).one(layer, head, kernel)

    @app.post("/api/write")
    def writing(wish: Wish) -> Response:
        speaker = shelf.speaker(checkpoint(wish.model))
        sampling = Sampling(temperature=wish.temperature, top_k=wish.top_k, top_p=wish.top_p)
        events = write(
            *speaker,
            wish.prompt,
            new=wish.new,
            sampling=sampling,
            seed=wish.seed,
            alone=shelf.alone,
        )
        if not writers.acquire(blocking=False):
            raise HTTPException(429, f"{WRITERS} texts are being written: stop one of them")
        return StreamingResponse(_lines(events, writers), media_type="application/x-ndjson")

    @app.post("/api/reach")
    def reach(question: Question) -> Any:
        model, tokenizer = shelf.speaker(checkpoint(question.model))
        whole = [tokenizer.start, *tokenizer.encode(question.text)]
        most = min(linear.LONGEST, model.config.context)
        tokens = whole[:most]
        with shelf.alone:
            found = linear.reach(model, torch.tensor(tokens), question.held)
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

    @app.exception_handler(Refusal)
    def refused(_: Request, problem: Refusal) -> Response:
        return JSONResponse({"error": problem.detail}, problem.status_code)

    for kind, status in ((LookupError, 404), (ValueError, 400), (OSError, 400)):
        app.add_exception_handler(kind, _told(status))
    return Guard(app, names)


def _told(status: int) -> Any:
    def tell(_: Request, problem: Exception) -> Response:
        return JSONResponse({"error": runs.said(problem)}, status)

    return tell


def _sample(folder: Path) -> str:
    try:
        return printable(latest_sample(folder))
    except (OSError, ValueError) as problem:  # a sample is no reason to hide the settings
        return f"samples.txt cannot be read: {runs.said(problem)}"


def _named(what: str, name: str, known: dict[str, Any]) -> Any:
    """The only way from a name in a request to something on disk."""
    if name not in known:
        raise LookupError(f"there is no {what} {name[:200]!r}")
    return known[name]


def _parts() -> dict[str, bytes]:
    folder = resources.files("toeplix.explorer") / "page"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


async def _lines(events: Iterator[Event], writers: threading.Semaphore) -> AsyncIterator[bytes]:
    """Events as lines of JSON; when the browser leaves, the writing stops."""
    try:
        while (event := await run_in_threadpool(_next, events)) is not None:
            yield (json.dumps(event) + "\n").encode()
    finally:
        writers.release()


def _next(events: Iterator[Event]) -> Event | None:
    try:
        return next(events, None)
    except (ValueError, RuntimeError) as problem:  # the second is PyTorch's
        return {"kind": "error", "text": runs.said(problem)}
