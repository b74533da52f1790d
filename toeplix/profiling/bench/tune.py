"""`toeplix bench ops --tune`: measure which path is fastest at which size, and write the dispatch rule.

For a few numbers of columns of one filter, and for a filter per channel, all paths are timed
forward+backward at increasing lengths; the rule changes where the fastest path changes. The rule is
written to the file that `toeplix.ops.dispatch` reads.
"""

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from toeplix.files import MARK, write_output
from toeplix.ops import dispatch
from toeplix.ops.dispatch import AUTO, AUTO_EXACT, Band
from toeplix.ops.paths import PATHS, backward, forward, runnable
from toeplix.profiling import timing
from toeplix.profiling.progress import tracked


class Group(NamedTuple):
    """The shape of sequences that are timed, for a band of the rule."""

    rows: int
    heads: int
    channels: int  # per head

    @property
    def columns(self) -> int:
        return self.rows * self.channels


# the first is the band of one channel per head; the others follow by columns, the last has any number
PER_CHANNEL = "one channel per head"
GROUPS: dict[str, Group] = {
    PER_CHANNEL: Group(16, 64, 1),
    "16 columns": Group(1, 1, 16),
    "256 columns": Group(1, 1, 256),
    "4096 columns": Group(8, 1, 512),
}
LENGTHS = (32, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048, 4096)
MAX_LENGTHS = {"dense": 128, "blocked": 2048}  # longer sequences would take too long
# nanoseconds per element by kind of device, group, length and path
Measured = dict[str, dict[str, dict[int, dict[str, float]]]]


def tune(
    console: Console,
    *,
    device: torch.device | None = None,
    seconds: float = 0.3,
    lengths: tuple[int, ...] = LENGTHS,
) -> Path:
    """Measure, print the tables, and write the rule atomically; return its file.

    `device`: None is that on which tensors are made by default.
    """
    device = device or torch.get_default_device()
    file = check_rule_file()
    return write_rule(file, device, measure(console, device, seconds=seconds, lengths=lengths))


def check_rule_file() -> Path:
    """Return the file of the rule; fail before a measurement if it cannot be written."""
    file = dispatch.rule_file()
    _write(file, {"rule": _kept(file)})
    return file


def measure(
    console: Console,
    device: torch.device,
    *,
    seconds: float = 0.3,
    lengths: tuple[int, ...] = LENGTHS,
) -> Measured:
    """Time all paths on a device, in every kind that a rule lists, and print the tables."""
    measured: Measured = {}
    for kind in dispatch.kinds_on(device.type):
        table = Table(title=f"nanoseconds per element on {kind}, forward+backward")
        for column in ("", "t", *PATHS):
            table.add_column(column, justify="right")
        measured[kind] = {}
        for name, group in GROUPS.items():
            times = measured[kind][name] = {}
            for length in tracked(lengths, name, console):
                times[length] = _times(device, kind, group, length, seconds)
                cells = (f"{times[length][p]:.1f}" if p in times[length] else "" for p in PATHS)
                table.add_row(name, str(length), *cells)
        console.print(table)
    return measured


def write_rule(file: Path, device: torch.device, measured: Measured) -> Path:
    """Write the rule of the fastest paths for a device, beside those of other devices in the file."""
    rule: dispatch.Rule = _kept(file) | {kind: _bands(own) for kind, own in measured.items()}
    dispatch.check(rule)
    _write(file, {"machine": timing.describe_machine(device), "rule": rule})
    dispatch.current_rule.cache_clear()
    return file


def _bands(measured: dict[str, dict[int, dict[str, float]]]) -> dict[str, list[Band]]:
    """Return the rule of one kind of device."""
    bands: dict[str, list[Band]] = {AUTO: [], AUTO_EXACT: []}
    for name, times in measured.items():
        for mode in bands:
            able = [path for path, known in PATHS.items() if known.exact or mode == AUTO]
            any_number = name in (PER_CHANNEL, list(measured)[-1])
            limit = None if any_number else GROUPS[name].columns
            band: Band = {"columns": limit, "paths": _boundaries(times, able)}
            bands[mode].append(band | {"channels": 1} if name == PER_CHANNEL else band)
    return bands


def _kept(file: Path) -> dispatch.Rule:
    """Return the rule of an existing file, for the devices that are not measured."""
    try:
        return dispatch.read(file)
    except (OSError, ValueError):
        return {}


def _times(
    device: torch.device, kind: str, group: Group, length: int, seconds: float
) -> dict[str, float]:
    dtype = torch.bfloat16 if kind.endswith(dispatch.HALF) else torch.float32
    x = timing.randn(group.rows, length, group.heads, group.channels).to(device, dtype)
    kernel = timing.randn(group.heads, length, seed=1).to(device)
    g = timing.randn(*x.shape, seed=2).to(device, dtype)

    def call(path: str) -> timing.Contender:
        return lambda: (forward(x, kernel, path), backward(g, x, kernel, path, True, True))

    able = {name: call(name) for name in runnable(x) if length <= MAX_LENGTHS.get(name, length)}
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
