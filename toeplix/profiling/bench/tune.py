"""`toeplix bench ops --tune`: measure which path is fastest at which size, and write the dispatch rule.

For a few numbers of columns, all paths are timed forward+backward at increasing lengths; the rule changes
where the fastest path changes. The rule is written to the file that `toeplix.ops.dispatch` reads.
"""

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from toeplix.files import MARK, write_output
from toeplix.ops import dispatch
from toeplix.ops.dispatch import AUTO, AUTO_EXACT, Band
from toeplix.ops.paths import PATHS, backward, forward
from toeplix.profiling import timing

COLUMNS = (16, 256, 4096)
LENGTHS = (32, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048, 4096)
MAX_LENGTHS = {"dense": 128, "blocked": 2048}  # longer sequences would take too long


def tune(console: Console, *, seconds: float = 0.3, lengths: tuple[int, ...] = LENGTHS) -> Path:
    """Measure, print the table, and write the rule atomically; return its file."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    file = dispatch.rule_file()
    kept = _kept(file)
    _write(file, {"rule": kept})  # fails before the measurement if the file cannot be written
    bands: dict[str, list[Band]] = {AUTO: [], AUTO_EXACT: []}
    table = Table(title=f"nanoseconds per element on {device}, forward+backward")
    for column in ("columns", "t", *PATHS):
        table.add_column(column, justify="right")
    for columns in COLUMNS:
        measured = {}
        for length in track(lengths, f"{columns} columns", console=console, transient=True):
            measured[length] = _times(device, columns, length, seconds)
            cells = (f"{measured[length][p]:.1f}" if p in measured[length] else "" for p in PATHS)
            table.add_row(str(columns), str(length), *cells)
        last = columns == COLUMNS[-1]
        for mode in bands:
            able = [name for name, path in PATHS.items() if path.exact or mode == AUTO]
            limit = None if last else columns
            bands[mode].append({"columns": limit, "paths": _boundaries(measured, able)})
    console.print(table)
    rule: dispatch.Rule = kept | {device: bands}
    dispatch.check(rule)
    _write(file, {"machine": timing.describe_machine(device), "rule": rule})
    dispatch.current_rule.cache_clear()
    return file


def _kept(file: Path) -> dispatch.Rule:
    """Return the rule of an existing file, for the devices that are not measured."""
    try:
        return dispatch.read(file)
    except (OSError, ValueError):
        return {}


def _times(device: str, columns: int, length: int, seconds: float) -> dict[str, float]:
    channels = min(columns, 512)
    x = timing.randn(columns // channels, length, 1, channels).to(device)
    kernel = timing.randn(1, length, seed=1).to(device)
    g = timing.randn(*x.shape, seed=2).to(device)

    def call(path: str) -> timing.Contender:
        return lambda: (forward(x, kernel, path), backward(g, x, kernel, path, True, True))

    able = {name: call(name) for name in PATHS if length <= MAX_LENGTHS.get(name, length)}
    times = timing.interleaved(able, seconds=seconds, least=3)
    return {name: statistics.median(taken) / x.numel() * 1e9 for name, taken in times.items()}


def _boundaries(
    measured: dict[int, dict[str, float]], able: list[str]
) -> list[tuple[int | None, str]]:
    """Return ranges of lengths with their fastest path; boundaries are geometric means of lengths."""
    fastest = {
        length: min((time, name) for name, time in times.items() if name in able)[1]
        for length, times in measured.items()
    }
    lengths = sorted(fastest)
    paths: list[tuple[int | None, str]] = []
    for here, there in pairwise(lengths):
        if fastest[here] != fastest[there]:
            paths.append((round((here * there) ** 0.5), fastest[here]))
    return [*paths, (None, fastest[lengths[-1]])]


def _write(file: Path, document: dict[str, Any]) -> None:
    """A file that holds a rule may be replaced, but no other one that the user names."""
    text = json.dumps({"origin": MARK, **document}, indent=2) + "\n"
    write_output(file, lambda aside: aside.write_text(text), overwrite=bool(_kept(file)))
