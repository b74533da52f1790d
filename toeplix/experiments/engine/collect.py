"""Measuring the cases of an experiment that have no rows yet.

`collect` can be interrupted and run again at any time, and rows measured on several machines can be
concatenated. Rows that exist are never measured again; rows of an older protocol (`tuning`) stay where
they are and do not count. A case that fails leaves its error in a row, the other cases continue, and the
next call tries it again. Cases can run in parallel in separate processes; if a process dies, only its
case fails.
"""

import contextlib
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from toeplix.data.workers import follow_parent
from toeplix.experiments import load
from toeplix.experiments.engine import cluster as clusters
from toeplix.experiments.engine import rows, tuning
from toeplix.experiments.engine.scale import Scale
from toeplix.files import ensure_directory
from toeplix.files.locking import locked

RESULTS, WORK = Path("results"), Path("runs/experiments")
PUBLISHED = Path(__file__).parent.parent / "published"  # the paper's numbers, part of the package
MAX_ROUNDS = 20  # maximum number of rounds; cases of a round may depend on rows of the round before


class Cluster(NamedTuple):
    """Where jobs run: "slurm" or "local", and parameters of submitit."""

    kind: str
    options: dict[str, Any]


Measure = Callable[[str, list[rows.Fields], Path], Iterator[rows.StoredRow]]
Report = Callable[[rows.StoredRow, int, int], None]  # (row written, cases done, cases known so far)


def results_file(name: str, scale: str, results: Path = RESULTS) -> Path:
    return results / name / f"{scale}.jsonl"


def published_file(name: str) -> Path:
    """Return the file of the paper's own numbers; an experiment without any has no such file."""
    return PUBLISHED / f"{name}.jsonl"


def collect(
    name: str,
    scale: Scale,
    *,
    results: Path = RESULTS,
    work: Path = WORK,
    jobs: int = 1,
    cluster: Cluster | None = None,
    report: Report = lambda row, done, known: None,
) -> list[rows.Row]:
    """Measure the missing cases of an experiment and return its rows. Failed cases have no row.

    Cases run in this process, in `jobs` processes at once, or as jobs of a cluster.
    """
    experiment = load(name)
    file = results_file(name, scale.name, results)
    tried: set[str] = set()
    with (
        ensure_directory(file.parent),
        ensure_directory(work),
        locked(file.parent),
        _chosen(experiment.MEASURES_TIME, jobs, cluster) as measure_all,
    ):
        for _ in range(MAX_ROUNDS):
            present = known(experiment.Case, file)
            with rows.interpreting(file):
                cases = experiment.cases(scale, tuning.current(experiment.Case, rows.flat(file)))
            records = [rows.record(case) for case in cases]
            wanted = {rows.key(fields): fields for fields in records}
            missing = [
                fields
                for key, fields in wanted.items()
                if key not in tried and "found" not in present.get(key, {})
            ]
            if not missing:
                break
            done = len(wanted) - len(missing)
            report({}, done, len(wanted))
            for row in measure_all(name, missing, work):
                tried.add(rows.key(row["case"]))
                rows.append(file, row)
                done += 1
                report(row, done, len(wanted))
    return tuning.current(experiment.Case, rows.flat(file))


def _chosen(alone: bool, jobs: int, cluster: Cluster | None) -> AbstractContextManager[Measure]:
    """Return the workers; an experiment that measures time runs one case at a time."""
    if cluster is not None:
        at_once = 1 if alone else None
        return clusters.workers(cluster.kind, cluster.options, measured, at_once=at_once)
    return workers(1 if alone else jobs)


def known(kind: type, file: Path) -> dict[str, rows.StoredRow]:
    """Return rows by case; missing fields get defaults, and rows with unknown fields are dropped."""
    found = {}
    for row in rows.read(file).values():
        with contextlib.suppress(TypeError, ValueError):
            found[rows.key(rows.record(kind(**row["case"])))] = row
    return found


def measured(name: str, fields: rows.Fields, work: Path) -> rows.StoredRow:
    """One case to its row, whatever happens; a package that is not installed is no result."""
    experiment = load(name)
    start = time.monotonic()
    try:
        outcome: rows.StoredRow = {"found": experiment.measure(experiment.Case(**fields), work)}
    except ModuleNotFoundError:
        raise
    except Exception as problem:  # recorded; others go on
        outcome = {"error": f"{type(problem).__name__}: {problem}"}
    seconds = round(time.monotonic() - start, 2)
    return {"case": fields, **outcome, "seconds": seconds, **rows.provenance()}


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[Measure]:
    """Yield a function that measures cases and returns their rows in order of completion."""
    if jobs == 1:
        yield _here
        return
    slots = [_Slot(max(1, (os.cpu_count() or 1) // jobs)) for _ in range(jobs)]
    try:
        yield lambda name, cases, work: _side_by_side(slots, name, cases, work)
    finally:
        for slot in slots:
            slot.close()


class _Slot:
    """A worker process with its share of the cores; it is restarted if it dies."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.closed = False
        self.changing = threading.Lock()  # prevents starting a process after `close`
        self.pool = self._begin()

    def _begin(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=(self.threads,))

    def measure(self, name: str, fields: rows.Fields, work: Path) -> rows.StoredRow:
        with self.changing:
            if self.closed:
                raise RuntimeError("closed")
            future = self.pool.submit(measured, name, fields, work)
        try:
            return future.result()
        except BrokenProcessPool:
            with self.changing:
                self.pool.shutdown(wait=False)
                self.pool = self.pool if self.closed else self._begin()
            raise

    def close(self) -> None:
        with self.changing:
            self.closed = True
            for process in list((self.pool._processes or {}).values()):
                process.terminate()  # an interrupted case resumes from its checkpoint next time
            self.pool.shutdown(wait=True, cancel_futures=True)


def _here(name: str, cases: list[rows.Fields], work: Path) -> Iterator[rows.StoredRow]:
    for fields in cases:
        yield measured(name, fields, work)


def _side_by_side(
    slots: list[_Slot], name: str, cases: list[rows.Fields], work: Path
) -> Iterator[rows.StoredRow]:
    ended: queue.SimpleQueue[rows.StoredRow | ModuleNotFoundError] = queue.SimpleQueue()
    waiting = list(reversed(cases))

    def drive(slot: _Slot) -> None:
        while True:
            try:
                fields = waiting.pop()
            except IndexError:
                return
            try:
                ended.put(slot.measure(name, fields, work))
            except ModuleNotFoundError as problem:
                ended.put(problem)
            except BaseException as problem:  # every case that was taken gets its row
                error = f"{type(problem).__name__}: {problem}"
                if isinstance(problem, BrokenProcessPool):
                    error = "its process died: too little memory?"
                row: rows.StoredRow = {"case": fields, "error": error, "seconds": 0}
                ended.put({**row, **rows.provenance()})

    for slot in slots[: len(cases)]:
        threading.Thread(target=drive, args=(slot,), daemon=True).start()
    try:
        for _ in cases:
            row = ended.get()
            if isinstance(row, ModuleNotFoundError):
                raise row
            yield row
    finally:
        waiting.clear()


def _begin(threads: int) -> None:
    import torch

    from toeplix.training.allocator import keep_freed_memory

    follow_parent()
    torch.set_num_threads(threads)
    keep_freed_memory()
