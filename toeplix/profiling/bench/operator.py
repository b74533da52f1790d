"""`toeplix bench ops`: the operator compared with alternatives and with the limits of the machine.

Every size is measured forward and forward+backward, interleaved. A ratio is the time of the alternative
divided by ours. "limit" is the fraction of the limit that the selected path reaches: for matmul paths of
the measured sgemm throughput (only the lower triangle counts), for the FFT path of the FFT library's own
time for the necessary transforms (2 forward, 3 backward).
"""

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from toeplix.ops import dispatch, fft, toeplitz
from toeplix.profiling import timing
from toeplix.profiling.bench import lookup, recurrent
from toeplix.profiling.bench.alternatives import ALTERNATIVES
from toeplix.profiling.bench.decoding import decoding_rows, decoding_table
from toeplix.profiling.progress import tracked


class Size(NamedTuple):
    batch: int
    time: int
    dim: int
    heads: int

    @property
    def elements(self) -> int:
        return self.batch * self.time * self.dim


BATCHES, TIMES, DIMS, HEADS = (1, 8), (128, 512, 1024, 4096, 16384), (256, 1024), (1, 4)
PER_CHANNEL_TIMES, PER_CHANNEL_DIM = (128, 512), 256  # a filter per channel, as in Hyena
QUICK_ELEMENTS = 2**22  # maximum elements of x in the quick set of sizes
DEFAULT_ELEMENTS = 2**23  # maximum elements of x in the default set; the full set has all sizes


def sizes(most: int) -> list[Size]:
    every = [Size(b, t, d, h) for t in TIMES for h in HEADS for b in BATCHES for d in DIMS]
    wide = PER_CHANNEL_DIM
    every += [Size(b, t, wide, wide) for t in PER_CHANNEL_TIMES for b in BATCHES]
    return [size for size in every if size.elements <= most]


def run(console: Console, *, most: int, seconds: float) -> dict[str, Any]:
    """Measure, print tables to `console`, and return the results as a JSON document."""
    limits = timing.machine_limits()
    machine = timing.describe_machine() | limits._asdict()
    console.print(
        f"{machine['device']}, {machine['threads']} threads, torch {machine['torch']}: "
        f"sgemm {limits.sgemm_gflops:.0f} GFLOP/s, copy {limits.copy_gbytes:.0f} GB/s"
    )
    rows = []
    for size in tracked(
        sizes(most),
        "operator",
        console,
        lambda size: f"t={size.time}, h={size.heads}, b={size.batch}, d={size.dim}",
    ):
        rows += [measure(size, backward, limits, seconds) for backward in (False, True)]
    console.print(operator_table(rows))
    console.print(summary_table(rows))
    memory = list(memory_rows())
    console.print(memory_table(memory))
    recurrences = recurrent.measure(console, most=most, seconds=seconds)
    lookups = lookup.lookup_rows(
        console, lengths=tuple(t for t in lookup.LENGTHS if 512 * t <= most)
    )
    console.print(lookup.lookup_table(lookups))
    decoding = decoding_rows(console)
    console.print(decoding_table(decoding))
    return {
        "benchmark": "ops",
        "machine": machine,
        "operator": rows,
        "memory": memory,
        "recurrent": recurrences,
        "lookup": lookups,
        "decoding": decoding,
    }


