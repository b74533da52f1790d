"""summary.md: the summary of a finished run."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from toeplix.architectures import parameters
from toeplix.files import open_input, replace_file
from toeplix.training.logs import SAMPLES, read
from toeplix.training.run import Run

SUMMARY = "summary.md"
MAX_TABLE_LINES = 12  # maximum number of lines in a table


def summarise(
    run: Run, folder: Path, processes: int, say: Callable[[str], None] | None = None
) -> Path:
    """Write summary.md from what lies in the directory of a run; damaged rows are said and left out."""
    rows = read(folder, say)
    lines = ["# Training run", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts(run, rows, processes).items()]
    trained = [row for row in rows if "loss" in row]
    held = [row for row in rows if "val_loss" in row]
    lines += _table("Training", trained, ("step", "tokens", "loss", "lr", "grad_norm"))
    columns = ("step", "tokens", "val_loss", "val_perplexity", "val_bits_per_byte")
    lines += _table("Validation", held, columns)
    if sample := latest_sample(folder):
        indented = "\n".join(f"    {line}" for line in sample.splitlines())
        lines += ["", "## A sample", "", indented]
    text = "\n".join(lines) + "\n"
    replace_file(folder / SUMMARY, lambda aside: aside.write_text(text, encoding="utf-8"))
    return folder / SUMMARY


def facts(run: Run, rows: list[dict[str, Any]], processes: int | None = None) -> dict[str, str]:
    """Return model, data, cost and final losses of a run as text; `processes` may be unknown."""
    from toeplix import __version__

    model = run.model
    trained = [row for row in rows if "loss" in row]
    held = [row for row in rows if "val_loss" in row]
    seconds, tokens = (rows[-1]["seconds"], rows[-1]["tokens"]) if rows else (0.0, 0)
    sizes, words = f"{run.batch} x {run.grad_accum_steps}", "batch, accumulated"
    if processes is not None:
        sizes, words = f"{sizes} x {processes}", f"{words}, processes"
    found = {
        "model": f"{model.arch}, dim {model.dim}, depth {model.depth}, heads {model.heads}, "
        f"context {model.context}, vocabulary {model.vocab}",
        "parameters": f"{parameters(model):,}",
        "data": f"{run.data}, {run.protocol}",
        "steps": f"{run.steps:,} of {sizes} rows ({words})",
        "tokens": f"{tokens:,}",
        "time": f"{seconds:,.0f} s, {tokens / max(seconds, 1e-9):,.0f} tokens/s "
        "with evaluations and checkpoints",
    }
    if trained:
        found["final training loss"] = f"{trained[-1]['loss']:.4f} nats per token"
    if (waited := waiting(rows)) is not None:
        found["waiting for data"] = f"{waited:.2%} of the time of steps"
    if held:
        best = min(held, key=lambda row: row["val_loss"])
        found["validation"] = (
            f"{held[-1]['val_loss']:.4f} nats per token, "
            f"perplexity {held[-1]['val_perplexity']:.2f}, "
            f"{held[-1]['val_bits_per_byte']:.4f} bits per byte; "
            f"best {best['val_loss']:.4f} at step {best['step']}"
        )
    found["run"] = f"{run.digest}, toeplix {__version__}, PyTorch {torch.__version__}, " + (
        f"Python {sys.version.split()[0]}"
    )
    return found


def latest_sample(folder: Path) -> str:
    """Return the last text sample generated during training; empty if there is none."""
    file = folder / SAMPLES
    if not file.exists():
        return ""
    with open_input(file) as opened:
        samples = opened.read().decode("utf-8", "replace")
    start = samples.rfind("--- step")
    return samples[start:].partition("\n")[2] if start >= 0 else ""


def waiting(rows: list[dict[str, Any]]) -> float | None:
    """Return the fraction of step time spent waiting for batches; None without measurements."""
    shares = [row["waiting"] for row in rows if "waiting" in row]
    return sum(shares) / len(shares) if shares else None


def _table(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> list[str]:
    if not rows:
        return []
    chosen = sorted(
        {round(i * (len(rows) - 1) / (MAX_TABLE_LINES - 1)) for i in range(MAX_TABLE_LINES)}
    )
    head = f"| {' | '.join(name.replace('_', ' ') for name in columns)} |"
    lines = ["", f"## {title}", "", head, "|" + "---|" * len(columns)]
    for index in chosen:
        cells = (
            f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
            for value in (rows[index][name] for name in columns)
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines
