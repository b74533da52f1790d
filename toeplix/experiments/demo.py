"""`toeplix demo`: everything once, on this machine alone, in about four minutes on two cores.

A small Toeplitz model and a Transformer (Llama) of equal compute learn the documentation inside Python,
from the same tokens, batches and schedule, each at its own learning rate. Left behind:

    data/                    the token store
    toeplitz/, llama/        the runs: metrics, model, report
    loss.svg, symbols.svg    loss curves, and each layer's filter as a curve around the origin
    sample.txt               text that the Toeplitz model wrote
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from toeplix.architectures import forward_flops
from toeplix.checkpoint import load
from toeplix.config import Model
from toeplix.data import Recipe, Store, Tokenizer, build
from toeplix.files import MARK, check_output, write_output
from toeplix.inference.generation import Sampling, generate
from toeplix.mixers.filter import Filter
from toeplix.spectral import symbol
from toeplix.training.logs import read
from toeplix.training.loop import fit
from toeplix.training.run import Run

SAMPLE, LOSSES, SYMBOLS = "sample.txt", "loss.svg", "symbols.svg"
VOCAB, VAL_FRACTION = 2000, 0.05
MODEL = Model(vocab=VOCAB, context=128, dim=128, depth=4)
RATES = {"toeplitz": 8e-3, "llama": 4e-3}  # the best of a small grid for each
PROMPTS = ("Return the ", "class ", "If the argument ")
SAMPLING = Sampling(temperature=0.7, top_p=0.9)
Say = Callable[[str], None]
Bar = Callable[[Run], Any]  # a context that gives the report of `fit`


def demo(
    folder: Path, *, steps: int, say: Say, bar: Bar, overwrite: bool = False
) -> dict[str, Any]:
    """Run it, or go on with it; the numbers it ends with."""
    from matplotlib.figure import Figure  # noqa: F401 - which draws in the end: if missing, say so now

    began = time.monotonic()
    outputs = [folder / name for name in (SAMPLE, LOSSES, SYMBOLS)]
    check_output(*outputs, overwrite=overwrite)
    say("1/4  tokens: the documentation inside Python, a tokenizer of 2000")
    recipe = Recipe(sources=("python",), vocab=VOCAB, val_fraction=VAL_FRACTION)
    store = build(recipe, folder / "data", processes=1)
    results = {}
    for number, run in enumerate(runs(store, steps), 2):
        arch = run.model.arch
        say(f"{number}/4  {arch}: {run.steps} steps of {run.batch} x {run.model.context} tokens")
        with bar(run) as report:
            fit(run, folder / arch, say=say, report=report)
        results[arch] = _result(run, folder / arch)
    say("4/4  writing and drawing")
    sample = write(folder, store.tokenizer, overwrite=overwrite)
    draw(folder, overwrite=overwrite)
    return {"results": results, "sample": sample, "seconds": time.monotonic() - began}


def runs(store: Store, steps: int) -> list[Run]:
    """Ours, and a Transformer for as many steps as the same number of operations allows."""
    vocab = store.vocab
    ours = Run(
        model=replace(MODEL, vocab=vocab),
        data=str(store.directory),
        steps=steps,
        batch=16,
        lr=RATES["toeplitz"],
        warmup=min(40, steps),
        eval_every=max(1, steps // 6),
        eval_sequences=64,
        save_every=max(1, steps // 2),
        sample_every=0,
        trackers="",
    )
    other = replace(ours.model, arch="llama")
    share = forward_flops(ours.model, MODEL.context) / forward_flops(other, MODEL.context)
    fewer = max(1, round(steps * share))
    theirs = replace(
        ours,
        model=other,
        steps=fewer,
        lr=RATES["llama"],
        warmup=min(40, fewer),
        eval_every=max(1, fewer // 6),
        save_every=max(1, fewer // 2),
    )
    return [ours, theirs]


def _result(run: Run, folder: Path) -> dict[str, Any]:
    rows = read(folder)
    held = [row for row in rows if "val_loss" in row][-1]
    flops = 3 * run.steps * run.batch * forward_flops(run.model, run.model.context)
    return {
        "steps": run.steps,
        "tokens": held["tokens"],
        "seconds": rows[-1]["seconds"],
        "petaflops": flops / 1e15,
        "val_loss": held["val_loss"],
        "val_bits_per_byte": held["val_bits_per_byte"],
    }


def write(folder: Path, tokenizer: Tokenizer, *, overwrite: bool = False) -> str:
    """Text after some prompts, into sample.txt."""
    model = load(folder / "toeplitz" / "model")
    prompts = [[tokenizer.start, *tokenizer.encode(text)] for text in PROMPTS]
    rows = generate(model, prompts, new=120, sampling=SAMPLING, seed=7, stop_tokens=[tokenizer.end])
    texts = [prompt + tokenizer.decode(row) for prompt, row in zip(PROMPTS, rows, strict=True)]
    text = "\n\n".join(texts) + "\n"
    marked = f"{text}\n({MARK})\n"
    write_output(
        folder / SAMPLE,
        lambda aside: aside.write_text(marked, encoding="utf-8"),
        overwrite=overwrite,
    )
    return text


def draw(folder: Path, *, overwrite: bool = False) -> None:
    """loss.svg and symbols.svg."""
    from matplotlib.figure import Figure

    how: dict[str, Any] = {"format": "svg", "metadata": {"Description": MARK}}

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for arch, colour in (("toeplitz", "C0"), ("llama", "C1")):
        rows = read(folder / arch)
        trained = [(row["seconds"], row["loss"]) for row in rows if "loss" in row]
        held = [(row["seconds"], row["val_loss"]) for row in rows if "val_loss" in row]
        axes.plot(*zip(*trained, strict=True), color=colour, alpha=0.4, linewidth=1)
        axes.plot(*zip(*held, strict=True), "o-", color=colour, label=f"{arch}, validation")
    axes.set(xlabel="seconds", ylabel="nats per token")
    axes.legend()
    axes.grid(alpha=0.3)
    write_output(folder / LOSSES, partial(figure.savefig, **how), overwrite=overwrite)

    model = load(folder / "toeplitz" / "model")
    filters = [
        module.kernel.detach().flatten(0, 1)[-1]
        for module in model.modules()
        if isinstance(module, Filter)
    ]
    figure = Figure(figsize=(3 * len(filters), 3.2), layout="constrained")
    for number, (axes, kernel) in enumerate(
        zip(figure.subplots(1, len(filters), squeeze=False)[0], filters, strict=True)
    ):
        curve = symbol(kernel)
        axes.plot(curve.real, curve.imag, linewidth=0.8)
        axes.plot(0, 0, "k+")
        axes.set(title=f"layer {number}", aspect="equal")
    write_output(folder / SYMBOLS, partial(figure.savefig, **how), overwrite=overwrite)
