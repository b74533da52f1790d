"""A run as one HTML file that needs no other, to be sent to somebody: `toeplix page RUN`.

Drawings stand in the page as SVG whose ink is the colour of the text, so they follow light and dark.
Everything that a run or its model wrote is escaped, and the page forbids itself to load anything.
"""

import io
import re
import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toeplix.architectures import forward_flops
from toeplix.checkpoint import load
from toeplix.data import Tokenizer
from toeplix.data.tokenizer import TOKENS
from toeplix.files import MARK, check_output, read_json, write_output
from toeplix.inference.generation import Sampling, generate
from toeplix.reports.filter_curves import Filters, half
from toeplix.training.logs import METRICS, read
from toeplix.training.loop import MODEL, RECORD
from toeplix.training.run import Run
from toeplix.training.summary import facts, latest_sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "page.html"
INK = "#010203"  # drawn in this, shown in the colour of the text
OURS, HELD = "#3b8ec4", "#d5722b"
PANELS = 24  # symbols that are drawn
POINTS = 1500  # of one symbol


def write(folder: Path, target: Path | None = None, *, overwrite: bool = False) -> Path:
    """The page of a run, complete or not at all; finished or not, whatever is there is told."""
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
    name = folder.resolve().name
    done = rows[-1]["step"]
    state = "" if done >= run.steps else f" (after {done:,} of {run.steps:,} steps)"
    parts = [
        f"<h1>{escape(name)}{escape(state)}</h1>",
        _pairs(facts(run, rows) | _cost(run, rows)),
        _drawing(losses(rows), "Loss by tokens, and the learning rate with the gradient's norm."),
    ]
    if sample := latest_sample(folder) or _sample(folder / MODEL):
        parts.append(f"<h2>A sample</h2><pre>{escape(sample)}</pre>")
    parts += _symbols(folder / MODEL) if run.model.arch == "toeplitz" else []
    record = run.to_dict()
    model = record.pop("model")
    parts.append(f"<h2>Settings of the run</h2>{_pairs(record)}")
    parts.append(f"<h2>Settings of the model</h2>{_pairs(model)}")
    return PAGE.format(title=escape(name), body="\n".join(parts), mark=MARK)


def _sample(checkpoint: Path) -> str:
    """Text of the finished model, for runs that wrote none on their way."""
    if not (checkpoint / TOKENS).is_file():
        return ""
    model, tokenizer = load(checkpoint), Tokenizer.load(checkpoint)
    sampling = Sampling(temperature=0.8, top_p=0.95)
    start = [[tokenizer.start]]
    (row,) = generate(model, start, new=120, sampling=sampling, stop_tokens=[tokenizer.end])
    return tokenizer.decode(row)


