"""Building a token store: text to tokens by several processes, in order, and safe to stop at any moment.

The parent streams documents in batches; workers encode them; the parent appends what comes back, in
the order of the source. Every few seconds the files are brought to disk and then `progress.json`
says how far they are good. Whatever ends a build, the next run cuts the files there and goes on, and
the store comes out bit for bit as if nothing had happened, with any number of processes.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import multiprocessing.context
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toeplix.data import tokenizer as tokenizers
from toeplix.data.encoding import (
    SPLITS,
    Encoded,
    Encoder,
    encode_batch,
    encode_documents,
    is_held_out,
    start_worker,
)
from toeplix.data.growing import Growing, explained, locked
from toeplix.data.order import shuffled
from toeplix.data.sources import Part, resolve
from toeplix.data.store import ENDINGS, MANIFEST, PROGRESS, TOKENIZER, Store, describe
from toeplix.data.tokenizer import Tokenizer
from toeplix.files import replace_file
from toeplix.stopping import put_off

BATCH = 2**20  # characters that go to a worker at once
ALONE = 2**25  # characters up to which starting processes costs more than it saves
SAMPLE = 2**25  # bytes of text from which a tokenizer is learned


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a store is made of."""

    sources: tuple[str, ...]  # as in sources.py
    vocab: int = 8000  # of the tokenizer that is trained
    tokenizer: str | None = None  # a name or directory, instead of training one
    held_out: float = 0.01  # share of documents
    field: str = "text"
    limit: int | None = None  # documents that are read

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out={self.held_out} must be in [0, 1)")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit={self.limit} must be at least 1")
        if self.tokenizer is None:
            tokenizers.check_vocab(self.vocab)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a build is; `build` reports it after every batch."""

    stage: str  # "tokenizer", "tokens" or "sha256"
    part: int = 0  # of `parts`, the one being read
    parts: int = 0
    documents: int = 0
    tokens: int = 0
    bytes: int = 0


Report = Callable[[Progress], None]


def build(
    recipe: Recipe,
    directory: str | Path,
    *,
    processes: int | None = None,
    report: Report = lambda progress: None,
    every: float = 5.0,
) -> Store:
    """Make the store, or go on with it, or open it if it is done.

    `processes` encode (default: one a core; 1 starts none), and what is done is safe on disk `every`
    few seconds. Scripts that call this need the usual `if __name__ == "__main__":`.
    """
    folder = Path(directory)
    if processes is not None and processes < 1:
        raise ValueError(f"processes={processes} must be at least 1")
    parts = resolve(recipe.sources, recipe.field)
    listed = [[part.name, part.size] for part in parts]
    described = dataclasses.asdict(recipe) | {"sources": list(recipe.sources)}
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), explained(folder):
        if (folder / MANIFEST).exists():
            store = Store.open(folder)
            _compare(folder, described, store.manifest["recipe"])
            _unchanged(folder, store.manifest["parts"], listed)
            (folder / PROGRESS).unlink(missing_ok=True)
            return store
        begun = _begin(folder, recipe, described, parts, report) | {"parts": listed}
        with Growing(folder, begun) as files:
            _fill(files, recipe, parts, processes or os.cpu_count() or 1, report, every)
        done = files.progress
        if not done["splits"]["train"]["documents"]:
            raise ValueError(
                f"{', '.join(recipe.sources)}: no document to train on among {done['read']} read"
            )
        report(Progress(stage="sha256"))
        text = json.dumps(describe(folder, described, done), indent=2) + "\n"
        replace_file(folder / MANIFEST, lambda aside: aside.write_text(text, encoding="utf-8"))
        (folder / PROGRESS).unlink()
        return Store.open(folder)


def _begin(
    folder: Path, recipe: Recipe, described: dict[str, Any], parts: list[Part], report: Report
) -> dict[str, Any]:
    """Where an earlier run stopped, or the start, for which the tokenizer is made."""
    if (folder / PROGRESS).exists():
        progress = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        _compare(folder, described, progress["recipe"])
        used = progress["part"]
        _unchanged(
            folder, progress["parts"][:used], [[part.name, part.size] for part in parts[:used]]
        )
        return progress
    own = {TOKENIZER, *(f"{split}.{ending}" for split in SPLITS for ending in ENDINGS)}
    for each in sorted(folder.iterdir()):
        if each.name not in own and not each.name.startswith("."):
            raise ValueError(f"{folder} holds other things ({each.name}): choose a new directory")
    shutil.rmtree(folder / TOKENIZER, ignore_errors=True)  # perhaps half-written
    report(Progress(stage="tokenizer"))
    if recipe.tokenizer is None:
        Tokenizer.train(_sample(recipe, parts), recipe.vocab).save(folder / TOKENIZER)
    else:
        tokenizers.fetch(recipe.tokenizer, folder / TOKENIZER)
    nothing = {split: {"documents": 0, "tokens": 0, "bytes": 0} for split in SPLITS}
    return {"recipe": described, "part": 0, "inside": 0, "read": 0, "splits": nothing}


def _sample(recipe: Recipe, parts: list[Part]) -> Iterator[str]:
    """Text to learn a tokenizer from: the beginnings of all parts, nothing that is held out."""
    texts: Iterator[str]
    if recipe.limit is None:
        share = SAMPLE // len(parts)
        chosen = [parts[index] for index in shuffled(len(parts))]
        texts = itertools.chain.from_iterable(_beginning(part, share) for part in chosen)
    else:
        inside = itertools.chain.from_iterable(part.documents() for part in parts)
        texts = itertools.islice(inside, recipe.limit)
    size = 0
    for text in texts:
        raw = text.encode()
        if text and not text.isspace() and not is_held_out(raw, recipe.held_out):
            yield text
            size += len(raw)
            if size > SAMPLE:
                return
    if not size:
        raise ValueError(f"{', '.join(recipe.sources)}: no text to learn a tokenizer from")


def _beginning(part: Part, share: int) -> Iterator[str]:
    size = 0
    for text in part.documents():
        yield text
        size += len(text)
        if size > share:
            return


def _unchanged(folder: Path, used: list[Any], present: list[Any]) -> None:
    for old, new in itertools.zip_longest(used, present):
        if old != new:
            raise ValueError(
                f"{(old or new)[0]} has changed since {folder} was begun: choose another directory, or "
                "delete this one"
            )


def _compare(folder: Path, wanted: dict[str, Any], present: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if present.get(name) != value:
            raise ValueError(
                f"{folder} was begun with {name}={present.get(name)!r}, not {value!r}: "
                "choose another directory, or delete this one"
            )


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Documents on their way, and the place in the source right after them."""

    texts: list[str]
    part: int
    inside: int  # documents of the part that are done
    read: int  # documents in all

    @property
    def place(self) -> dict[str, int]:
        return {"part": self.part, "inside": self.inside, "read": self.read}


