"""A training run as one self-contained HTML file: `toeplix page RUN`.

Figures are SVG elements in the colour of the text, so they suit light and dark themes (html.py).
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toeplix.architectures import forward_flops
from toeplix.files import check_output, read_json, write_output
from toeplix.inference.generation import generate
from toeplix.inference.loading import load_pretrained
from toeplix.inference.sampling import BadLogits, Sampling
from toeplix.pretrained_files import TOKENS
from toeplix.reports import html
from toeplix.reports.filter_curves import Filters
from toeplix.reports.html import INK
from toeplix.reports.symbol_plot import symbol_panels
from toeplix.training.logs import METRICS, read
from toeplix.training.loop import MODEL, RECORD
from toeplix.training.run import Run
from toeplix.training.summary import facts, latest_sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "page.html"
TRAINING, VALIDATION = "#3b8ec4", "#d5722b"
PANELS = 24  # filters whose symbols are drawn
POINTS = 1500  # of one symbol in the file, about


def write(folder: Path, target: Path | None = None, *, overwrite: bool = False) -> Path:
    """Write the page of a run, finished or not, and return its file. A failure leaves the old page."""
    run = _record(folder)
    target = target or folder / NAME
    check_output(target, overwrite=overwrite)
    rows = _rows(folder)
    if not rows:
        raise ValueError(f"{folder} has no rows in metrics.jsonl yet: there is nothing to show")
    text = page(folder, run, rows)
    return write_output(
        target, lambda aside: aside.write_text(text, encoding="utf-8"), overwrite=overwrite
    )


def _record(folder: Path) -> Run:
    file = folder / RECORD
    if not file.is_file():
        raise FileNotFoundError(f"{folder} is no run: there is no {RECORD} in it")
    try:
        return Run.from_dict(read_json(file))
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{file} cannot be read: {problem}") from problem


def _rows(folder: Path) -> list[dict[str, Any]]:
    if not (folder / METRICS).exists():
        return []
    return read(folder, lambda line: print(f"toeplix: {line}", file=sys.stderr))


def page(folder: Path, run: Run, rows: list[dict[str, Any]]) -> str:
    """Return the page of a run from its settings and the rows of its metrics."""
    name = folder.resolve().name
    done = rows[-1]["step"]
    state = "" if done >= run.steps else f" (after {done:,} of {run.steps:,} steps)"
    parts = [
        html.heading(name + state),
        html.pairs(facts(run, rows) | _cost(run, rows)),
        html.figure(
            html.svg(losses(rows)), "Loss by tokens; learning rate and gradient norm by steps."
        ),
    ]
    if sample := latest_sample(folder) or _sample(folder / MODEL):
        parts += [html.heading("A sample", 2), html.preformatted(sample)]
    if {"toeplitz", "lookup"} & set(run.model.mixers):
        parts += _filters(folder / MODEL)
    record = run.to_dict()
    model = record.pop("model")
    parts += [html.heading("Settings of the run", 2), html.pairs(record)]
    parts += [html.heading("Settings of the model", 2), html.pairs(model)]
    return html.page(f"{name}: a training run", parts)


def _sample(checkpoint: Path) -> str:
    """Return a text of the finished model, for runs without samples; empty if it diverged."""
    if not (checkpoint / TOKENS).is_file():
        return ""
    model, tokenizer, _ = load_pretrained(checkpoint)
    sampling = Sampling(temperature=0.8, top_p=0.95)
    start = [[tokenizer.start]]
    try:
        (row,) = generate(
            model, start, max_new_tokens=120, sampling=sampling, stop_tokens=[tokenizer.end]
        )
    except BadLogits:  # earlier versions wrote models whose loss was not finite
        return ""
    return tokenizer.decode(row)


def _cost(run: Run, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the FLOPs of training so far; a backward pass costs as much as two forward passes."""
    context = run.model.context
    each = 3 * forward_flops(run.model, context, run.batch) / (run.batch * context)
    total = each * rows[-1]["tokens"]
    speed = total / max(rows[-1]["seconds"], 1e-9)
    return {
        "training FLOPs": f"{total:.3g}, {speed / 1e9:,.1f} GFLOP/s, validation and saving included"
    }


def losses(rows: list[dict[str, Any]]) -> "Figure":
    """Return a figure with the losses on the left, learning rate and gradient norm on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for key, colour, words in (
        ("loss", TRAINING, "training"),
        ("val_loss", VALIDATION, "validation"),
    ):
        found = [(row["tokens"], row[key]) for row in rows if key in row]
        if found:
            marker = "o" if key == "val_loss" else ""
            left.plot(*zip(*found, strict=True), marker + "-", color=colour, label=words, ms=3.5)
    left.set(xlabel="tokens", ylabel="nats per token")
    left.legend(frameon=False, labelcolor=INK)
    other = right.twinx()
    for axes, key, colour in ((right, "lr", TRAINING), (other, "grad_norm", VALIDATION)):
        found = [(row["step"], row[key]) for row in rows if key in row]
        if found:
            axes.plot(*zip(*found, strict=True), color=colour, linewidth=1.2)
        axes.set_ylabel(key.replace("_", " "), color=colour)
    right.set_xlabel("steps")
    for axes in (left, right, other):
        _use_text_colour(axes, keep_label=axes is not left)
    return figure


def _filters(checkpoint: Path) -> list[str]:
    """Return symbols and certified indices of the filters; nothing if the model is not saved yet."""
    if not checkpoint.is_dir():
        return []
    filters = Filters(checkpoint)
    lines = []
    for row in filters.rows:
        margin = "-" if row["margin"] is None else f"{row['margin']:.3g}"
        number = "-" if row["index"] is None else row["index"]
        lines.append((row["name"], row["taps"], number, margin, row["status"]))
    caption = "Symbol and index of each filter; the red point is the origin."
    if len(filters.rows) > PANELS:
        caption += f" The first {PANELS} of {len(filters.rows)}."
    return [
        html.heading("Filters", 2),
        html.figure(html.svg(symbols(filters)), caption),
        html.table(("filter", "taps", "index", "margin", "proof"), lines, kind="tall"),
    ]


def symbols(filters: Filters) -> "Figure":
    """Return the symbols of the first filters, one panel each."""
    shown = filters.rows[:PANELS]
    titled = [
        (f"{row['name']}: {row['index']}", filters.exact(row["layer"], row["head"], row["kernel"]))
        for row in shown
    ]
    columns = max(4, min(6, len(shown)))
    figure = symbol_panels(titled, colour=TRAINING, columns=columns, max_drawn=POINTS)
    for axes in figure.axes:
        _use_text_colour(axes)
    return figure


def _use_text_colour(axes: Any, keep_label: bool = False) -> None:
    """Draw ticks, labels and title in the colour of the page's text, on no background."""
    axes.patch.set_alpha(0)
    axes.tick_params(colors=INK)
    axes.title.set_color(INK)
    axes.xaxis.label.set_color(INK)
    if not keep_label:
        axes.yaxis.label.set_color(INK)
    for spine in axes.spines.values():
        spine.set_color(INK)
        spine.set_alpha(0.35)
