"""Time of building a token store, compared with `datasets.map` as in tutorials, with the same tokenizer.

Our time is that of the whole build: reading JSON lines, splitting, encoding, writing, sha256. The time of
`datasets.map` starts from a loaded data set and includes writing its arrow file. Timings are interleaved.
"""

import itertools
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from toeplix.data import Recipe, Tokenizer, build, resolve
from toeplix.profiling import timing
from toeplix.profiling.progress import announce


def run(
    console: Console,
    sources: list[str],
    size: int,
    vocab: int,
    rounds: int,
    processes: int | None,
) -> dict[str, Any]:
    """Measure, print a table, and return the results as a JSON document."""
    with tempfile.TemporaryDirectory() as scratch:
        report = measure(Path(scratch), sources, size, vocab, rounds, processes)
    console.print(table(report))
    return report


def measure(
    folder: Path, sources: list[str], size: int, vocab: int, rounds: int, processes: int | None
) -> dict[str, Any]:
    texts = list(_some(sources, size))
    total = sum(len(text.encode()) for text in texts)
    Tokenizer.train(texts, vocab).save(folder / "tokenizer")
    with open(folder / "texts.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    contenders = {
        "toeplix": _ours(folder, processes),
        "toeplix, 1 process": _ours(folder, 1),
        **_theirs(folder, texts),
    }
    announce(f"tokenizing {total / 1e6:.1f} MB, {len(contenders)} contenders, {rounds + 1} rounds")
    times = timing.interleaved(contenders, seconds=0, least=rounds, most=rounds)
    return {
        "sources": sources,
        "megabytes": round(total / 1e6, 2),
        "documents": len(texts),
        "vocab": vocab,
        "rounds": rounds,
        "megabytes_per_second": {
            name: round(total / 1e6 / statistics.median(taken), 2) for name, taken in times.items()
        },
        "ratios": {
            name: round(timing.median_ratio(taken, times["toeplix"]), 2)
            for name, taken in times.items()
        },
    }


def table(report: dict[str, Any]) -> Table:
    drawn = Table(
        title=f"tokenizing {report['megabytes']} MB, {report['documents']} documents, "
        f"vocabulary {report['vocab']}"
    )
    for column in ("who", "MB/s", "time over ours"):
        drawn.add_column(column, justify="left" if column == "who" else "right")
    for name, speed in report["megabytes_per_second"].items():
        drawn.add_row(name, f"{speed:.2f}", f"{report['ratios'][name]:.1f}x")
    return drawn


def _some(sources: list[str], size: int) -> Iterator[str]:
    """Return documents until they have `size` bytes."""
    for text in itertools.chain.from_iterable(part.documents() for part in resolve(sources)):
        yield text
        size -= len(text.encode())
        if size <= 0:
            return


def _ours(folder: Path, processes: int | None) -> Callable[[], object]:
    recipe = Recipe(
        sources=(str(folder / "texts.jsonl"),),
        tokenizer=str(folder / "tokenizer"),
        val_fraction=0.01,
    )
    number = itertools.count()
    # a new directory every time: a finished store would only be opened
    return lambda: build(recipe, folder / f"store-{processes}-{next(number)}", processes=processes)


def _theirs(folder: Path, texts: list[str]) -> dict[str, Callable[[], object]]:
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    loaded = datasets.Dataset.from_dict({"text": texts})

    def encode(row: Mapping[str, Any]) -> Any:
        return tokenizer(row["text"])

    def mapped(**options: Any) -> Callable[[], object]:
        return lambda: loaded.map(
            encode, load_from_cache_file=False, remove_columns=["text"], **options
        )

    return {"datasets.map": mapped(), "datasets.map, batched": mapped(batched=True)}
