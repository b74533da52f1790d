"""`toeplix serve`: an OpenAI-compatible HTTP server for a model."""

import os
from pathlib import Path
from typing import Annotated

import typer

from toeplix.cli.devices import DeviceOption, DtypeOption, chosen
from toeplix.files import printable

KEY = "TOEPLIX_API_KEY"  # as in toeplix.serving.limits, which needs the extra [serve]


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
    quantize: Annotated[
        str | None,
        typer.Option(help="Weights in int8 or bfloat16: less memory, faster decode steps in int8."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="CPU threads of PyTorch.")
    ] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
) -> None:
    """Serve a model over HTTP: /v1/completions, /v1/chat/completions, /v1/models, /health, /metrics."""
    try:
        from toeplix.serving.limits import Limits
        from toeplix.serving.listening import listen
        from toeplix.serving.server import check_exposure, run
        from toeplix.serving.service import check_name, open_service
        from toeplix.training.allocator import keep_freed_memory
    except ModuleNotFoundError as problem:
        raise ValueError(f"{problem}: pip install 'toeplix[serve]'") from problem

    key = _key(key_file)
    if name is not None:
        check_name(name, "--name")
    check_exposure(host, key)
    keep_freed_memory()
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
    where = chosen(device, dtype)
    try:
        listening = listen(host, port)
    except OSError as problem:
        shown = printable(host)[:80]
        raise OSError(
            f"{shown}:{port} cannot be had: {problem.strerror or problem}; see --host and --port"
        ) from problem
    with listening:
        service = open_service(checkpoint, name, limits, quantize, **where.options)
        where.tell()
        run(
            service,
            listening,
            host=host,
            key=key,
            ready=lambda server: print(f"serving {service.name} at {server.url}/v1", flush=True),
        )


def _key(file: Path | None) -> str | None:
    """Return the API key from a file or the environment, where other users do not see it."""
    from toeplix.serving.limits import MAX_KEY, check_key

    if file is None:
        key = os.environ.get(KEY)
    else:
        if file.is_dir() or not file.exists():
            what = "a directory; name a file" if file.is_dir() else "there is no such file"
            raise FileNotFoundError(f"--key-file {file}: {what}")
        with open(file, "rb") as opened:  # of any kind and size
            key = opened.read(MAX_KEY + 2).decode("latin-1")
    where = f"${KEY}" if file is None else printable(file)
    return None if key is None else check_key(key, where)
