"""`toeplix generate`: text from a trained model, as it is written."""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from toeplix.cli.devices import DeviceOption, DtypeOption, chosen


def generate(
    directory: Annotated[
        Path, typer.Argument(help="The directory of a run, or of a model with its tokenizer.")
    ],
    prompt: Annotated[
        str | None, typer.Argument(help="What the text begins with; '-' reads standard input.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of new tokens.")] = 200,
    temperature: Annotated[float, typer.Option(help="0: always the most likely token.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Keep the k most likely tokens; 0: all.")] = 0,
    top_p: Annotated[
        float,
        typer.Option(help="Keep the most likely tokens that together reach this probability."),
    ] = 0.95,
    min_p: Annotated[
        float, typer.Option(help="Keep tokens at least this likely, relative to the most likely.")
    ] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: less repetition.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="End at this text; may be repeated.")] = (
        None
    ),
    seed: Annotated[int, typer.Option(help="The same seed, the same text.")] = 0,
    quantize: Annotated[
        str | None,
        typer.Option(help="Weights in int8 or bfloat16: less memory, faster decode steps in int8."),
    ] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
) -> None:
    """Continue a prompt, token by token."""
    from toeplix.inference.detokenization import Detokenizer
    from toeplix.inference.generation import stream
    from toeplix.inference.loading import load_pretrained
    from toeplix.inference.sampling import Sampling
    from toeplix.training.allocator import keep_freed_memory

    keep_freed_memory()
    sampling = Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    text = _standard_input() if prompt == "-" else _valid(prompt or "", "the prompt")
    stops = [_stop(each) for each in stop or ()]
    where = chosen(device, dtype)
    model, tokenizer, _ = load_pretrained(
        directory, **where.options, decoding_layout=True, finite=True, quantize=quantize
    )
    tokens = stream(
        model,
        [[tokenizer.start, *tokenizer.encode(text)]],
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        seed=seed,
        stop_tokens=[tokenizer.end],
        stop_strings=stops,
        decode=tokenizer.decode,
    )
    _write(text)
    detokenizer = Detokenizer(tokenizer.decode)
    for _, token in tokens:
        _write(detokenizer.add(token))
    _write(detokenizer.end() + "\n")
    where.tell()  # last, so that an error is one line


def _write(text: str) -> None:
    """Write to standard output at once; an error names it, as there is no file to name."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise OSError(f"standard output: {problem.strerror}") from problem


def _valid(text: str, what: str) -> str:
    """An argument as text: bytes that are not UTF-8 reach Python as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(
            f"{what} is not UTF-8 at character {problem.start} ({text[problem.start]!r} after "
            f"{text[: problem.start][-20:]!r}): convert it, for instance with iconv"
        ) from problem
    return text


def _stop(text: str) -> str:
    if not text:
        raise ValueError("--stop is empty: give the text to end at, or leave it out")
    return _valid(text, "--stop")


def _standard_input() -> str:
    """Return the text of standard input, without a byte order mark at its start."""
    if sys.stdin is None:
        raise ValueError("the prompt is to come from standard input ('-'), which is closed")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    try:
        return _valid(sys.stdin.read(), "standard input").removeprefix("\ufeff")
    except UnicodeDecodeError as problem:
        raise ValueError(
            f"standard input is not UTF-8: byte {problem.object[problem.start]:#04x} at position "
            f"{problem.start}; convert it, for instance with iconv"
        ) from problem
