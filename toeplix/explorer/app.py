"""The explorer's server: the page, and the routes that it requests.

GET  /, /page/NAME            the page, and its files, all inside this package
GET  /api/list                runs and models by name
GET  /api/metrics             rows of a run after a cursor
GET  /api/settings            run.json and the last sample
GET  /api/filters             indices of all filters of a model
GET  /api/filter              taps and symbol of one filter
GET  /api/overview            taps of all filters, in a few bins of lags
GET  /api/weights             all tensors of a model: shapes and counts
GET  /api/histograms          histograms of the weights of one module
POST /api/generate            generated text, one line of JSON for each token
POST /api/contributions       contributions of earlier tokens to each token of a text
POST /api/lookup              weights of earlier tokens in one head of a lookup block
GET  /api/claims              the paper's claims, with verdicts
GET  /figures/NAME            a figure of an experiment
"""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
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

from toeplix.data import Tokenizer
from toeplix.explorer import contributions as linear
from toeplix.explorer import runs
from toeplix.explorer.cache import ModelCache, read_checked
from toeplix.explorer.differences import told_apart
from toeplix.explorer.discovery import find
from toeplix.explorer.generation import Event, name, write
from toeplix.explorer.guard import App, Guard
from toeplix.explorer.lookups import lookup_heads, lookup_weights
from toeplix.files import printable
from toeplix.inference.detokenization import Detokenizer
from toeplix.inference.sampling import Sampling
from toeplix.model import LanguageModel
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


class ContributionsRequest(BaseModel):
    """The body of POST /api/contributions."""

    model: str
    text: Characters = Field(max_length=20_000)
    linearization: str = "at_text"


class LookupRequest(BaseModel):
    """The body of POST /api/lookup."""

    model: str
    text: Characters = Field(max_length=20_000)
    block: int = Field(-1, ge=-1, lt=2**31, description="-1: the first lookup block")
    head: int = Field(0, ge=0, lt=2**31)


def explorer(
    root: Path,
    *,
    results: Path = Path("results"),
    figures: Path = Path("figures"),
    names: tuple[str, ...] = (),
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> App:
    """Return the application for one path; `names` are its host names beside localhost."""
    find(root)  # fails now, not at the first request
    app = FastAPI(openapi_url=None)
    cache, slots = ModelCache(device, dtype), threading.Semaphore(MAX_GENERATIONS)
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
        sound = {about["name"] for about in described if about["state"] != "damaged"}
        settings = {name: runs.kept_settings(found.runs[name]) for name in sorted(sound)}
        apart = told_apart(settings)
        for about in described:
            if about["name"] in found.escaped:
                about["problem"] = about["problem"] or "its directory's name is not UTF-8"
            about["apart"] = apart.get(about["name"], "")
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

    @app.get("/api/overview")
    def overview(name: str) -> Any:
        return {"filters": cache.filters(checkpoint(name)).overview()}

    @app.get("/api/weights")
    def weights(name: str) -> Any:
        return cache.weights(checkpoint(name)).tree()

    @app.get("/api/histograms")
    def histograms(name: str, part: str) -> Any:
        found = cache.weights(checkpoint(name))
        return {"histograms": read_checked(partial(found.histograms, part))}

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

    @app.post("/api/contributions")
    def contributions(request: ContributionsRequest) -> Any:
        loaded = cache.loaded(checkpoint(request.model))
        tokens, described = _read_text(*loaded, request.text)
        with cache.alone:
            found = linear.contributions(loaded.model, tokens, request.linearization)
        return described | {"contributions": _triangle(found)}

    @app.post("/api/lookup")
    def lookup(request: LookupRequest) -> Any:
        loaded = cache.loaded(checkpoint(request.model))
        heads = lookup_heads(loaded.model)
        block = request.block if request.block >= 0 else next(iter(heads), 0)
        tokens, described = _read_text(*loaded, request.text)
        with cache.alone:
            found = lookup_weights(loaded.model, tokens, block, request.head)
        chosen = {"blocks": {str(each): heads[each] for each in heads}, "block": block}
        return described | chosen | {"weights": _triangle(found)}

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


def _read_text(
    model: LanguageModel, tokenizer: Tokenizer, text: str
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return the tokens that are read of a text, and how they are shown."""
    whole = [tokenizer.start, *tokenizer.encode(text)]
    tokens = whole[: min(linear.MAX_POSITIONS, model.config.context)]
    if max(tokens) >= model.config.vocab:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab} tokens, the model {model.config.vocab}"
        )
    shown = Detokenizer(tokenizer.decode)
    described = {
        "tokens": [name(tokenizer, tokens[0]), *(shown.add(token) for token in tokens[1:])],
        "names": [name(tokenizer, token) for token in tokens],
        "left_out": len(whole) - len(tokens),
    }
    return torch.tensor(tokens).to(model.head.weight.device), described


def _triangle(found: torch.Tensor) -> list[list[float]]:
    """Return a lower triangular matrix row by row up to the diagonal, with four digits."""
    if not bool(found.isfinite().all()):
        raise ValueError("what arrives is not finite: check the model's weights")
    return [
        [float(f"{value:.4g}") for value in row[: place + 1]]
        for place, row in enumerate(found.cpu().tolist())
    ]


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