def _batches(parts: list[Part], progress: dict[str, Any], limit: int | None) -> Iterator[_Batch]:
    read = progress["read"]
    for number in range(progress["part"], len(parts)):
        inside = progress["inside"] if number == progress["part"] else 0
        texts: list[str] = []
        size = 0
        left = None if limit is None else max(0, limit - read)
        for text in itertools.islice(parts[number].documents(inside), left):
            texts.append(text)
            size += len(text)
            if size >= BATCH:
                inside, read = inside + len(texts), read + len(texts)
                yield _Batch(texts=texts, part=number, inside=inside, read=read)
                texts, size = [], 0
        read += len(texts)
        yield _Batch(texts=texts, part=number + 1, inside=0, read=read)


def _fill(
    files: Growing,
    recipe: Recipe,
    parts: list[Part],
    processes: int,
    report: Report,
    every: float,
) -> None:
    last = time.monotonic()
    batches = _batches(parts, files.progress, recipe.limit)
    with contextlib.closing(
        _encoded(batches, files.folder / TOKENIZER, recipe.held_out, processes)
    ) as results:
        for batch, encoded in results:
            files.append(batch.place, encoded)
            splits = files.progress["splits"].values()
            report(
                Progress(
                    stage="tokens",
                    part=min(batch.part + 1, len(parts)),
                    parts=len(parts),
                    documents=batch.read,
                    tokens=sum(each["tokens"] for each in splits),
                    bytes=sum(each["bytes"] for each in splits),
                )
            )
            if time.monotonic() - last >= every:
                files.commit()
                last = time.monotonic()


def _context() -> multiprocessing.context.BaseContext:
    """Processes that inherit no threads, and are deaf to Ctrl-C from birth."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([start_worker.__module__])
    if threading.current_thread() is not threading.main_thread():
        return context  # signals are the main thread's
    listening = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()  # what is ignored here stays so in it and its children
    finally:
        signal.signal(signal.SIGINT, listening)
    return context


def _encoded(
    batches: Iterator[_Batch], tokenizer: Path, held_out: float, processes: int
) -> Generator[tuple[_Batch, dict[str, Encoded]], None, None]:
    """Batches with their tokens, in order: the first here, the rest by a pool when there is much."""
    encode = Encoder(Tokenizer.load(tokenizer))
    seen = 0
    for batch in batches:
        yield batch, encode_batch(encode, held_out, batch.texts)
        seen += sum(map(len, batch.texts))
        if processes > 1 and seen >= ALONE:
            break
    else:
        return
    del encode
    context = _context()
    pool = ProcessPoolExecutor(processes, context, start_worker, (tokenizer, held_out))
    waiting: collections.deque[tuple[_Batch, Future[dict[str, Encoded]]]] = collections.deque()
    try:
        for batch in batches:
            with put_off():  # a pool that was left while it starts a process never ends
                waiting.append((batch, pool.submit(encode_documents, batch.texts)))
            if len(waiting) > 2 * processes:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    except BrokenProcessPool as problem:
        raise OSError(
            "a process that encodes was ended from outside, perhaps for want of memory: run the same "
            "command again to go on, with fewer --processes"
        ) from problem
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
