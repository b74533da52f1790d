"""`toeplix bench ...`: throughput, latency and memory on this machine, as ratios to alternatives."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from toeplix.files import MARK, check_output, write_output

bench = typer.Typer(help="Measure speed and memory on this machine.", no_args_is_help=True)
MAX_AMOUNT = 1e6  # seconds or megabytes


Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; default: PyTorch's.")]
Out = Annotated[Path | None, typer.Option(help="Also write the JSON document to this file.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace --out even if toeplix did not write it.")
]


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
    full: Annotated[bool, typer.Option("--full", help="All sizes; takes long.")] = False,
    seconds: Annotated[
        float,
        typer.Option(min=0.01, max=MAX_AMOUNT, help="Time for each contender at each size."),
    ] = 0.3,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare the causal Toeplitz product with its alternatives, as ratios.

    Prints tables of time, memory and decoding speed, and as its last line all of it as JSON.
    """
    if quick and full:
        raise typer.BadParameter("choose one of --quick and --full")
    from toeplix.profiling.bench import operator
    from toeplix.profiling.bench import tune as tuning

    console = _console(threads)
    _check(out, overwrite)
    if tune:
        if quick or full:
            raise typer.BadParameter("--tune has sizes of its own: leave --quick and --full out")
        file = tuning.tune(console, seconds=seconds)
        console.print(f"wrote {file}")
        return
    most = operator.QUICK_ELEMENTS if quick else 2**62 if full else operator.DEFAULT_ELEMENTS
    _report(operator.run(console, most=most, seconds=seconds), out, overwrite)


