"""`toeplix explore`: a local web page for runs and models."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from toeplix.cli.devices import DeviceOption, DtypeOption, chosen
from toeplix.files import printable


def explore(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="[CHECKPOINT | RUNS]", help="A model, a run, or a directory of runs."
        ),
    ] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free port.")] = 8421,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; everybody who can reach it can read the page."),
    ] = "127.0.0.1",
    results: Annotated[
        Path, typer.Option(help="Directory of the experiments' rows, for the claims.")
    ] = Path("results"),
    figures: Annotated[Path, typer.Option(help="Directory of their figures.")] = Path("figures"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
) -> None:
    """Explore runs and models on a local web page, without network access.

    The page shows loss curves during training, generated text with the probability of every token,
    filters and their symbols, which earlier tokens a token reads, and the paper's claims. Ctrl-C
    stops the server.
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
    from toeplix.serving.http_protocol import configuration
    from toeplix.serving.listening import listen

    where = chosen(device, dtype)
    app = explorer(path, results=results, figures=figures, names=(host.lower(),), **where.options)
    try:
        listening = listen(host, port)
    except OSError as problem:
        raise ValueError(
            f"cannot listen on {printable(host)[:80]}, port {port}: {problem}; "
            "choose another with --port"
        ) from problem
    where.tell()
    address = f"[{host}]" if ":" in host else host
    url = f"http://{address}:{listening.getsockname()[1]}/"
    print(f"{url} shows {printable(path)}; Ctrl-C ends it", flush=True)
    if show:
        import webbrowser

        webbrowser.open(url)
    settings = configuration(app, lifespan="off", timeout_graceful_shutdown=2)
    with listening:
        uvicorn.Server(settings).run(sockets=[listening])
