"""`toeplix probe`: how much of its input a hidden state of a model retains."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toeplix.cli.devices import DeviceOption, chosen
from toeplix.records import MAX_SEED

if TYPE_CHECKING:
    from toeplix.experiments.engine.text_probe import ProbeLine

SHOWN_ENCODERS = {  # the encoders of text_probe.ENCODERS, as they are shown
    "as it is": "this model",
    "untrained": "untrained model",
    "nothing": "control without a hidden state",
}
LEGEND = (
    "loss: of a decoder that reads one hidden state and reconstructs the text. bits kept per token: the "
    "loss of the control minus this loss, in bits. share: the same as a fraction of the control's loss. "
    "accuracy: the fraction of tokens that are reconstructed. The untrained model has the same shape."
)


def probe(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A toeplix model or run, or a causal model of Hugging Face, by directory or name."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(help="Text, as for `toeplix data build`, or a store of the model's tokens."),
    ] = "python",
    context: Annotated[int, typer.Option(min=2, help="Tokens of a text.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the decoder.")] = 500,
    batch: Annotated[int, typer.Option(min=2, help="Texts per step.")] = 32,
    lr: Annotated[float, typer.Option(help="Learning rate of the decoder.")] = 1e-2,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_SEED, help="Random seed of decoder, untrained model and texts."
        ),
    ] = 0,
    results: Annotated[Path, typer.Option(help="Directory of rows to compare with.")] = Path(
        "results"
    ),
    work: Annotated[Path, typer.Option(help="Directory for the tokenized text.")] = Path(
        "runs/experiments"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: DeviceOption = "auto",
    dtype: Annotated[
        str,
        typer.Option(
            help="Of the frozen model: float32, bfloat16, float16, float64; auto: float32, as that of "
            "the decoder, which is always float32."
        ),
    ] = "auto",
) -> None:
    """Measure how much of a text the hidden state of its last token retains.

    The model is frozen, and a decoder learns to reconstruct the text. Controls: an untrained model
    of the same shape, and a decoder without information. Results of the experiment `retention` are
    shown too.
    """
    import sys

    from toeplix.experiments import retention
    from toeplix.experiments.engine import text_probe

    how = text_probe.Probe(
        context=context, steps=steps, batch=batch, lr=lr, seed=seed, warmup=min(20, steps)
    )
    where = chosen(device, dtype)
    checkpoint = text_probe.folder_of(checkpoint)
    text_probe.opened(checkpoint)  # fails before text is prepared
    where.tell()
    # registers toeplix's models with transformers, which takes the tokenizer beside one of them for that
    # of an unknown model otherwise, and warns
    import toeplix.hub  # noqa: F401

    store = text_probe.texts(checkpoint, data, work)

    def say(line: str) -> None:
        encoder = line.rpartition(": ")[2]
        print(f"training a decoder: {SHOWN_ENCODERS.get(encoder, encoder)}", file=sys.stderr)

    found = text_probe.probe(checkpoint, store, how, say, **where.options)
    ours = text_probe.beside(results)
    if as_json:
        print(json.dumps({"model": found, "ours": ours}))
        return
    _table(f"{checkpoint}, texts of {context} tokens", found, LEGEND)
    if ours:
        sizes = retention.SIZES["laptop"]
        same = f"other tokens, texts of {sizes['context']}, {sizes['steps']} steps"
        _table(f"our models, experiment retention, laptop scale ({same})", ours)


def _table(title: str, lines: "list[ProbeLine]", legend: str | None = None) -> None:
    from rich.table import Table

    from toeplix.cli.tables import table_console

    table = Table(title=title, caption=legend, caption_justify="left")
    columns = ("encoder", "loss (nats)", "bits kept per token", "share", "accuracy")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for line in lines:
        numbers = (
            (line["loss"], ".3f"),
            (line.get("bits"), ".2f"),
            (line.get("share"), ".1%"),
            (line["accuracy"], ".1%"),
        )
        cells = ["-" if value is None else f"{value:{form}}" for value, form in numbers]
        table.add_row(SHOWN_ENCODERS.get(line["encoder"], line["encoder"]), *cells)
    table_console().print(table)
