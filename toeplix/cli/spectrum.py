"""`toeplix spectrum`: spectral analysis of the filters of a checkpoint."""

from pathlib import Path
from typing import Annotated

import typer


def spectrum(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="A trained model, or the directory of a run.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for figures, rows and the page; default: CHECKPOINT/spectrum."
        ),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures/--no-figures", help="Write figures, rows and page, or only print the table."
        ),
    ] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that toeplix did not write, too.")
    ] = False,
    errata: Annotated[
        bool, typer.Option("--errata", help="Print the errata of the paper's Table 1 instead.")
    ] = False,
) -> None:
    """Certified indices, condition numbers and lags of every Toeplitz filter of a model.

    Prints a table; writes figures (SVG and PNG), rows.json and index.html.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console = console if console.is_terminal else Console(width=200, highlight=False)
    if errata:
        from toeplix.reports.errata import findings

        if checkpoint is not None:
            raise typer.BadParameter("--errata needs no checkpoint")
        for line in findings():
            console.print(line, markup=False)
        return
    if checkpoint is None:
        raise typer.BadParameter("name a checkpoint: toeplix spectrum runs/mine/model")
    from toeplix.files import check_output
    from toeplix.reports import filters, spectrum_page, spectrum_rows
    from toeplix.reports.spectrum_table import COLUMNS, cells

    _installed("scipy", *(["matplotlib"] if figures else []))
    found, config = filters.read(checkpoint)
    folder = out or checkpoint / "spectrum"
    if figures:
        check_output(*spectrum_page.outputs(folder), overwrite=overwrite)
    start = filters.initialisation(config)
    with console.status("") as status:
        rows = spectrum_rows.rows(found, start, lambda name: status.update(f"measuring {name}"))
    table = Table(title=f"{checkpoint}: filters start as {start}")
    for number, column in enumerate(COLUMNS):
        last = number + 1 == len(COLUMNS)
        table.add_column(column, justify="right" if number and not last else "left")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    if figures:
        written = spectrum_page.write(
            found, rows, folder, str(checkpoint), config, overwrite=overwrite
        )
        console.print(f"{written} and, beside it, rows.json and the figures", markup=False)


def _installed(*names: str) -> None:
    """Raise ValueError if a package is missing, before minutes of measuring instead of after them."""
    from importlib.util import find_spec

    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} not found: pip install 'toeplix[spectrum]'")
