"""What all commands of `toeplix bench` share: options, the console, and the JSON document."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from toeplix.cli.tables import table_console
from toeplix.files import MARK, check_output, write_output

MAX_AMOUNT = 1e6  # seconds or megabytes

Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; default: PyTorch's.")]
Out = Annotated[Path | None, typer.Option(help="Also write the JSON document to this file.")]
BenchDtype = Annotated[
    str, typer.Option("--dtype", help="float32 (auto), bfloat16, float16 or float64.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace --out even if toeplix did not write it.")
]


def bench_console(threads: int | None) -> Console:
    """Set the number of CPU threads, and return the console on which tables are printed."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return table_console()


def check_out(out: Path | None, overwrite: bool) -> None:
    """Raise ValueError if --out cannot be written, before minutes of measuring instead of after."""
    if out is not None:
        check_output(out, overwrite=overwrite)


def report(document: dict[str, Any], out: Path | None, overwrite: bool) -> None:
    """Print the JSON document as the last line, and write it to --out."""
    document = {"origin": MARK, **document}
    if out is not None:
        text = json.dumps(document, indent=1) + "\n"
        write_output(out, lambda aside: aside.write_text(text), overwrite=overwrite)
    print(json.dumps(document))
