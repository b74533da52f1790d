"""Measuring the cases of an experiment that have no rows yet.

`collect` can be interrupted and run again at any time, and rows measured on several machines can be
concatenated. Rows that exist are never measured again; rows of an older protocol (`tuning`) stay where
they are and do not count. A case that fails leaves its error in a row, the other cases continue, and the
next call tries it again. Cases can run in parallel in separate processes; if a process dies, only its
case fails. Cases may depend on rows (seeds on the best learning rate): the experiment is asked again
when rows were added, so that no worker waits for the slowest case and the experiment's order is kept.
"""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from toeplix.data.workers import follow_parent
from toeplix.experiments import Experiment, load
from toeplix.experiments.engine import cluster as clusters
from toeplix.experiments.engine import rows, text_rows, tuning
from toeplix.experiments.engine.scale import Scale
from toeplix.files import ensure_directory
from toeplix.files.locking import locked

RESULTS, WORK = Path("results"), Path("runs/experiments")
MAX_TIME_SHARE = 0.02  # of the time, in which cases are computed again
PUBLISHED = Path(__file__).parent.parent / "published"  # the paper's numbers, part of the package


class Cluster(NamedTuple):
    """Where jobs run: "slurm" or "local", and parameters of submitit."""

    kind: str
    options: dict[str, Any]


Measure = Callable[[str, rows.Take, Path], Iterator[rows.StoredRow]]
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
    with (
        ensure_directory(file.parent),
        ensure_directory(work),
        locked(file.parent),
        _chosen(experiment.MEASURES_TIME, jobs, cluster) as measure_all,
    ):
        missing = _Missing(experiment, scale, file, report)
        for row in measure_all(name, missing.take, work):
            rows.append(file, row)
            missing.count(row)
    return tuning.current(experiment.Case, rows.flat(file))


class _Missing:
    """The cases of an experiment that are to be measured, in its order, each at most once."""

    def __init__(
        self, experiment: Experiment[Any], scale: Scale, file: Path, report: Report
    ) -> None:
        self.experiment, self.scale, self.file, self.report = experiment, scale, file, report
        self.waiting: list[rows.Fields] = []
        self.taken: set[str] = set()
        self.ended: set[str] = set()  # cases that have a row, or failed in this call
        self.wanted: set[str] = set()
        self.changed = True  # rows were added since cases were computed
        self.next_time = 0.0  # at which cases are computed again although some wait

    def take(self) -> rows.Fields | None:
        """Return the next case; None if there is none until another row is there."""
        if self.changed and (not self.waiting or time.monotonic() >= self.next_time):
            self._compute()
        if not self.waiting:
            return None
        fields = self.waiting.pop()
        self.taken.add(rows.key(fields))
        return fields

    def count(self, row: rows.StoredRow) -> None:
        """Note a case whose row is in the file now."""
        self.ended.add(rows.key(row["case"]))
        self.changed = True
        self._report(row)

    def _compute(self) -> None:
        start = time.monotonic()
        present = known(self.experiment.Case, self.file)
        current = tuning.current(self.experiment.Case, rows.flat(self.file))
        current = text_rows.comparable(self.experiment.Case, current, self.scale.data)
        with rows.interpreting(self.file):
            cases = self.experiment.cases(self.scale, current)
        wanted = {rows.key(fields): fields for fields in map(rows.record, cases)}
        self.wanted = set(wanted)
        self.ended |= {key for key, row in present.items() if "found" in row}
        left = [fields for key, fields in wanted.items() if key not in self.ended | self.taken]
        self.waiting = left[::-1]
        self.changed = False
        now = time.monotonic()
        self.next_time = now + (now - start) / MAX_TIME_SHARE
        if left:
            self._report({})

    def _report(self, row: rows.StoredRow) -> None:
        self.report(row, len(self.ended & self.wanted), len(self.wanted))


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
        yield lambda name, take, work: _side_by_side(slots, name, take, work)
    finally:
        for slot in slots:
            slot.close()


class _Slot:
    """A worker process with its share of the cores; it is restarted if it dies."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pool = self._begin()

    def _begin(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=(self.threads,))

    def _restart(self) -> None:
        self.pool.shutdown(wait=False)
        self.pool = self._begin()

    def measure(self, name: str, fields: rows.Fields, work: Path) -> Future[rows.StoredRow]:
        try:
            return self.pool.submit(measured, name, fields, work)
        except BrokenProcessPool:  # it died between two cases
            self._restart()
            return self.pool.submit(measured, name, fields, work)

    def outcome(self, future: Future[rows.StoredRow], fields: rows.Fields) -> rows.StoredRow:
        """Return the row of a case that has ended, also if its process has died."""
        try:
            return future.result()
        except ModuleNotFoundError:
            raise
        except BrokenProcessPool:
            self._restart()
            error = "its process died: too little memory?"
        except BaseException as problem:  # also if the process was asked to stop
            error = f"{type(problem).__name__}: {problem}"
        row: rows.StoredRow = {"case": fields, "error": error, "seconds": 0}
        return {**row, **rows.provenance()}

    def close(self) -> None:
        for process in list((self.pool._processes or {}).values()):
            process.terminate()  # an interrupted case resumes from its checkpoint next time
        self.pool.shutdown(wait=True, cancel_futures=True)


def _here(name: str, take: rows.Take, work: Path) -> Iterator[rows.StoredRow]:
    while (fields := take()) is not None:
        yield measured(name, fields, work)


def _side_by_side(
    slots: list[_Slot], name: str, take: rows.Take, work: Path
) -> Iterator[rows.StoredRow]:
    free = list(slots)
    running: dict[Future[rows.StoredRow], tuple[_Slot, rows.Fields]] = {}
    while True:
        while free and (fields := take()) is not None:
            slot = free.pop()
            running[slot.measure(name, fields, work)] = slot, fields
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            slot, fields = running.pop(future)
            row = slot.outcome(future, fields)
            free.append(slot)
            yield row


def _begin(threads: int) -> None:
    import torch

    from toeplix.training.allocator import keep_freed_memory

    follow_parent()
    torch.set_num_threads(threads)
    keep_freed_memory()
