"""The command line: `toeplix COMMAND --help` explains each command.

Bad input ends in one line on standard error and exit status 2; exits.py has all ways in which it ends.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from toeplix import exits
from toeplix.commands.bench import bench
from toeplix.commands.data import data
from toeplix.commands.demo import demo
from toeplix.commands.eval import evaluate
from toeplix.commands.experiments import figure, report, run
from toeplix.commands.explore import explore
from toeplix.commands.generate import generate
from toeplix.commands.plan import plan
from toeplix.commands.probe import probe
from toeplix.commands.serve import serve
from toeplix.commands.spectrum import spectrum
from toeplix.commands.train import command as train

app = typer.Typer(
    name="toeplix",
    help="Language models without attention: causal Toeplitz mixers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")
app.command("train", no_args_is_help=True)(train())
app.command("demo")(demo)
app.command("plan")(plan)
app.command("generate")(generate)
app.command("probe", no_args_is_help=True)(probe)
app.command("serve")(serve)
app.command("spectrum")(spectrum)
app.command("explore")(explore)
app.command("eval", no_args_is_help=True)(evaluate)
app.command("run")(run)
app.command("figure")(figure)
app.command("report")(report)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.")
    ] = False,
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
    directory: Annotated[Path, typer.Argument(help="Where the checkpoint is written.")],
) -> None:
    """Convert a checkpoint of the paper's research code (Toeplitz mixers and Hyena)."""
    from toeplix.checkpoint import save
    from toeplix.upstream import convert

    model = convert(upstream)
    save(model, directory)
    config = model.config
    size = sum(value.numel() for value in model.parameters())
    print(
        f"{directory}: {config.arch}, heads {config.heads}, dim {config.dim}, depth {config.depth}, "
        f"context {config.context}, vocabulary {config.vocab}, {size:,} parameters"
    )


def main() -> None:
    """Run a command and leave with its exit status; `toeplix.exits` says what the statuses mean."""
    arguments = sys.argv[1:] or ["--help"]
    exits.run(lambda: app(arguments, standalone_mode=False))
