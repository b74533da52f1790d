"""`toeplix doctor`: check everything on a device, time it, and leave a report."""

import json
from pathlib import Path
from typing import Annotated

import typer

from toeplix.cli.devices import DeviceOption, chosen
from toeplix.cli.exits import CHECK_FAILED
from toeplix.files import MARK, check_output, write_output


def doctor(
    device: DeviceOption = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and short timings; no rule, unless --tune.")
    ] = False,
    tune: Annotated[
        bool | None,
        typer.Option(
            "--tune/--no-tune",
            help="Write the rule that path='auto' follows to ~/.config/toeplix/paths.json (or "
            "$TOEPLIX_RULE); never if a check fails. Default: written, but not with --quick.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The report, JSON; default: toeplix-doctor-DEVICE.json."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace --out even if toeplix did not write it.")
    ] = False,
) -> None:
    """Check operator, decoders and models on a device, time every path, and write the tuned rule.

    Every path is compared with the definition in float64 on the CPU, every architecture with
    itself on padded, packed, chunked and stepped inputs. The report holds everything that a bug
    report needs. Exit status 1: a check failed.
    """
    placed = chosen(device)
    where = placed.device
    file = out or Path(f"toeplix-doctor-{where.type}.json")
    check_output(file, overwrite=overwrite)
    placed.tell()
    from toeplix.cli.tables import table_console
    from toeplix.profiling.doctor import run

    tuned = not quick if tune is None else tune
    report = {"origin": MARK, **run(table_console(), where, quick=quick, tuned=tuned)}
    text = json.dumps(report, indent=1, allow_nan=False) + "\n"
    write_output(file, lambda aside: aside.write_text(text), overwrite=overwrite)
    failed = sum(not check["passed"] for check in report["checks"])
    made = len(report["checks"])
    print(f"{file}: {made - failed} of {made} checks passed; attach it to a bug report")
    if failed:
        raise typer.Exit(CHECK_FAILED)
