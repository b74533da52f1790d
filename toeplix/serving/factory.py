"""The ASGI application as a factory without arguments, configured by environment variables.

For servers that are not `toeplix serve`: uvicorn or gunicorn with several workers, or an engine that runs
replicas on several machines (examples/ray_serve.py).

    TOEPLIX_MODEL=runs/mine/model uvicorn --factory toeplix.serving.factory:application

    TOEPLIX_MODEL      the directory of a run, or of a model with its tokenizer
    TOEPLIX_NAME       name of the model; default: that of its directory
    TOEPLIX_API_KEY    the key that clients send; without one, only requests to localhost are answered
    TOEPLIX_THREADS    CPU threads of PyTorch
    TOEPLIX_DEVICE, TOEPLIX_DTYPE, TOEPLIX_QUANTIZE    as options of `toeplix serve`; default: auto, none
    TOEPLIX_MAX_BATCH, TOEPLIX_MAX_TOKENS, TOEPLIX_TIMEOUT, ...    every field of `Limits`

The application starts with its event loop and drains when that ends: after SIGTERM `/health` answers 503,
new requests are rejected, and the server waits for running ones as long as its own settings allow.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from toeplix.devices import (
    AUTO,
    automatic_notice,
    choose_device,
    choose_dtype,
    named_device,
    named_dtype,
)
from toeplix.files import printable
from toeplix.mixers.quantized import check_scheme
from toeplix.serving import api
from toeplix.serving.engine import Engine
from toeplix.serving.limits import KEY, Limits, check_key
from toeplix.serving.service import Service, check_name, open_service

MODEL, NAME, THREADS = "TOEPLIX_MODEL", "TOEPLIX_NAME", "TOEPLIX_THREADS"
DEVICE, DTYPE, QUANTIZE = "TOEPLIX_DEVICE", "TOEPLIX_DTYPE", "TOEPLIX_QUANTIZE"
MAX_THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The configuration of one application.

    Device and dtype are names: the process that reads them may run on another machine than the model.
    """

    model: Path
    name: str | None
    key: str | None
    threads: int | None
    device: str
    dtype: str
    quantize: str | None
    limits: Limits


def settings(environment: Mapping[str, str]) -> Settings:
    """Read the configuration; an error names the variable, its value and the rule."""
    if not environment.get(MODEL):
        raise ValueError(f"{MODEL} is not set: give the directory of a run or of a model")
    key, name = environment.get(KEY), environment.get(NAME)
    if name is not None:
        check_name(name, NAME)
    threads = None
    if THREADS in environment:
        threads = _number(environment, THREADS, int)
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"{THREADS}={threads} must be in 1 .. {MAX_THREADS}")
    device, dtype = (environment.get(variable, AUTO) for variable in (DEVICE, DTYPE))
    _checked(DEVICE, named_device, device)
    _checked(DTYPE, named_dtype, dtype)
    quantize = environment.get(QUANTIZE)
    if quantize is not None:
        _checked(QUANTIZE, check_scheme, quantize)
    given = {
        each.name: _number(environment, variable, type(each.default))
        for each in fields(Limits)
        if (variable := f"TOEPLIX_{each.name.upper()}") in environment
    }
    return Settings(
        model=Path(environment[MODEL]),
        name=name,
        key=None if key is None else check_key(key, f"${KEY}"),
        threads=threads,
        device=device,
        dtype=dtype,
        quantize=quantize,
        limits=Limits(**given),
    )


def _checked(variable: str, check: Callable[..., Any], *values: Any) -> Any:
    """Return what the check returns; its error begins with the variable."""
    try:
        return check(*values)
    except ValueError as problem:
        raise ValueError(f"{variable}: {problem}") from problem


def _number(environment: Mapping[str, str], variable: str, kind: type) -> Any:
    try:
        return kind(environment[variable])
    except ValueError as problem:
        words = "an integer" if kind is int else "a number"
        shown = printable(environment[variable])[:40]
        raise ValueError(f"{variable}={shown} must be {words}") from problem


def create(chosen: Settings) -> FastAPI:
    """Load the model and return its application, which starts and ends with its event loop."""
    if chosen.threads is not None:
        import torch

        torch.set_num_threads(chosen.threads)
    device = _checked(DEVICE, choose_device, chosen.device)
    dtype = _checked(DTYPE, choose_dtype, chosen.dtype, device)
    where = {"device": device, "dtype": dtype}
    service = open_service(chosen.model, chosen.name, chosen.limits, chosen.quantize, **where)
    if chosen.device == AUTO:
        print(f"toeplix: {automatic_notice(device, DEVICE)}; see {DEVICE}", file=sys.stderr)
    app = api.application(service, key=chosen.key, local=chosen.key is None, lifespan=_lifespan)
    app.state.service = service
    return app


def application() -> FastAPI:
    """Return the application that environment variables describe; a mistake in them ends the process."""
    try:
        return create(settings(os.environ))
    except (ValueError, TypeError, OSError) as problem:
        print(f"toeplix: {printable(str(problem))}", file=sys.stderr)
        raise SystemExit(2) from problem


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.engine.wake = asyncio.get_running_loop().call_soon_threadsafe
    try:
        with _draining(service.engine):
            yield
    finally:
        await run_in_threadpool(service.close)


@contextmanager
def _draining(engine: Engine) -> Iterator[None]:
    """Let the signal that ends the server also tell the engine, so that `/health` knows of it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to whoever runs the event loop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: Any) -> None:
        engine.draining = True
        if callable(known := before[signal.Signals(number)]):
            known(number, frame)

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