def _cost(run: Run, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Operations of training: a backward pass is two forward ones."""
    context = run.model.context
    each = 3 * forward_flops(run.model, context) / context
    total = each * rows[-1]["tokens"]
    speed = total / max(rows[-1]["seconds"], 1e-9)
    return {"operations": f"{total:.3g}, {speed / 1e9:,.1f} GFLOP/s with everything in between"}


def _pairs(values: Mapping[str, Any]) -> str:
    lines = (
        f"<tr><th>{escape(str(key).replace('_', ' '))}</th><td>{escape(str(value))}</td></tr>"
        for key, value in values.items()
    )
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def losses(rows: list[dict[str, Any]]) -> "Figure":
    """Loss on the left, what steered it on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for key, colour, words in (("loss", OURS, "training"), ("val_loss", HELD, "validation")):
        found = [(row["tokens"], row[key]) for row in rows if key in row]
        if found:
            marker = "o" if key == "val_loss" else ""
            left.plot(*zip(*found, strict=True), marker + "-", color=colour, label=words, ms=3.5)
    left.set(xlabel="tokens", ylabel="nats per token")
    left.legend(frameon=False, labelcolor=INK)
    other = right.twinx()
    for axes, key, colour in ((right, "lr", OURS), (other, "grad_norm", HELD)):
        found = [(row["step"], row[key]) for row in rows if key in row]
        if found:
            axes.plot(*zip(*found, strict=True), color=colour, linewidth=1.2)
        axes.set_ylabel(key.replace("_", " "), color=colour)
    right.set_xlabel("steps")
    for axes in (left, right, other):
        _inked(axes, keep_label=axes is not left)
    return figure


def _symbols(checkpoint: Path) -> list[str]:
    """Every filter's symbol and certified index; nothing where the model is not saved yet."""
    if not checkpoint.is_dir():
        return []
    filters = Filters(checkpoint)
    head = "<tr><th>filter</th><th>taps</th><th>index</th><th>margin</th><th>proof</th></tr>"
    lines = []
    for row in filters.rows:
        margin = "-" if row["margin"] is None else f"{row['margin']:.3g}"
        number = "-" if row["index"] is None else row["index"]
        cells = (row["name"], row["taps"], number, margin, row["status"])
        lines.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    drawn = "Each filter's symbol and index; the point is the origin."
    if len(filters.rows) > PANELS:
        drawn += f" The first {PANELS} of {len(filters.rows)}."
    table = f'<div class="wide tall"><table>{head}{"".join(lines)}</table></div>'
    return ["<h2>Filters</h2>", _drawing(symbols(filters), drawn), table]


def symbols(filters: Filters) -> "Figure":
    """Curves in the complex plane, a panel each."""
    from matplotlib.figure import Figure

    shown = filters.rows[:PANELS]
    columns = min(6, len(shown))
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(10, 0.3 + lines * 10 / max(columns, 4)), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, row in zip(panels, shown, strict=False):
        curve = half(filters.taps(row["layer"], row["head"], row["kernel"]))
        curve = curve[:: max(1, 2 * len(curve) // POINTS)]
        for mirrored in (curve.imag, -curve.imag):
            axes.plot(curve.real.numpy(), mirrored.numpy(), color=OURS, linewidth=0.7)
        axes.plot(0, 0, ".", color=HELD)
        axes.set_title(f"{row['name']}: {row['index']}", fontsize=8, color=INK)
        axes.set_aspect("equal", "datalim")
        _inked(axes)
        axes.tick_params(labelsize=6)
    for empty in panels[len(shown) :]:
        empty.set_axis_off()
    return figure


def _inked(axes: Any, keep_label: bool = False) -> None:
    axes.patch.set_alpha(0)
    axes.tick_params(colors=INK)
    axes.xaxis.label.set_color(INK)
    if not keep_label:
        axes.yaxis.label.set_color(INK)
    for spine in axes.spines.values():
        spine.set_color(INK)
        spine.set_alpha(0.35)


def _drawing(figure: "Figure", words: str) -> str:
    return f"<figure>{svg(figure)}<figcaption>{escape(words)}</figcaption></figure>"


def svg(figure: "Figure") -> str:
    """A figure as an element of a page: no prolog, no metadata, no address of any kind."""
    from matplotlib import rc_context

    written = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "toeplix"}):
        figure.savefig(written, format="svg", transparent=True, metadata=nothing)
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r' (width|height)="[^"]*pt"', "", text, count=2)
    return text.replace("xlink:href", "href").replace(INK, "currentColor")


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="{mark}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}: a training run</title>
<style>
:root {{ color-scheme: light dark; --line: #ddd; --soft: #5d6870 }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2328; background: #fff }}
@media (prefers-color-scheme: dark) {{ :root {{ --line: #39434a; --soft: #9aa7ae }}
  body {{ color: #e4e8ea; background: #14181b }} }}
h1, h2 {{ line-height: 1.2; overflow-wrap: anywhere }} h2 {{ margin-top: 2rem; font-size: 1.1rem }}
.wide {{ overflow-x: auto }} .tall {{ max-height: 24rem; overflow-y: auto }}
table {{ border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0;
  border-bottom: 1px solid var(--line) }}
th {{ color: var(--soft); font-weight: 500 }}
figure {{ margin: 1.5rem 0 }} figure svg {{ width: 100%; height: auto }}
figcaption {{ color: var(--soft); font-size: 0.88rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; padding: 0.8rem;
  border: 1px solid var(--line); border-radius: 6px }}
</style></head><body>
{body}
</body></html>
"""
