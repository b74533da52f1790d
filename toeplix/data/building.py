"""Building a token store: text to tokens by several processes, in order, and resumable at any point.

The parent process streams documents in batches; workers encode them; the parent appends the tokens in the
order of the source. Every few seconds the files are synced to disk, and then `progress.json` records how
far they are complete. If a build is interrupted, the next run truncates the files to that point and
continues. The store is bit for bit that of an uninterrupted build, with any number of processes.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import math
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

from toeplix.data.appending import Growing, explained, write_progress
from toeplix.data.encoding import (
    SPLITS,
    Encoded,
    Encoder,
    encode_batch,
    encode_documents,
    hash_of,
    is_validation,
    start_worker,
)
from toeplix.data.manifest import MANIFEST, PROGRESS, TOKENIZER, VAL_SHARE, describe, sealed
from toeplix.data.recipe import Recipe as Recipe
from toeplix.data.resuming import begin, compare, forgetting, start, unchanged
from toeplix.data.shuffling import shuffled
from toeplix.data.sources import Part, resolve
from toeplix.data.store import Store
from toeplix.data.tokenizer import Tokenizer, fetch
from toeplix.data.workers import put_off
from toeplix.files import printable, replace_file
from toeplix.files.locking import locked

BATCH_CHARACTERS = 2**20  # of one batch of a worker
ONE_PROCESS_CHARACTERS = 2**25  # characters up to which starting processes costs more than it saves
TOKENIZER_SAMPLE_BYTES = 2**25  # bytes of text from which a tokenizer is learned
MAX_PROCESSES = 1024  # all are started at once


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a build, which `build` reports after every batch."""

    stage: str  # "tokenizer", "tokens" or "sha256"
    part: int = 0  # number of the part being read, of `parts`
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
    """Build a store, resume an interrupted build, or open the store if it is complete.

    `processes` is the number of worker processes (default: one per core; 1 starts none). Progress is
    synced to disk `every` few seconds. Scripts that call this need `if __name__ == "__main__":`.
    """
    if not str(directory):
        raise ValueError("the directory of the store has no name: give one, '.' for this one")
    folder = Path(directory)
    if processes is not None and not 1 <= processes <= MAX_PROCESSES:
        raise ValueError(f"processes={processes} must be at least 1 and at most {MAX_PROCESSES}")
    parts = resolve(recipe.sources, recipe.field)
    listed = [[part.name, part.size] for part in parts]
    described = dataclasses.asdict(recipe) | {"sources": list(recipe.sources)}
    with locked(folder), explained(folder):
        if (folder / MANIFEST).exists():
            store = Store.open(folder)
            compare(folder, described, store.manifest["recipe"])
            unchanged(folder, store.manifest["parts"], listed)
            (folder / PROGRESS).unlink(missing_ok=True)
            return store
        begun, new = begin(folder, described, listed)
        with forgetting(folder) if new else contextlib.nullcontext():
            done = _finish(folder, recipe, parts, begun, processes, report, every)
        report(Progress(stage="sha256"))
        text = json.dumps(sealed(describe(folder, described, done)), indent=2) + "\n"
        replace_file(folder / MANIFEST, lambda aside: aside.write_text(text, encoding="utf-8"))
        (folder / PROGRESS).unlink()
        return Store.open(folder)


def _finish(
    folder: Path,
    recipe: Recipe,
    parts: list[Part],
    begun: dict[str, Any],
    processes: int | None,
    report: Report,
    every: float,
) -> dict[str, Any]:
    """Tokenizer and tokens, twice where the share that was asked for held no document out."""
    while True:
        used = dataclasses.replace(recipe, val_fraction=begun.get(VAL_SHARE, recipe.val_fraction))
        if not begun["prepared"]:
            report(Progress(stage="tokenizer"))
            shutil.rmtree(folder / TOKENIZER, ignore_errors=True)  # perhaps half-written
            if recipe.tokenizer is None:
                texts = _sample(used, parts)
                Tokenizer.train(texts, recipe.vocab).save(folder / TOKENIZER)
            else:
                fetch(recipe.tokenizer, folder / TOKENIZER)
        with Growing(folder, begun | {"prepared": True}) as files:
            _fill(files, used, parts, processes or os.cpu_count() or 1, report, every)
        done = files.progress
        train, held = (done["splits"][split]["documents"] for split in SPLITS)
        if not train:
            why = (
                f": all others are validation by val_fraction={used.val_fraction}, lower it"
                if held
                else ""
            )
            raise ValueError(
                f"{_names(recipe)}: no document to train on among {done['read']} read{why}"
            )
        if held or not recipe.val_fraction:
            return done
        if VAL_SHARE in begun:
            raise ValueError(f"{_names(recipe)} changed while it was read: build again")
        begun = start(begun["recipe"], begun["parts"])
        begun[VAL_SHARE] = _share_of_one(recipe, parts)
        write_progress(folder, begun)


