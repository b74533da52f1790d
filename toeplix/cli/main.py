"""The command line: `toeplix COMMAND --help` explains each command.

Bad input ends in one line on standard error and exit status 2; exits.py has all ways in which it ends.
"""

import math
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from toeplix.cli import exits
from toeplix.cli.bench import bench
from toeplix.cli.data import data
from toeplix.cli.demo import demo
from toeplix.cli.doctor import doctor
from toeplix.cli.eval import evaluate
from toeplix.cli.experiment import experiment
from toeplix.cli.explore import explore
from toeplix.cli.generate import generate
from toeplix.cli.page import page
from toeplix.cli.plan import plan
from toeplix.cli.probe import probe
from toeplix.cli.quantize import quantize
from toeplix.cli.serve import serve
from toeplix.cli.spectrum import spectrum
from toeplix.cli.train import command as train

app = typer.Typer(
    name="toeplix",
    help="Language models without attention: causal Toeplitz mixers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")
app.command("train")(train())
app.command("demo")(demo)
app.command("plan")(plan)
app.command("doctor")(doctor)
app.command("generate")(generate)
app.command("probe")(probe)
app.command("serve")(serve)
app.command("quantize")(quantize)
app.command("spectrum")(spectrum)
app.command("explore")(explore)
app.command("eval")(evaluate)
app.command("page")(page)
app.add_typer(experiment, name="experiment")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from toeplix import __version__

        print(f"toeplix {__version__}")
        raise typer.Exit


@app.command("import")
def import_(
    upstream: Annotated[
        Path, typer.Argument(help="A safetensors file of the paper's research code.")
    ],
    directory: Annotated[
        Path, typer.Argument(help="Where the checkpoint is written: a new or empty directory.")
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of a checkpoint that is there.")
    ] = False,
) -> None:
    """Convert a checkpoint of the paper's research code (Toeplitz mixers and Hyena)."""
    from toeplix import files
    from toeplix.checkpoint import save
    from toeplix.convert.research_code import convert

    if directory.is_dir() and any(directory.iterdir()) and not overwrite:
        raise ValueError(
            f"{directory} is not empty: name a new directory, or replace the checkpoint in it by "
            "--overwrite"
        )
    model = convert(upstream)
    with files.ensure_directory(directory), TemporaryDirectory(prefix=".", dir=directory) as aside:
        written = sorted(save(model, aside).iterdir())
        targets = [directory / file.name for file in written]
        files.check_output(*targets, overwrite=True)
        for file, target in zip(written, targets, strict=True):
            file.replace(target)
    config = model.config
    size = sum(value.numel() for value in model.parameters())
    print(
        f"{directory}: {config.arch}, heads {config.heads}, dim {config.dim}, depth {config.depth}, "
        f"context {config.context}, vocabulary {config.vocab}, {size:,} parameters"
    )


def main() -> None:
    """Run a command and leave with its exit status; `toeplix.cli.exits` says what the statuses mean."""
    arguments = sys.argv[1:] or ["--help"]
    command = typer.main.get_command(app)
    _check_values(command)
    exits.run(lambda: command.main(arguments, prog_name="toeplix", standalone_mode=False))


def _check_values(command: Any) -> None:
    """Let every option and argument reject what none of them can mean."""
    for parameter in command.params:
        # newer versions of typer keep the type in a descriptor, older ones as click does
        described = getattr(parameter, "type_descriptor", None)
        kind = getattr(parameter, "type", None)
        is_path = getattr(described, "annotation", None) is Path
        is_path = is_path or getattr(kind, "name", "") == "path"
        parameter.process_value = partial(_checked, parameter, parameter.process_value, is_path)
    for each in getattr(command, "commands", {}).values():
        _check_values(each)


def _checked(parameter: Any, process: Any, is_path: bool, context: Any, given: Any) -> Any:
    if is_path and given == "":  # a variable of a script that was not set
        raise typer.BadParameter(
            f"{parameter.opts[-1]} is empty: name a file or directory; '.' is the working directory"
        )
    found = process(context, given)
    for value in found if isinstance(found, list | tuple) else [found]:
        limit = 2**64 if parameter.name == "seed" else 2**63
        too_large = isinstance(value, int) and not -(2**63) <= value < limit
        if too_large or (isinstance(value, float) and not math.isfinite(value)):
            raise typer.BadParameter(f"{given!s:.40} is not a finite number of 64 bits")
    return found
