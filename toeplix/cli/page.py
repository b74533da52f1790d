"""`toeplix page`: a training run as one HTML file, to be sent to somebody."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer


def page(
    run: Annotated[Path, typer.Argument(help="A run of `toeplix train`, finished or not.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The page; default: RUN/page.html.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print the summary of the finished run; write no page.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that toeplix did not write, too.")
    ] = False,
) -> None:
    """Write a training run as one HTML page that needs no other file.

    The page has loss curves, settings, cost, the last sample, and the symbols of the filters. A
    file that toeplix did not write is never replaced without --overwrite.
    """
    if text:
        print(_summary(run))
        return
    from toeplix.files import ensure_directory
    from toeplix.reports import run_page

    with nullcontext() if file is None else ensure_directory(file.parent):
        print(run_page.write(run, file, overwrite=overwrite))


def _summary(run: Path) -> str:
    from toeplix.training.summary import SUMMARY

    if not (run / SUMMARY).is_file():
        raise FileNotFoundError(
            f"{run} has no {SUMMARY}, which a run leaves at its end; the page tells what is there: "
            f"toeplix page {run}"
        )
    return (run / SUMMARY).read_text(encoding="utf-8").rstrip()
