"""The command line: `toeplix COMMAND --help` explains each command.

Bad input ends in one line on standard error and exit status 2; TOEPLIX_DEBUG=1 shows where it came from.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toeplix.commands.data import data

app = typer.Typer(
    name="toeplix",
    help="Language models without attention: causal Toeplitz mixers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure speed and memory on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")


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


@bench.command()
def ops(
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="Measure where each path wins and write the rule that path='auto' follows "
            "to ~/.config/toeplix/paths.json (or $TOEPLIX_RULE).",
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes, about three minutes.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="All sizes, the largest too: long.")] = False,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="Time for each contender at each size.")
    ] = 0.3,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; default: what PyTorch takes.")
    ] = None,
) -> None:
    """The causal Toeplitz product beside the alternatives a user has, as ratios.

    Prints tables of time, memory and decoding speed, and as its last line all of it as JSON.
    """
    import torch

    from toeplix.bench import operator
    from toeplix.bench import tune as tuning

    if quick and full:
        raise typer.BadParameter("choose one of --quick and --full")
    if threads is not None:
        torch.set_num_threads(threads)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # a file has room
    if tune:
        if quick or full:
            raise typer.BadParameter("--tune has sizes of its own: leave --quick and --full out")
        file = tuning.tune(console, seconds=seconds)
        console.print(f"wrote {file}")
        return
    most = operator.QUICK if quick else 2**62 if full else operator.USUAL
    operator.print_document(operator.run(console, most=most, seconds=seconds))


@bench.command("data")
def bench_data(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Text to encode, named as in `toeplix data build`; default: python."),
    ] = None,
    megabytes: Annotated[float, typer.Option(min=0.1, help="How much of it.")] = 8.0,
    vocab: Annotated[int, typer.Option(min=260, help="Size of the tokenizer.")] = 8000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of every contender.")] = 5,
    processes: Annotated[int | None, typer.Option(min=1, help="Ours; default: one a core.")] = None,
) -> None:
    """Building a token store beside `datasets.map` with the same tokenizer, as ratios.

    Prints a table, and as its last line all of it as JSON.
    """
    from toeplix.bench import tokenizing

    tokenizing.run(Console(), sources or ["python"], int(megabytes * 1e6), vocab, rounds, processes)


# the class above all complaints about arguments, wherever this version of typer keeps it
Complaint: type[Exception] = typer.BadParameter.__mro__[2]


def main() -> None:
    """Run a command; errors in what the user gave become one line and exit status 2."""
    arguments = sys.argv[1:] or ["--help"]
    try:
        app(arguments, standalone_mode=False)
    except typer.Exit as leaving:
        sys.exit(leaving.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ModuleNotFoundError as problem:
        if os.environ.get("TOEPLIX_DEBUG"):
            raise
        print(f"toeplix: {problem}: pip install 'toeplix[train]'", file=sys.stderr)
        sys.exit(2)
    except (Complaint, ValueError, OSError) as problem:
        if os.environ.get("TOEPLIX_DEBUG"):
            raise
        text = problem.format_message() if isinstance(problem, Complaint) else str(problem)  # type: ignore[attr-defined]
        if line := " ".join(text.split()):  # empty when help was shown instead
            print(f"toeplix: {line}", file=sys.stderr)
        sys.exit(2)