def _share_of_one(recipe: Recipe, parts: list[Part]) -> float:
    """The share that holds out one text, the one with the smallest hash, and its duplicates."""
    smallest, largest = 2**64, -1
    for text in _documents(recipe, parts):
        if not _blank(text):
            number = hash_of(text.encode())
            smallest, largest = min(smallest, number), max(largest, number)
    if smallest >= largest:
        raise ValueError(
            f"val_fraction={recipe.val_fraction} leaves nothing to train on: "
            f"{_names(recipe)} holds a single text; give more, or --val-fraction 0"
        )
    return math.nextafter(smallest / 2**64, 1.0)


def _documents(recipe: Recipe, parts: list[Part]) -> Iterator[str]:
    inside = itertools.chain.from_iterable(part.documents() for part in parts)
    return itertools.islice(inside, recipe.limit)


def _names(recipe: Recipe) -> str:
    return printable(", ".join(recipe.sources))


def _blank(text: str) -> bool:
    return not text or text.isspace()


def _sample(recipe: Recipe, parts: list[Part]) -> Iterator[str]:
    """Yield texts to train a tokenizer on: the beginnings of all parts, without validation documents."""
    texts: Iterator[str]
    if recipe.limit is None:
        each = TOKENIZER_SAMPLE_BYTES // len(parts)
        chosen = [parts[index] for index in shuffled(len(parts))]
        texts = itertools.chain.from_iterable(_beginning(part, each) for part in chosen)
    else:
        texts = _documents(recipe, parts)
    size, held = 0, 0
    for text in texts:
        raw = text.encode()
        if _blank(text):
            continue
        if is_validation(raw, recipe.val_fraction):
            held += 1
            continue
        yield text
        size += len(raw)
        if size > TOKENIZER_SAMPLE_BYTES:
            return
    if not size:
        share = recipe.val_fraction
        why = (
            f": all {held} documents are validation by val_fraction={share}, lower it"
            if held
            else ""
        )
        raise ValueError(f"{_names(recipe)}: no text to learn a tokenizer from{why}")


def _beginning(part: Part, share: int) -> Iterator[str]:
    size = 0
    for text in part.documents():
        yield text
        size += len(text)
        if size > share:
            return


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """A batch of documents, and the position in the source after them."""

    texts: list[str]
    part: int
    inside: int  # documents of the part up to here
    read: int  # documents of all parts up to here

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
            if size >= BATCH_CHARACTERS:
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
        _encoded(batches, files.folder / TOKENIZER, recipe.val_fraction, processes)
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
    """Return a context for processes that inherit no threads and ignore Ctrl-C from their start."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([start_worker.__module__])
    if threading.current_thread() is not threading.main_thread():
        return context  # only the main thread handles signals
    listening = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()  # signals ignored here stay ignored in it and its children
    finally:
        signal.signal(signal.SIGINT, listening)
    return context


def _encoded(
    batches: Iterator[_Batch], tokenizer: Path, val_fraction: float, processes: int
) -> Generator[tuple[_Batch, dict[str, Encoded]], None, None]:
    """Yield batches with their tokens in order; after `ALONE` characters a process pool encodes them."""
    encode = Encoder(Tokenizer.load(tokenizer))
    seen = 0
    for batch in batches:
        yield batch, encode_batch(encode, val_fraction, batch.texts)
        seen += sum(map(len, batch.texts))
        if processes > 1 and seen >= ONE_PROCESS_CHARACTERS:
            break
    else:
        return
    del encode
    context = _context()
    pool = ProcessPoolExecutor(processes, context, start_worker, (tokenizer, val_fraction))
    waiting: collections.deque[tuple[_Batch, Future[dict[str, Encoded]]]] = collections.deque()
    try:
        for batch in batches:
            with put_off():  # a pool that is interrupted while it starts a process hangs
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
