"""`toeplix demo`: see it work, with no data and no network."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Where everything is written.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=2, help="Steps of the Toeplitz model.")] = 400,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that toeplix did not write, too.")
    ] = False,
) -> None:
    """Train a small Toeplitz model and a Transformer at equal compute, and generate text.

    The text is the documentation inside Python: no download, a few minutes on two cores. If
    interrupted, the same command resumes.
    """
    from rich.table import Table

    from toeplix.cli.tables import table_console
    from toeplix.cli.train import bar
    from toeplix.experiments.demo import demo as run_demo
    from toeplix.files import ensure_directory
    from toeplix.training.allocator import keep_freed_memory
    from toeplix.training.signals import Abandoned, Stopped

    keep_freed_memory()
    console = table_console()
    try:
        with ensure_directory(out):
            found = run_demo(out, steps=steps, say=console.print, bar=bar, overwrite=overwrite)
    except (Stopped, Abandoned) as ended:
        console.print(str(ended))
        raise typer.Exit(130) from None
    table = Table(title="validation, equal compute")
    for column in ("", "bits per byte", "nats per token", "steps", "tokens", "PFLOP", "seconds"):
        table.add_column(column, justify="right" if column else "left")
    for arch, row in found["results"].items():
        table.add_row(
            arch,
            f"{row['val_bits_per_byte']:.3f}",
            f"{row['val_loss']:.3f}",
            f"{row['steps']:,}",
            f"{row['tokens']:,}",
            f"{row['petaflops']:.3f}",
            f"{row['seconds']:.0f}",
        )
    console.print(table)
    console.print("[bold]Sample:[/bold]")
    console.print(found["sample"], markup=False)
    console.print(f"[bold]Everything is in {out}[/bold] ({found['seconds']:.0f} s)")
    for name, what in (
        ("loss.svg", "loss curves of both"),
        ("symbols.svg", "each layer's filter as a curve around the origin"),
        ("sample.txt", "the text above"),
        ("toeplitz/model", "the model, for toeplix.load"),
        ("toeplitz/summary.md", "how it was trained"),
        ("data", "the token store"),
    ):
        console.print(f"  {out / name}  {what}", markup=False)