def measure(size: Size, backward: bool, limits: timing.Limits, seconds: float) -> dict[str, Any]:
    """Measure one size: our time, the ratios of the alternatives, and the fraction of the limit."""
    batch, time, dim, heads = size
    x = timing.randn(batch, time, heads, dim // heads).requires_grad_(backward)
    kernel = (timing.randn(heads, time, seed=1) / time**0.5).requires_grad_(backward)
    g = timing.randn(*x.shape, seed=2)

    def call(function: Callable[[Tensor, Tensor], Tensor]) -> timing.Contender:
        if backward:
            return lambda: torch.autograd.grad(function(x, kernel), (x, kernel), g)
        return lambda: function(x, kernel)

    contenders = {"toeplix": call(toeplitz)}
    for name, other in ALTERNATIVES.items():
        fits = time <= other.longest and size.elements <= other.most
        if fits and (other.differentiable or not backward):
            contenders[name] = call(other.function)
    channels = dim // heads
    path = dispatch.choose(dispatch.AUTO, x.device.type, time, batch * channels, channels)
    if path == "fft":
        contenders["library"] = _library_transforms(size, 5 if backward else 2)
    times = timing.interleaved(contenders, seconds=seconds, least=3)
    ours = statistics.median(times["toeplix"])
    if path == "fft":
        limit = 1 / timing.median_ratio(times["toeplix"], times["library"])
    else:
        flops = (3 if backward else 1) * size.elements * (time + 1)
        limit = flops / ours / 1e9 / limits.sgemm_gflops
    ratios = {
        name: round(timing.median_ratio(taken, times["toeplix"]), 2)
        for name, taken in times.items()
        if name in ALTERNATIVES
    }
    return size._asdict() | {
        "backward": backward,
        "path": path,
        "milliseconds": round(ours * 1e3, 4),
        "nanoseconds_per_element": round(ours / size.elements * 1e9, 3),
        "limit": round(limit, 3),
        "ratios": ratios,
    }


def _library_transforms(size: Size, count: int) -> timing.Contender:
    """Time the transforms alone, on chunks that already have the library's preferred layout."""
    length = fft.good_length(2 * size.time - 1)
    budget = fft.CHUNK_BYTES.get(torch.get_default_device().type, fft.CHUNK_BYTES["cpu"])
    lanes = max(fft.MIN_CHUNK_LANES, budget // (8 * length))
    total = size.batch * size.dim // 2
    chunk = torch.zeros(min(lanes, total), length, dtype=torch.complex64)
    repeats = round(count * total / len(chunk))

    def transform() -> None:
        for _ in range(repeats):
            torch.fft.fft(chunk)

    return transform


TARGETS = {  # forward+backward, batch 8: target ratios of this operator
    "gathered": {(128, 1): 1.4, (512, 1): 1.8, (512, 4): 1.8, (1024, 4): 3.5, (4096, 1): 12.0},
    "rfft": {
        (128, 1): 6.0,
        (512, 1): 5.5,
        (512, 4): 5.0,
        (1024, 4): 5.5,
        (4096, 1): 6.0,
        (16384, 1): 6.0,
    },
}


def summary_table(rows: list[dict[str, Any]]) -> Table:
    """Return a table of forward+backward ratios: the range over batch size and width."""
    table = Table(title="forward+backward, alternative's time over ours (range over b and d)")
    for column in ("size", *TARGETS):
        table.add_column(column, justify="left" if column == "size" else "right")
    for time, heads in TARGETS["rfft"]:
        line = []
        for name, targets in TARGETS.items():
            found = [
                row["ratios"][name]
                for row in rows
                if row["backward"]
                and (row["time"], row["heads"]) == (time, heads)
                and name in row["ratios"]
            ]
            goal = f" (>= {targets[time, heads]})" if (time, heads) in targets else ""
            line.append(f"{min(found):.1f} to {max(found):.1f}{goal}" if found else "-")
        table.add_row(f"t={time}, h={heads}", *line)
    return table


def operator_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title=f"causal Toeplitz product, {torch.get_default_dtype()}: ratios are the alternative's time "
        "over ours",
        collapse_padding=True,  # 13 columns
    )
    for column in ("t", "h", "b", "d", "pass", "path", "ms", "ns/el", *ALTERNATIVES, "limit"):
        table.add_column(column, justify="left" if column in ("pass", "path") else "right")
    for row in rows:
        table.add_row(
            *(str(row[key]) for key in ("time", "heads", "batch", "dim")),
            "fwd+bwd" if row["backward"] else "fwd",
            row["path"],
            f"{row['milliseconds']:.2f}",
            f"{row['nanoseconds_per_element']:.1f}",
            *(
                f"{row['ratios'][name]:.1f}x" if name in row["ratios"] else "-"
                for name in ALTERNATIVES
            ),
            f"{row['limit']:.0%}",
        )
    return table


def memory_rows() -> Iterator[dict[str, Any]]:
    """Measure peak memory of forward+backward beyond inputs, relative to x, with and without results."""
    for time in (4096, 16384):
        size = Size(1, time, 1024, 1)
        for name in ("toeplix", "rfft"):
            peak = timing.peak_extra_bytes(_backward_call, name, size)
            if peak is not None:
                units = peak / (4 * size.elements)
                # y and dx are results, each of the size of x
                yield size._asdict() | {"who": name, "peak": units, "beyond_results": units - 2}


def memory_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="peak extra memory of forward+backward, in sizes of x")
    for column in ("who", "t", "d", "all", "beyond y and dx"):
        table.add_column(column, justify="right")
    for row in rows:
        sizes_of_x = (f"{row['peak']:.2f}", f"{row['beyond_results']:.2f}")
        table.add_row(row["who"], str(row["time"]), str(row["dim"]), *sizes_of_x)
    return table


def _backward_call(name: str, size: Size) -> timing.Contender:
    """Prepare a forward+backward call in a new process; memory allocated here is not counted."""
    batch, time, dim, heads = size
    function = toeplitz if name == "toeplix" else ALTERNATIVES[name].function
    x = timing.randn(batch, time, heads, dim // heads).requires_grad_()
    kernel = timing.randn(heads, time, seed=1).requires_grad_()
    g = timing.randn(*x.shape, seed=2)
    small = x[:, :256, :, :4].detach().requires_grad_()
    torch.autograd.grad(
        function(small, kernel[:, :256]), small, g[:, :256, :, :4]
    )  # loads libraries

    def call() -> object:
        y = function(x, kernel)
        return y, torch.autograd.grad(y, (x, kernel), g)

    return call
