"""`toeplix bench prefill`, `decode`, `training`, ...: whole models beside alternatives."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from toeplix.config import Model

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the model, NAME=VALUE, as filter=free; repeatable."),
]


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
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Compare prefill at batch size 1 with Hugging Face's Llama of the same width: time and memory."""
    from toeplix.profiling.bench import inference

    console = bench_console(threads)
    check_out(out, overwrite)
    times = tokens or [4096, 16384]
    with defaults(device, dtype):
        found = inference.prefill_rows(console, times=times, dim=dim, depth=depth)
    report(found, out, overwrite)


def decode(
    contexts: Annotated[
        list[int] | None, typer.Argument(help="Context lengths; default: 2048 8192 32768.")
    ] = None,
    dim: Annotated[int, typer.Option(min=4, help="Width of all models.")] = 512,
    depth: Annotated[int, typer.Option(min=1, help="Layers of all models.")] = 16,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Compare decoding at batch size 1: near-linear, with a history, by concatenation, and Llama."""
    from toeplix.profiling.bench import inference

    console = bench_console(threads)
    check_out(out, overwrite)
    pasts = contexts or [2048, 8192, 32768]
    with defaults(device, dtype):
        found = inference.decoding_rows(console, contexts=pasts, dim=dim, depth=depth)
    report(found, out, overwrite)


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
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Compare training steps of the paper's models, the Transformer, Mamba 2 and Hyena."""
    from toeplix.profiling.bench import training as steps

    console = bench_console(threads)
    check_out(out, overwrite)
    sizes = {"dim": dim, "depth": depth, "batch": batch, "context": context}
    with defaults(device, dtype):
        found = steps.run(console, **sizes, seconds=seconds)
    report(found, out, overwrite)


def family(
    contexts: Annotated[
        list[int] | None,
        typer.Argument(min=1, help="Prompt lengths of decoding; default: 2048 262144."),
    ] = None,
    dim: Annotated[int, typer.Option(min=8, help="Width of all models.")] = 512,
    depth: Annotated[int, typer.Option(min=1, help="Layers of all models.")] = 16,
    batch: Annotated[int, typer.Option(min=1, help="Sequences per training step.")] = 16,
    context: Annotated[int, typer.Option(min=2, help="Tokens per sequence.")] = 512,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=MAX_AMOUNT, help="Time for each model.")
    ] = 10.0,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Compare recurrent filters and lookup blocks with free filters, Hyena, Llama and Mamba 2."""
    from toeplix.profiling.bench import family as models

    console = bench_console(threads)
    check_out(out, overwrite)
    sizes = {"dim": dim, "depth": depth, "batch": batch, "context": context}
    lengths = contexts or [2048, 262144]
    with defaults(device, dtype):
        found = models.run(console, **sizes, contexts=lengths, seconds=seconds)
    report(found, out, overwrite)


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
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Compare the evaluation of ARC-Easy with the forward passes of its requests, as ratios."""
    from toeplix.profiling.bench import evaluation as scoring

    check_out(out, overwrite)
    sizes = {"dim": dim, "depth": depth, "vocab": vocab, "context": 512}
    with defaults(device, dtype):
        found = scoring.run(bench_console(threads), data_root, questions, sizes, rounds)
    report(found, out, overwrite)


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
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Measure `toeplix serve` under load, and check that every completion is correct."""
    from toeplix.config import Model
    from toeplix.profiling.bench import serving

    console = bench_console(threads)
    check_out(out, overwrite)
    chosen(device, dtype)  # fails before the server is started
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
        options=["--device", device, "--dtype", dtype],
    )
    report(found, out, overwrite)


def quantized(
    batches: Annotated[list[int] | None, typer.Argument(help="Batch sizes; default: 1 4 16.")] = (
        None
    ),
    dim: Annotated[int, typer.Option(min=4, help="Width of the model.")] = 512,
    depth: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of eight decode steps.")] = 20,
    settings: Settings = None,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare decode steps with weights in int8 and bfloat16 with those in float32, as ratios."""
    from toeplix.profiling.bench import quantization

    check_out(out, overwrite)
    sizes = _lengths(batches or [1, 4, 16], "batch sizes")
    model = _model(settings, dim=dim, depth=depth)
    report(
        quantization.run(bench_console(threads), model=model, batches=sizes, rounds=rounds),
        out,
        overwrite,
    )


def long_prompts(
    tokens: Annotated[
        list[int] | None, typer.Argument(help="Prompt lengths; default: 65536 1048576.")
    ] = None,
    dim: Annotated[int, typer.Option(min=4, help="Width of both models.")] = 256,
    depth: Annotated[int, typer.Option(min=1, help="Layers of both models.")] = 4,
    context: Annotated[
        int, typer.Option(min=1, help="Taps of free filters, a sliding window beyond.")
    ] = 2048,
    chunk: Annotated[int, typer.Option(min=1, help="Tokens read at once.")] = 8192,
    llama: Annotated[
        list[int] | None, typer.Option(help="A length for Llama, repeatable; default: 4096 16384.")
    ] = None,
    settings: Settings = None,
    threads: Threads = None,
    out: Out = None,
    overwrite: Overwrite = False,
    device: DeviceOption = "auto",
    dtype: BenchDtype = "auto",
) -> None:
    """Read prompts of up to a million tokens in bounded memory: time per token, and peak memory."""
    from toeplix.profiling.bench import long_prompts as prompts

    check_out(out, overwrite)
    lengths = {
        "tokens": _lengths(tokens or [2**16, 2**20], "prompt lengths"),
        "llama": _lengths(llama or [4096, 16384], "prompt lengths"),
    }
    model = _model(settings, dim=dim, depth=depth, context=context)
    with defaults(device, dtype):
        found = prompts.run(bench_console(threads), model=model, **lengths, chunk=chunk)
    report(found, out, overwrite)


def _lengths(numbers: list[int], what: str) -> list[int]:
    for number in numbers:
        if not 1 <= number <= 2**30:
            raise typer.BadParameter(f"{what} must be in 1 .. {2**30}, not {number}")
    return numbers


def _model(settings: list[str] | None, **sizes: int) -> "Model":
    """Return the model of these sizes and of settings NAME=VALUE."""
    import dataclasses

    from toeplix.config import Model

    kinds: dict[str, Any] = {f.name: type(f.default) for f in dataclasses.fields(Model)}
    given: dict[str, Any] = dict(sizes)
    for text in settings or ():
        name, equals, value = text.partition("=")
        kind = kinds.get(name)
        if not equals or kind is None or kind is tuple:
            names = ", ".join(each for each in kinds if kinds[each] is not tuple)
            raise typer.BadParameter(
                f"--set {text!r:.60}: NAME=VALUE is needed, NAME one of {names}"
            )
        try:
            given[name] = {"true": True, "false": False}[value] if kind is bool else kind(value)
        except (KeyError, ValueError) as problem:
            raise typer.BadParameter(
                f"--set {text!r:.60}: {value!r:.40} is no {kind.__name__}"
            ) from problem
    return Model(**given)
