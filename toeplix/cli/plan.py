"""`toeplix plan`: the memory and time that a run will need."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from toeplix.cli.run_options import given_settings, with_settings


def _plan(
    name: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A preset, a run.json, or the directory of a run."),
    ],
    hardware: Annotated[
        str, typer.Option(help="cpu (of this machine, measured), h100, a100 or v100.")
    ] = "cpu",
    devices: Annotated[int, typer.Option(min=1, help="Number of devices.")] = 1,
    efficiency: Annotated[
        float | None,
        typer.Option(
            help="Fraction of peak FLOP/s that training reaches; default: assumed, and printed."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A token store, for the size of its vocabulary; default: the run's."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    **settings: Any,
) -> None:
    """Print parameters, FLOPs, memory and time of a run on given hardware.

    The settings of the run are changed by the same options as those of `toeplix train`; batch and
    accumulation are those of one device.

    Time is FLOPs divided by the peak FLOP/s and by an assumed efficiency, which is printed with
    its source; --efficiency replaces it. On a GPU it is a lower bound: the launch overhead of
    kernels, which dominates in small models, is not counted.

    For h100 and a100, the kernels of the token mixers are listed beside what the cuBLAS and cuFFT
    paths would move: a roofline estimate from published peaks, not a measurement.
    """
    from rich.table import Table

    from toeplix.cli.tables import table_console
    from toeplix.data import Store
    from toeplix.files import read_json, reading
    from toeplix.profiling.plan import HARDWARE, this_cpu
    from toeplix.profiling.plan import plan as planned
    from toeplix.training.presets import PRESETS, changed, preset
    from toeplix.training.run import Run

    if hardware != "cpu" and hardware not in HARDWARE:
        raise typer.BadParameter(f"--hardware {hardware}: one of cpu, {', '.join(HARDWARE)}")
    if name in PRESETS:
        run = preset(name, "-")
    else:
        file = Path(name) / "run.json" if Path(name).is_dir() else Path(name)
        if not file.exists():
            raise typer.BadParameter(
                f"{name} is no preset ({', '.join(PRESETS)}), no run.json and no directory of a run"
            )
        with reading(file, "it is no record of a run"):
            run = Run.from_dict(read_json(file))
    given = given_settings(settings)
    if data is not None and "vocab" not in given:
        given["vocab"] = Store.open(data).vocab
    try:
        run = changed(run, given, lambda line: print(f"toeplix: {line}", file=sys.stderr))
    except TypeError as problem:  # of --dropout nan
        raise ValueError(str(problem)) from problem
    device = this_cpu() if hardware == "cpu" else HARDWARE[hardware]
    found = planned(run, device, devices, efficiency)
    if as_json:
        print(json.dumps(found))
        return
    console = table_console()
    table = Table(title=f"{name} on {devices} x {hardware}, {run.precision}", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for key, value in _lines(found, gpu=hardware != "cpu").items():
        table.add_row(key, value)
    for key, value in _division(found).items():
        table.add_row(key, value)
    console.print(table)
    if found["operator_estimates"]:
        table = Table(title="one layer of each kind, forward and backward: estimated, not measured")
        for column in ("kernel or path", "FLOPs", "bytes", "occupancy", "microseconds"):
            table.add_column(column, justify="left" if column == "kernel or path" else "right")
        for row in found["operator_estimates"]:
            share = "" if row["occupancy"] is None else f"{row['occupancy']:.0%}"
            numbers = (f"{row['flops']:.2e}", f"{row['bytes']:.2e}", share)
            table.add_row(row["name"], *numbers, f"{1e6 * row['seconds']:.3g}")
        console.print(table)


plan = with_settings(_plan, default="the run's")


def _lines(found: dict[str, Any], gpu: bool) -> dict[str, str]:
    """Return the lines of the table."""
    gib = 2**30
    teraflops = found["peak_flops_per_second"] / 1e12
    return {
        "parameters": f"{found['parameters']:,}",
        "per step": f"{found['tokens_per_step']:,} tokens, {found['flops_per_step']:.3g} FLOPs",
        "whole run": f"{found['tokens']:,} tokens, {found['flops']:.3g} FLOPs",
        "memory per device": f"{found['weight_bytes'] / gib:.2f} GiB weights and optimizer state, "
        f"{found['activation_bytes'] / gib:.2f} GiB activations, "
        f"of {found['device_bytes'] / gib:.0f}: {'fits' if found['fits'] else 'does not fit'}",
        "efficiency": f"{found['efficiency']:.0%} of {teraflops:,.3g} TFLOP/s per device: "
        f"{found['efficiency_basis']}",
        "time": f"{found['seconds_per_step']:.3g} s per step, {_spelled(found['seconds'])} in all"
        + (": a lower bound, without launch overhead" if gpu else ""),
        "operator": found["path"],
        "operator dtype": found["operator_precision"],
        "decoding": f"{found['decode_bytes'] / 2**20:.3g} MiB of state per sequence, "
        f"{found['decode_flops_per_token']:.3g} FLOPs per token without filters",
    }


def _division(found: dict[str, Any]) -> dict[str, str]:
    """Return the lines about a sequence that devices divide; none if they do not."""
    if "exchanged_bytes" not in found:
        return {}
    attention = found["attention_exchanged_bytes"]
    longest = (f"{count}: {tokens:,}" for count, tokens in found["longest_contexts"].items())
    return {
        "exchange": f"{found['exchanged_bytes']:.3g} bytes per layer and token; attention would send "
        f"{attention['ring']:.3g} (ring) or {attention['all_to_all']:.3g} (all-to-all)",
        "longest row": f"tokens by devices that divide it: {', '.join(longest)}",
    }


def _spelled(seconds: float) -> str:
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {word}"
    return f"{seconds:.0f} seconds"