@bench.command()
def prefill(
    tokens: Annotated[
        list[int] | None,
        typer.Argument(help="Prompt lengths; default: 4096 16384. 65536 takes long."),
    ] = None,
    dim: Annotated[int, typer.Option(min=4, help="Width of both models.")] = 512,
    depth: Annotated[int, typer.Option(min=1, help="Layers of both models.")] = 16,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare prefill at batch size 1 with Hugging Face's Llama of the same width: time and memory."""
    from toeplix.profiling.bench import inference

    console = _console(threads)
    _check(out, overwrite)
    times = tokens or [4096, 16384]
    _report(inference.prefill_rows(console, times=times, dim=dim, depth=depth), out, overwrite)


@bench.command()
def decode(
    contexts: Annotated[
        list[int] | None, typer.Argument(help="Context lengths; default: 2048 8192 32768.")
    ] = None,
    dim: Annotated[int, typer.Option(min=4, help="Width of all models.")] = 512,
    depth: Annotated[int, typer.Option(min=1, help="Layers of all models.")] = 16,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare decoding at batch size 1: near-linear, with a history, by concatenation, and Llama."""
    from toeplix.profiling.bench import inference

    console = _console(threads)
    _check(out, overwrite)
    pasts = contexts or [2048, 8192, 32768]
    _report(inference.decoding_rows(console, contexts=pasts, dim=dim, depth=depth), out, overwrite)


@bench.command()
def training(
    dim: Annotated[int, typer.Option(min=8, help="Width of all models.")] = 512,
    depth: Annotated[int, typer.Option(min=1, help="Layers of all models.")] = 16,
    batch: Annotated[int, typer.Option(min=1, help="Sequences per step.")] = 8,
    context: Annotated[int, typer.Option(min=2, help="Tokens per sequence.")] = 512,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=MAX_AMOUNT, help="Time for each model.")
    ] = 10.0,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare training steps of the paper's models, the Transformer, Mamba 2 and Hyena."""
    from toeplix.profiling.bench import training as steps

    console = _console(threads)
    _check(out, overwrite)
    sizes = {"dim": dim, "depth": depth, "batch": batch, "context": context}
    _report(steps.run(console, **sizes, seconds=seconds), out, overwrite)


@bench.command("data")
def tokenizing(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Text to encode, named as in `toeplix data build`; default: python."),
    ] = None,
    megabytes: Annotated[
        float, typer.Option(min=0.1, max=MAX_AMOUNT, help="Megabytes of text.")
    ] = 8.0,
    vocab: Annotated[int, typer.Option(min=260, max=2**24, help="Vocabulary size.")] = 8000,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions.")] = 5,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes of toeplix; default: one per core.")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare building a token store with `datasets.map` and the same tokenizer, as ratios."""
    from toeplix.profiling.bench import tokenizing as building

    _check(out, overwrite)
    names, size = sources or ["python"], int(megabytes * 1e6)
    _report(building.run(_console(None), names, size, vocab, rounds, processes), out, overwrite)


@bench.command()
def spectrum(
    seconds: Annotated[
        float, typer.Option(min=0.01, max=MAX_AMOUNT, help="Time for each contender.")
    ] = 1.0,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare certified indices of filters with companion roots and uniform sampling."""
    from toeplix.profiling.bench import spectrum as filters

    _check(out, overwrite)
    _report(filters.run(_console(threads), seconds), out, overwrite)


@bench.command("eval")
def evaluating(
    data_root: Annotated[
        Path | None,
        typer.Option(
            help="Directory of ARC-Easy-Test.jsonl; default: random words of the same lengths."
        ),
    ] = None,
    questions: Annotated[int, typer.Option(min=1, help="Number of questions.")] = 2376,
    dim: Annotated[int, typer.Option(min=4, help="Width of the model.")] = 128,
    depth: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 4,
    vocab: Annotated[int, typer.Option(min=260, max=2**24, help="Vocabulary size.")] = 8000,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions.")] = 5,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare the evaluation of ARC-Easy with the forward passes of its requests, as ratios."""
    from toeplix.profiling.bench import evaluation as scoring

    _check(out, overwrite)
    sizes = {"dim": dim, "depth": depth, "vocab": vocab, "context": 512}
    _report(scoring.run(_console(threads), data_root, questions, sizes, rounds), out, overwrite)


@bench.command()
def serve(
    clients: Annotated[
        list[int] | None, typer.Argument(help="Concurrent clients; default: 1 4 16.")
    ] = None,
    streams: Annotated[int, typer.Option(min=1, help="Concurrent streams of the load test.")] = 64,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=MAX_AMOUNT, help="Duration of the load test.")
    ] = 60.0,
    new: Annotated[int, typer.Option(min=2, help="New tokens of a completion.")] = 160,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions for each number of clients.")] = 3,
    dim: Annotated[int, typer.Option(min=8, help="Width of the model.")] = 512,
    depth: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 8,
    context: Annotated[int, typer.Option(min=2, help="Taps of the filters.")] = 512,
    vocab: Annotated[int, typer.Option(min=270, max=2**24, help="Vocabulary size.")] = 8000,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Measure `toeplix serve` under load, and check that every completion is correct."""
    from toeplix.config import Model
    from toeplix.profiling.bench import serving

    console = _console(threads)
    _check(out, overwrite)
    counts = clients or [1, 4, 16]
    model = Model(dim=dim, depth=depth, context=context, vocab=vocab)
    found = serving.run(
        console,
        model=model,
        clients=counts,
        streams=streams,
        seconds=seconds,
        new=new,
        rounds=rounds,
    )
    _report(found, out, overwrite)


def _console(threads: int | None) -> Console:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    console = Console()
    return console if console.is_terminal else Console(width=140)  # a file has room


def _check(out: Path | None, overwrite: bool) -> None:
    """Raise ValueError if a package is missing, before minutes of measuring instead of after them."""
    if out is not None:
        check_output(out, overwrite=overwrite)


def _report(document: dict[str, Any], out: Path | None, overwrite: bool) -> None:
    """Print the JSON document as the last line, and write it to --out."""
    document = {"origin": MARK, **document}
    if out is not None:
        text = json.dumps(document, indent=1) + "\n"
        write_output(out, lambda aside: aside.write_text(text), overwrite=overwrite)
    print(json.dumps(document))
