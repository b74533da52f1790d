"""The spectral analysis of a checkpoint's filters, written to a directory.

rows.json        the measurements, one row for each filter, and the model's settings
*.svg, *.png     the figures
index.html       table and figures in one self-contained file
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from toeplix.files import MARK, check_output, write_output
from toeplix.reports import html, spectrum_figures
from toeplix.reports.filters import Layer
from toeplix.reports.spectrum_rows import Row
from toeplix.reports.spectrum_table import COLUMNS, cells

FIGURES = {
    "indices": "The index of every filter, and the band of the indices of independent noise.",
    "symbols": "The symbol of every filter; the red point is the origin.",
    "superimposed": "All symbols in one plot, each divided by the sum of |taps|.",
    "matrices": "Filters as Toeplitz matrices: blue is negative, red is positive.",
    "near_diagonal": "The entries of these matrices next to the diagonal.",
    "singular_values": "Singular values of the n x n matrices, divided by the largest.",
}

EXPLANATION = """The index is minus the number of zeros of a filter inside the unit circle; it is proven.
z is the number of standard deviations from the mean index of independent noise of the same length, and
from that of the initialisation of this model. The margin is the fraction of the sum of |taps| that may
change before the index can change. Index and lags of a recurrent filter are those at all lags, its matrix
is that of the model's context. The eps-index counts zeros with |r|^n < 1e-6, which is about the rank that
the matrix lacks. The stable rank is the squared ratio of the Frobenius norm to the spectral norm. 99% of
the energy of a filter is within its receptive field. States is the number of states that a recurrent form
needs to approximate the symbol within 1% of its largest absolute value; the number after "of" is that of
the recurrent filter itself."""


def outputs(folder: Path) -> list[Path]:
    """Return the files that `write` may write."""
    drawings = [folder / f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")]
    return [*drawings, folder / "rows.json", folder / "index.html"]


def draw(
    found: Sequence[Layer], rows: Sequence[Row], folder: Path, *, overwrite: bool = False
) -> list[Path]:
    """Draw all figures as SVG and PNG, and return the files."""
    drawn = {
        "indices": spectrum_figures.indices(rows),
        "symbols": spectrum_figures.symbols(found),
        "superimposed": spectrum_figures.superimposed(found),
        "matrices": spectrum_figures.matrices(found),
        "near_diagonal": spectrum_figures.near_diagonal(found),
        "singular_values": spectrum_figures.singular_values(rows),
    }
    files = []
    for name, figure in drawn.items():
        if figure is None:
            continue
        for kind in ("svg", "png"):
            file = folder / f"{name}.{kind}"
            settings: dict[str, Any] = {"dpi": 130} if kind == "png" else {}
            settings["metadata"] = {"Description": MARK}
            save = partial(figure.savefig, format=kind, **settings)
            files.append(write_output(file, save, overwrite=overwrite))
    return files


def write(
    found: Sequence[Layer],
    rows: Sequence[Row],
    folder: Path,
    source: str,
    config: dict[str, Any],
    *,
    overwrite: bool = False,
) -> Path:
    """Write figures, rows and page, and return the file of the page."""
    check_output(*outputs(folder), overwrite=overwrite)
    draw(found, rows, folder, overwrite=overwrite)
    document = {"origin": MARK, "checkpoint": source, "model": config, "rows": list(rows)}
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    write_output(folder / "rows.json", lambda aside: aside.write_text(text), overwrite=overwrite)
    text_of_page = page(rows, folder, source)
    return write_output(
        folder / "index.html",
        lambda aside: aside.write_text(text_of_page, encoding="utf-8"),
        overwrite=overwrite,
    )


def page(rows: Sequence[Row], folder: Path, source: str) -> str:
    """Return the page with the table and those figures that are in the folder."""
    title = f"Filters of {source}"
    parts = [html.heading(title), html.paragraph(EXPLANATION)]
    parts.append(html.table(list(COLUMNS), map(cells, rows), kind="numbers"))
    for name, caption in FIGURES.items():
        file = folder / f"{name}.png"
        if file.exists():
            drawn = html.image(file.read_bytes(), "image/png", name)
            parts.append(html.figure(drawn, caption, f"{name}.svg"))
    return html.page(title, parts)
