"""`toeplix serve`: an OpenAI-compatible HTTP server for a model."""

import os
from pathlib import Path
from typing import Annotated

import typer

from toeplix.files import printable

KEY = "TOEPLIX_API_KEY"
MAX_KEY, MAX_NAME = 4096, 256  # characters


def serve(
    checkpoint: Annotated[
        Path, typer.Argument(help="The directory of a run, or of a model with its tokenizer.")
    ],
    host: Annotated[str, typer.Option(help="Address; any but loopback needs an API key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free port.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="Name of the model; default: that of its directory.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help=f"A file with the API key; default: ${KEY}, or no key.")
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Sequences decoded together.")] = 64,
    max_waiting: Annotated[int, typer.Option(min=1, help="Sequences in the queue.")] = 256,
    max_tokens: Annotated[int, typer.Option(min=1, help="New tokens of a completion.")] = 1024,
    max_prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 16384,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 2**20,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a completion.")] = 300.0,
    drain: Annotated[
        float, typer.Option(min=1, help="Seconds to complete requests after SIGTERM.")
    ] = 60.0,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="CPU threads of PyTorch.")
    ] = None,
) -> None:
    """Serve a model over HTTP: /v1/completions, /v1/chat/completions, /v1/models, /health, /metrics."""
    try:
        from toeplix.serving.limits import Limits
        from toeplix.serving.listening import listen
        from toeplix.serving.server import check_exposure, run
        from toeplix.serving.service import open_service
    except ModuleNotFoundError as problem:
        raise ValueError(f"{problem}: pip install 'toeplix[serve]'") from problem

    key = _key(key_file)
    _check_name(name)
    check_exposure(host, key)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    limits = Limits(
        max_batch=max_batch,
        max_waiting=max_waiting,
        max_tokens=max_tokens,
        max_prompt=max_prompt,
        max_body=max_body,
        timeout=timeout,
        drain=drain,
    )
    try:
        listening = listen(host, port)
    except OSError as problem:
        shown = printable(host)[:80]
        raise OSError(
            f"{shown}:{port} cannot be had: {problem}; see --host and --port"
        ) from problem
    with listening:
        service = open_service(checkpoint, name, limits)
        run(
            service,
            listening,
            host=host,
            key=key,
            ready=lambda server: print(f"serving {service.name} at {server.url}/v1", flush=True),
        )


def _check_name(name: str | None) -> None:
    """Raise ValueError if the name, which is part of every response, is not printable text."""
    if name is not None and not (name.isprintable() and 0 < len(name) <= MAX_NAME):
        shown = printable(name)[:80]
        raise ValueError(f"--name {shown!r}: 1 to {MAX_NAME} printable characters are needed")


def _key(file: Path | None) -> str | None:
    """Return the API key from a file or the environment, where other users do not see it."""
    if file is None:
        key = os.environ.get(KEY)
    else:
        with open(file, "rb") as opened:  # of any kind and size
            key = opened.read(MAX_KEY + 2).decode("latin-1")
    if key is None:
        return None
    key = key.strip()
    if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()) or " " in key:
        where = f"${KEY}" if file is None else printable(file)
        raise ValueError(
            f"{where} holds no key: one line of at most {MAX_KEY} printable ASCII characters is needed"
        )
    return key
