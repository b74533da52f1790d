"""`toeplix plan`: the memory and time that a run will need."""

import json
from pathlib import Path
from typing import Annotated

import typer


def plan(
    name: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A preset, a run.json, or the directory of a run."),
    ],
    hardware: Annotated[
        str, typer.Option(help="cpu (of this machine, measured), h100, a100 or v100.")
    ] = "cpu",
    devices: Annotated[int, typer.Option(min=1, help="Number of devices.")] = 1,
    efficiency: Annotated[
        float | None, typer.Option(help="Fraction of peak FLOP/s that training reaches.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16; default: the run's.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Rows per device and forward pass; default: the run's."),
    ] = None,
    grad_accum_steps: Annotated[
        int | None, typer.Option(min=1, help="Gradient accumulation steps; default: the run's.")
    ] = None,
    parallel: Annotated[str | None, typer.Option(help="ddp or fsdp; default: the run's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print parameters, FLOPs, memory and time of a run on given hardware."""
    from rich.console import Console
    from rich.table import Table

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
    given = {
        "precision": precision,
        "batch": batch,
        "grad_accum_steps": grad_accum_steps,
        "parallel": parallel,
    }
    run = changed(run, {key: value for key, value in given.items() if value is not None})
    device = this_cpu() if hardware == "cpu" else HARDWARE[hardware]
    found = planned(run, device, devices, efficiency)
    if as_json:
        print(json.dumps(found))
        return
    table = Table(title=f"{name} on {devices} x {hardware}, {run.precision}", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    gib = 2**30
    for key, value in {
        "parameters": f"{found['parameters']:,}",
        "a step": f"{found['tokens_per_step']:,} tokens, {found['flops_per_step']:.3g} operations",
        "the run": f"{found['tokens']:,} tokens, {found['flops']:.3g} operations",
        "memory a device": f"{found['weight_bytes'] / gib:.2f} GiB weights and moments, "
        f"{found['activation_bytes'] / gib:.2f} GiB for backward, "
        f"of {found['device_bytes'] / gib:.0f}: {'fits' if found['fits'] else 'does not fit'}",
        "time": f"{found['seconds_per_step']:.3g} s a step, {_spelled(found['seconds'])} in all",
        "operator": found["path"],
        "decoding": f"{found['decode_bytes'] / gib:.3f} GiB of state a row, "
        f"{found['decode_flops_per_token']:.3g} operations a token and the filters'",
    }.items():
        table.add_row(key, value)
    Console().print(table)


def _spelled(seconds: float) -> str:
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {word}"
    return f"{seconds:.0f} seconds"
