"""`toeplix train`: options are the fields of `Run` and `Model`, so there is one list of them."""

import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from toeplix.cli.run_options import given_settings, with_settings
from toeplix.files import ensure_directory, printable, read_json
from toeplix.training.presets import PRESETS, changed, preset
from toeplix.training.run import Run

VAL_FRACTION = 0.05  # of a store that is made here


def _train(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[PRESET]", help=f"Where to start from: {', '.join(PRESETS)}."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A token store, or text as `toeplix data build` takes it ('python', files, hf:NAME), "
            "of which one is made in the run's directory."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Settings from a file: .json as run.json, or .py with a Run or dict named `run`."
        ),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Start over at step 0 where all checkpoints are damaged; they are kept aside.",
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            help="Read the whole store first and compare it with its sha256; once, until it changes.",
        ),
    ] = True,
    data_license: Annotated[
        str, typer.Option(help="Licence of the data, for the model card.")
    ] = "unknown",
    **settings: Any,
) -> None:
    """Train a language model.

    May be interrupted or killed: the same command resumes, and the result is the same to the last
    bit. Options override --config, which overrides the preset.

    Several processes: torchrun --nproc-per-node 2 -m toeplix train ...
    """
    from toeplix.data import Store
    from toeplix.files.locking import LOCK
    from toeplix.training.allocator import keep_freed_memory
    from toeplix.training.logs import read
    from toeplix.training.loop import fit
    from toeplix.training.preflight import check_run
    from toeplix.training.processes import joined
    from toeplix.training.run_directory import recorded_run
    from toeplix.training.signals import Abandoned, Stopped
    from toeplix.training.summary import waiting

    if name is not None and name not in PRESETS:
        raise typer.BadParameter(f"there is no preset {name!r}, only {', '.join(PRESETS)}")
    if out is None:
        raise typer.BadParameter("--out DIR is needed: where the run is written")
    given = given_settings(settings)
    before = _from_file(config) if config else {}
    source = data or before.get("data")
    if source is None:
        raise typer.BadParameter("--data is needed: a token store, or text such as 'python'")
    try:
        run = Run(data=source) if name is None else preset(name, source)
        run = changed(run, before | given | {"data": source}, _say)
    except TypeError as problem:  # of a value in a file, or of --dropout nan
        raise ValueError(str(problem)) from problem
    keep_freed_memory()
    with joined() as processes, ensure_directory(out, LOCK) if processes.first else nullcontext():
        check_run(run)
        if processes.first:
            recorded_run(out)  # `fit` does this too, but a store may be built before
        run = changed(run, {"data": _store(run, out, processes.first)})
        processes.wait()
        if "vocab" not in before | given:
            run = changed(run, {"vocab": Store.open(run.data).vocab})
        say: Callable[[str], None] = _say if processes.first else lambda line: None
        with bar(run, processes.first) as report:
            try:
                model = fit(
                    run,
                    out,
                    say=say,
                    report=report,
                    verify=verify,
                    restart=restart,
                    data_license=data_license,
                )
            except (Stopped, Abandoned) as ended:
                say(str(ended))
                raise typer.Abort from None
    if processes.first:
        waited = waiting(read(out, lambda line: None)) or 0.0
        print(f"{model}: trained, {waited:.2%} of the time waiting for data")
        print(f"{out / 'summary.md'}: summary of the run")


def _store(run: Run, out: Path, first: bool) -> str:
    """The store that `data` is, or where one is made of the text it names."""
    from toeplix.data import Recipe, build
    from toeplix.data.store import MANIFEST, PROGRESS
    from toeplix.training.run_directory import DATA, check_data

    if any((Path(run.data) / name).exists() for name in (MANIFEST, PROGRESS)):
        return run.data
    check_data(run.data)
    made = out / DATA
    if first:
        if not (made / MANIFEST).exists():
            _say(f"building a token store of {run.data} in {made}")
        recipe = Recipe(sources=(run.data,), vocab=run.model.vocab, val_fraction=VAL_FRACTION)
        if notice := build(recipe, made).notice:
            _say(notice)
    return str(made)


def _from_file(file: Path) -> dict[str, Any]:
    """Settings of Run and Model side by side."""
    if not file.exists():
        raise FileNotFoundError(f"--config {file}: there is no such file")
    if file.is_dir():
        raise IsADirectoryError(f"--config {file} is a directory: name a .json or .py file")
    if file.suffix == ".py":
        try:
            found = runpy.run_path(str(file)).get("run")
        except (Exception, SystemExit) as problem:  # of whatever is written there
            words = f"{type(problem).__name__}: {problem}".removesuffix(": ")
            raise ValueError(f"--config {file}: {words}") from problem
        if found is None:
            raise ValueError(f"--config {file}: it does not define `run`")
    else:
        found = read_json(file, "settings are a record as in run.json", kind=object)
    record = found.to_dict() if isinstance(found, Run) else found
    inside = record.get("model", {}) if isinstance(record, dict) else {}
    for kind, given in (("settings", record), ("settings of the model", inside)):
        if not isinstance(given, dict):
            shown = printable(given)[:40]
            raise ValueError(f"--config {file}: {kind} are a record, not {shown}")
    return {key: value for key, value in record.items() if key != "model"} | inside


def _say(line: str) -> None:
    print(f"toeplix: {line}", file=sys.stderr)


@contextmanager
def bar(run: Run, first: bool = True) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on a terminal, lines elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    console = Console(stderr=True)
    if not first:
        yield lambda row: None
    elif not console.is_terminal:

        def line(row: dict[str, Any]) -> None:
            if row["step"] % run.log_every == 0 or row["step"] == run.steps:
                place = f"step {row['step']} of {row['steps']}"
                print(f"{place}, {_words(row)}", file=sys.stderr, flush=True)

        yield line
    else:
        words = TextColumn("{task.description}")
        with Progress(MofNCompleteColumn(), BarColumn(), words, Left(), console=console) as drawn:
            task = drawn.add_task("", total=run.steps)
            yield lambda row: drawn.update(task, completed=row["step"], description=_words(row))


def _words(row: dict[str, Any]) -> str:
    """What a line or the bar shows; the loss is the one that metrics.jsonl gets."""
    return f"loss {row['mean_loss']:.4f}, {row['tokens_per_second']:,.0f} tokens/s"


def command() -> Callable[..., None]:
    """The function as typer reads it: `settings` spelled out."""
    return with_settings(_train)
