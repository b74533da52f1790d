"""`toeplix spectrum`: spectral analysis of the filters of a checkpoint."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toeplix.cli.devices import Placement, chosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from toeplix.reports.spectrum_rows import Row


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
    device: Annotated[
        str,
        typer.Option(
            help="Where dense matrices are decomposed, in float64 (so there is no --dtype, and no mps): "
            "auto (cuda, else cpu), cpu, cuda, ... Indices are certified on the CPU."
        ),
    ] = "auto",
) -> None:
    """Certified indices, condition numbers and lags of every Toeplitz filter of a model.

    Recurrent filters are analysed at all lags, and as matrices at the context of the model.
    Prints tables and the meaning of their columns; writes figures (SVG and PNG), rows.json and
    index.html.
    """
    from toeplix.cli.tables import table_console

    console = table_console()
    if errata:
        from toeplix.reports.errata import findings

        if checkpoint is not None:
            raise typer.BadParameter("--errata needs no checkpoint")
        for line in findings():
            console.print(line, markup=False)
        return
    if checkpoint is None:
        raise typer.BadParameter("name a checkpoint: toeplix spectrum runs/mine/model")
    from toeplix.files import check_output, ensure_directory
    from toeplix.reports import filters, spectrum_page, spectrum_rows

    _installed("scipy", *(["matplotlib"] if figures else []))
    where = _placement(device)
    found, config = filters.read(checkpoint)
    folder = out or checkpoint / "spectrum"
    start = filters.initialisation(config)
    with ensure_directory(folder) if figures else nullcontext():
        if figures:
            check_output(*spectrum_page.outputs(folder), overwrite=overwrite)
        with console.status("") as status:
            rows = spectrum_rows.rows(
                found, start, lambda name: status.update(f"measuring {name}"), where.device
            )
        where.tell()  # after what may fail, so that an error is one line
        starts = ", ".join(dict.fromkeys(layer.start or start for layer in found))
        console.print(f"{checkpoint}: initial filters: {starts}", markup=False)
        for table in tables(rows):
            console.print(table)
        if not figures:
            return
        written = spectrum_page.write(
            found, rows, folder, str(checkpoint), config, overwrite=overwrite
        )
        console.print(f"{written} and, beside it, rows.json and the figures", markup=False)


def tables(rows: "Sequence[Row]") -> "list[Table]":
    """Return the tables of indices, of matrices and of lags, one row for each filter, with legends."""
    from rich.table import Table

    from toeplix.reports.spectrum_table import GROUPS, cells, legend

    found = []
    for title, columns in GROUPS.items():
        table = Table(title=title, caption=legend(columns), caption_justify="left")
        table.add_column("filter", overflow="fold")
        for column in columns:
            justify: Literal["left", "right"] = "left" if column in ("kind", "proof") else "right"
            table.add_column(column, justify=justify)
        for row in rows:
            table.add_row(*cells(row, ("filter", *columns)))
        found.append(table)
    return found


def _placement(name: str) -> Placement:
    """Return a device with float64: an automatic choice leaves out those without."""
    from toeplix.devices import AUTO, choose_device

    without = name == AUTO and choose_device().type == "mps"
    return chosen("cpu" if without else name, "float64")


def _installed(*names: str) -> None:
    """Raise ValueError if a package is missing, before minutes of measuring instead of after them."""
    from importlib.util import find_spec

    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} not found: pip install 'toeplix[spectrum]'")
