"""`toeplix bench ops`, `recurrent`, `spectrum` and `data`: operators, indices and token stores."""

from typing import Annotated

import typer

from toeplix.cli.bench_options import (
    MAX_AMOUNT,
    BenchDtype,
    Out,
    Overwrite,
    Threads,
    bench_console,
    check_out,
    report,
)
from toeplix.cli.devices import DeviceOption, chosen, defaults


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
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Compare the causal Toeplitz product with its alternatives, as ratios.

    Prints tables of time, memory and decoding speed, and as its last line all of it as JSON.
    """
    if quick and full:
        raise typer.BadParameter("choose one of --quick and --full")
    from toeplix.profiling.bench import operator
    from toeplix.profiling.bench import tune as tuning

    console = bench_console(threads)
    check_out(out, overwrite)
    if tune:
        if quick or full:
            raise typer.BadParameter("--tune has sizes of its own: leave --quick and --full out")
        if dtype != "auto":
            raise typer.BadParameter("--tune measures float32, in which all paths compute")
        file = tuning.tune(console, device=chosen(device).device, seconds=seconds)
        console.print(f"wrote {file}")
        return
    most = operator.QUICK_ELEMENTS if quick else 2**62 if full else operator.DEFAULT_ELEMENTS
    with defaults(device, dtype):
        found = operator.run(console, most=most, seconds=seconds)
    report(found, out, overwrite)


def recurrent(
    seconds: Annotated[
        float,
        typer.Option(min=0.01, max=MAX_AMOUNT, help="Time for each contender at each size."),
    ] = 1.0,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Compare products with recurrent filters with the FFT path: time, growth and peak memory."""
    from toeplix.profiling.bench import recurrent as products

    console = bench_console(threads)
    check_out(out, overwrite)
    with defaults(device, dtype):
        found = products.run(console, seconds=seconds)
    report(found, out, overwrite)


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

    check_out(out, overwrite)
    names, size = sources or ["python"], int(megabytes * 1e6)
    report(building.run(bench_console(None), names, size, vocab, rounds, processes), out, overwrite)


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

    check_out(out, overwrite)
    report(filters.run(bench_console(threads), seconds), out, overwrite)
