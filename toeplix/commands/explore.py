"""`toeplix explore`: a page on this machine, for looking at runs and models."""

import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer


def explore(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="[CHECKPOINT | RUNS]", help="A model, a run, or a directory of runs."
        ),
    ] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8421,
    host: Annotated[
        str, typer.Option(help="Address to listen on; anyone who reaches it can look.")
    ] = "127.0.0.1",
    results: Annotated[Path, typer.Option(help="Rows of experiments, for the claims.")] = Path(
        "results"
    ),
    figures: Annotated[Path, typer.Option(help="Their drawings.")] = Path("figures"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Look at runs and models: a local page that needs no network.

    Loss curves while a run is training, text with the chance of every token, filters and their
    symbols, which earlier tokens reach a token, and the paper's claims. Ctrl-C ends it.
    """
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} not found: pip install 'toeplix[serve]'")
    if not path.exists() and path == Path("runs"):
        raise ValueError(
            "there is no directory runs here: name a model, a run or a directory of runs"
        )
    import uvicorn

    from toeplix.explorer.app import explorer

    app = explorer(path, results=results, figures=figures, names=(host.lower(),))
    listening = _listen(host, port)
    address = f"[{host}]" if ":" in host else host
    url = f"http://{address}:{listening.getsockname()[1]}/"
    print(f"{url} shows {path}; Ctrl-C ends it", flush=True)
    if show:
        import webbrowser

        webbrowser.open(url)
    settings = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    with listening:
        uvicorn.Server(settings).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()  # whoever reads the address may come at once, and waits
    except OSError as problem:
        listening.close()
        raise ValueError(
            f"cannot listen on {host}, port {port}: {problem.strerror or problem}; "
            "choose another with --port"
        ) from problem
    return listening
