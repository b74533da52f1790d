"""`toeplix data`: build, show and verify token stores."""

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from toeplix.cli.tables import table_console
from toeplix.files import printable

if TYPE_CHECKING:
    from toeplix.data import Progress, Sequences, Store
    from toeplix.data.building import Report

data = typer.Typer(
    help="Build, show and verify token stores, the training data.", no_args_is_help=True
)
MAX_SHOWN_CHARACTERS = 300  # characters of a row


@data.command()
def build(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Where text comes from: 'python' (the documentation inside Python, no download), files "
            "and patterns (.txt, .md, .jsonl, .parquet; .gz, .xz, .zst), directories, or "
            "hf:NAME:CONFIG:SPLIT, for example hf:HuggingFaceFW/fineweb-edu:sample-10BT."
        ),
    ],
    out: Annotated[str, typer.Option(metavar="DIR", help="Directory of the store.")],
    vocab: Annotated[
        int, typer.Option(help="Vocabulary size of the tokenizer that is trained.")
    ] = 8000,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Use this Hugging Face tokenizer instead, by name or directory."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Encoding processes; default: one per core.")
    ] = None,
    val_fraction: Annotated[
        float,
        typer.Option(help="Fraction of documents for validation, selected by a hash of the text."),
    ] = 0.01,
    field: Annotated[str, typer.Option(help="Field or column with the text.")] = "text",
    limit: Annotated[int | None, typer.Option(help="Read only so many documents.")] = None,
) -> None:
    """Build a token store.

    May be interrupted or killed: the same command resumes, and the result is the same to the last
    bit.

    Text files are one document each, or several parted by a form feed or by two blank lines.
    """
    from toeplix.data import Recipe
    from toeplix.data import build as build_store

    recipe = Recipe(
        sources=tuple(sources),
        vocab=vocab,
        tokenizer=tokenizer,
        val_fraction=val_fraction,
        field=field,
        limit=limit,
    )
    try:
        with _bar() as report:
            store = build_store(recipe, _named(out), processes=processes, report=report)
    except KeyboardInterrupt:
        print("toeplix: stopped; run the same command again to go on", file=sys.stderr)
        raise typer.Abort from None
    if store.notice:
        print(f"toeplix: {store.notice}", file=sys.stderr)
    table_console().print(_counts(store))


@data.command()
def show(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A token store.")],
    context: Annotated[int, typer.Option(min=1, max=2**24, help="Tokens per sequence.")] = 128,
    rows: Annotated[int, typer.Option(min=0, help="Sequences to show, padded and packed.")] = 2,
) -> None:
    """Show counts, bytes per token, and some sequences as a model reads them, padded and packed."""
    from toeplix.data import Packed, Padded, Store

    store = Store.open(_named(directory))
    console = table_console()
    console.print(_counts(store))
    kinds: list[tuple[str, type[Sequences]]] = [
        ("rows, a document each, padded on the right", Padded),
        ("rows, packed: | stands between documents", Packed),
    ]
    for title, kind in kinds if rows else []:
        console.print(f"[bold]{title}[/bold] (context {context})")
        sequences = kind(store.train, context=context)
        for index in range(min(rows, len(sequences))):
            text, note = _readable(store, sequences, index)
            if len(text) > MAX_SHOWN_CHARACTERS:
                text = f"{text[:MAX_SHOWN_CHARACTERS]}..."
            console.print(f"  {text}{note}", markup=False)


@data.command()
def check(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A token store.")],
) -> None:
    """Read every file of a store and compare its sha256 with the manifest.

    `toeplix train` does this too, once, unless `--no-verify` is given.
    """
    from toeplix.data import Store

    store = Store.open(_named(directory))
    store.check()
    print(f"{printable(directory)}: {len(store.manifest['files'])} files agree with the manifest")


def _named(directory: str) -> Path:
    """Reject an empty name, such as that of an unset variable, which would be the current directory."""
    if not directory:
        raise ValueError("the directory of the store has no name: give one, '.' for this one")
    return Path(directory)


@contextmanager
def _bar() -> Iterator["Report"]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting")
        began: list[tuple[float, Progress]] = []

        def report(progress: "Progress") -> None:
            if progress.stage == "tokenizer":
                text = "preparing the tokenizer"
            elif progress.stage == "sha256":
                text = "computing sha256"
            else:
                began.append((bar.get_time(), progress))
                del began[1:-1]  # the first, to count from: a resumed build starts above 0
                (start, first), (now, _) = began[0], began[-1]
                seconds = max(now - start, 1e-3)
                text = (
                    f"part {progress.part} of {progress.parts}, {progress.documents:,} documents, "
                    f"{progress.tokens:,} tokens, {(progress.tokens - first.tokens) / seconds:,.0f} "
                    f"tokens/s, {(progress.bytes - first.bytes) / seconds / 1e6:.1f} MB/s"
                )
            bar.update(task, description=text)

        yield report


def _counts(store: "Store") -> Table:
    manifest = store.manifest
    known = f"vocabulary {store.vocab}, tokenizer {manifest['tokenizer']['digest'][:12]}"
    table = Table(title=Text(f"{printable(store.directory)}\n{known}"))
    table.add_column("split")
    for column in ("documents", "tokens", "bytes", "bytes per token"):
        table.add_column(column, justify="right")
    for name, counts in manifest["splits"].items():
        share = counts["bytes"] / counts["tokens"] if counts["tokens"] else 0
        numbers = (f"{counts[key]:,}" for key in ("documents", "tokens", "bytes"))
        table.add_row(name, *numbers, f"{share:.2f}")
    return table


def _readable(store: "Store", sequences: "Sequences", index: int) -> tuple[str, str]:
    row = sequences[index]
    tokens = row["tokens"]
    if "mask" in row:
        length = int(row["mask"].sum())
        text = store.tokenizer.decode(tokens[:length].tolist(), control=True)
        return " ".join(text.split()), f" ({len(tokens) - length} pads)"
    ends = row["offsets"].tolist()
    pieces = [tokens[a:b].tolist() for a, b in itertools.pairwise(ends)]
    texts = [store.tokenizer.decode(piece, control=True) for piece in pieces]
    return " | ".join(" ".join(text.split()) for text in texts), ""
