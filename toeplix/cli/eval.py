"""`toeplix eval`: benchmarks of the unmodified lm-evaluation-harness."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from toeplix.cli.devices import DeviceOption, DtypeOption, chosen
from toeplix.cli.tables import table_console


def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Checkpoints: a run, a model, a causal language model of Hugging Face (directory or "
            "name), or null: a baseline whose completions are empty."
        ),
    ],
    tasks: Annotated[
        str,
        typer.Option(
            help="Tasks, groups and tags of the harness, separated by commas; "
            "toeplix-paper: the tasks of the paper's table."
        ),
    ] = "toeplix-paper",
    data_root: Annotated[
        Path | None,
        typer.Option(help="Directory of the data sets' published files; default: the hub's data."),
    ] = None,
    available: Annotated[
        bool, typer.Option("--available", help="Skip tasks whose data are missing.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Evaluate only so many questions of each task.")
    ] = None,
    batch: Annotated[
        str, typer.Option(help="Batch size, or auto. Results do not depend on it.")
    ] = "auto",
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Directory for rows.jsonl and the harness's JSON.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that toeplix did not write, too.")
    ] = False,
) -> None:
    """Evaluate models on benchmarks, side by side.

    Tasks and metrics are those of the harness, evaluated zero-shot.
    """
    from toeplix.evaluation import harness, table
    from toeplix.files import check_output, ensure_directory

    wanted = [name for name in (part.strip() for part in tasks.split(",")) if name]
    if not wanted:
        raise typer.BadParameter("--tasks names no task")
    harness.check_batch(batch)
    where = chosen(device, dtype)
    with nullcontext() if out is None else ensure_directory(out):  # better now than after an hour
        if out is not None:
            check_output(*harness.outputs(harness.labels(models), out), overwrite=overwrite)
        report = harness.evaluate(
            models,
            wanted,
            root=data_root,
            batch=batch,
            device=str(where.device),
            dtype=where.dtype,
            limit=limit,
            available=available,
        )
        if out is not None:
            report.save(out, overwrite=overwrite)
    console = table_console()
    console.print(table.full_table(report.rows))
    if (drawn := table.paper_table(report.rows)) is not None:
        console.print(drawn)
    for heading, lines in (
        ("device", [where.told] if where.automatic else []),
        ("skipped", report.missing),
        ("truncated to the context", report.truncations),
        ("data", [f"{name}: {note}" for name, note in report.notes.items()]),
    ):
        for line in lines:
            console.print(f"{heading}: {line}", markup=False, highlight=False, soft_wrap=True)
