"""Everything about the filters of a checkpoint, in a directory: rows, figures, and one page with both.

rows.json        what was measured, a row a filter, and of what
*.svg, *.png     the figures
index.html       all of it, in one file that needs no other
"""

import base64
import json
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from toeplix.files import MARK, check_output, write_output
from toeplix.reports import spectrum_figures
from toeplix.reports.filters import Layer
from toeplix.reports.spectrum_rows import Row

COLUMNS = {  # heading: how a row fills it
    "filter": lambda row: named(row),
    "taps": lambda row: str(row["taps"]),
    "index": lambda row: "-" if row["index"] is None else str(row["index"]),
    "z, noise": lambda row: _signed(row.get("z_noise")),
    "z, start": lambda row: left(row),
    "margin": lambda row: _short(row.get("margin")),
    "eps-index": lambda row: _short(row.get("eps_index")),
    "rank": lambda row: _short(row.get("rank")),
    "condition": lambda row: condition(row),
    "mean lag": lambda row: _short(row.get("centre")),
    "nearest shift": lambda row: shift(row),
    "in 16 taps": lambda row: recent(row, 16),
    "states": lambda row: _short(row.get("states")),
    "proof": lambda row: row["status"] + (f": {row['reason']}" if row.get("reason") else ""),
}
PICTURES = {
    "indices": "The index of every filter, and the band in which independent noise lies.",
    "symbols": "The symbol of every filter; the red point is the origin.",
    "superimposed": "All symbols on one another, each over its sum of |taps|.",
    "matrices": "Filters as matrices: blue is negative, red positive.",
    "near_diagonal": "The same next to the diagonal.",
    "singular_values": "Singular values of the n x n matrices over the largest.",
}


def named(row: Row) -> str:
    """Layer, head and kernel, as far as there are several."""
    name = str(row["layer"])
    name += f", head {row['head']}" if row["heads"] > 1 else ""
    return name + (f", kernel {row['kernel']}" if row["kernels"] > 1 else "")


def left(row: Row) -> str:
    """How far the index went from where training began."""
    if row["index"] is None or row.get("start_mean") is None:
        return "-"
    if row["start_deviation"] == 0:  # no spread to measure by
        away = row["index"] - row["start_mean"]
        return "at start" if away == 0 else f"{away:+.0f} from start"
    return _signed(row["z_start"])


def condition(row: Row) -> str:
    if "largest" not in row:
        return "-"
    if row["condition"] is None:
        return "singular"
    return ("> " if row["smallest_is_bound"] else "") + _short(row["condition"])


def shift(row: Row) -> str:
    return "-" if "mode" not in row else f"{row['mode']} ({row['likeness']:+.2f})"


def recent(row: Row, taps: int) -> str:
    """Share of energy in the first taps."""
    shares = {int(key): value for key, value in row.get("recency", {}).items()}
    known = [value for key, value in shares.items() if key <= taps]
    return f"{known[-1]:.0%}" if known else "-"


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"


def outputs(folder: Path) -> list[Path]:
    """The files that `write` may write."""
    drawings = [folder / f"{name}.{kind}" for name in PICTURES for kind in ("svg", "png")]
    return [*drawings, folder / "rows.json", folder / "index.html"]


def draw(
    found: Sequence[Layer], rows: Sequence[Row], folder: Path, *, overwrite: bool = False
) -> list[Path]:
    """All figures as SVG and PNG."""
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
    """Figures, rows and page; the page."""
    check_output(*outputs(folder), overwrite=overwrite)
    draw(found, rows, folder, overwrite=overwrite)
    document = {"origin": MARK, "checkpoint": source, "model": config, "rows": list(rows)}
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    write_output(folder / "rows.json", lambda aside: aside.write_text(text), overwrite=overwrite)
    text_of_page = html(rows, folder, source)
    return write_output(
        folder / "index.html",
        lambda aside: aside.write_text(text_of_page, encoding="utf-8"),
        overwrite=overwrite,
    )


def html(rows: Sequence[Row], folder: Path, source: str) -> str:
    """The table and the figures, which are looked for in the folder."""
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    lines = []
    for row in rows:
        cells = (f"<td>{escape(fill(row))}</td>" for fill in COLUMNS.values())
        lines.append(f"<tr>{''.join(cells)}</tr>")
    pictures = []
    for name, words in PICTURES.items():
        file = folder / f"{name}.png"
        if file.exists():
            data = base64.b64encode(file.read_bytes()).decode()
            image = f'<img alt="{name}" src="data:image/png;base64,{data}">'
            link = f'<a href="{name}.svg">svg</a>'
            pictures.append(
                f"<figure>{image}<figcaption>{escape(words)} {link}</figcaption></figure>"
            )
    return PAGE.format(
        title=escape(source),
        head=head,
        lines="\n".join(lines),
        pictures="\n".join(pictures),
        mark=MARK,
    )


PAGE = """<!doctype html> <html lang="en"><meta charset="utf-8"><title>filters of {title}</title>
<meta name="generator" content="{mark}"> <style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em }} table
{{ border-collapse: collapse; font-size: 13px }} td, th {{ padding: 2px 8px; text-align: right;
border-bottom: 1px solid #ddd }} td:first-child, th:first-child, td:last-child, th:last-child {{
text-align: left }} figure {{ margin: 2em 0 }} img {{ max-width: 100% }} </style> <h1>Filters of
{title}</h1> <p>The index is minus the number of zeros of a filter inside the unit circle, proven; z
counts standard deviations from what independent noise of the same length has, and from where the model's
own filters start. The margin is how much of the sum of |taps| may change before the index can. The
eps-index counts zeros with |r|^n &lt; 1e-6, about what the rank lacks. States is how many a recurrent
form needs to be within 1% of the symbol's largest value.</p>
<table><thead><tr>{head}</tr></thead><tbody> {lines} </tbody></table> {pictures} </html>
"""
