"""Measuring cases on a cluster: one job per case, through submitit.

    work/cluster/KEY.job     the id of the job that measures a case
    work/cluster/KEY.row     its row, written by the job; deleted once it is in the file of results
    work/cluster/logs/       what jobs print

The file system must be shared. The process that collects may be stopped at any time: jobs go on, and the
same command finds their rows and waits for those that still run. A job that is preempted or runs out of
time is recorded as failed, and the next call submits its case again, which resumes from its checkpoint.
"""

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from toeplix.experiments.engine import rows
from toeplix.files import read_json, replace_file

KINDS = ("slurm", "local")  # local: processes of this machine
POLL_SECONDS = {"slurm": 10.0, "local": 0.2}
GRACE_SECONDS = 30.0  # until a file of a finished job is seen on a shared file system

Measure = Callable[[str, rows.Take, Path], Iterator[rows.StoredRow]]
MeasureOne = Callable[[str, rows.Fields, Path], rows.StoredRow]


def parse_options(text: str) -> dict[str, Any]:
    """Return submitit's parameters from NAME=VALUE,... ; whole numbers become numbers.

    >>> parse_options("slurm_partition=gpu,gpus_per_node=1")
    {'slurm_partition': 'gpu', 'gpus_per_node': 1}
    """
    found: dict[str, Any] = {}
    for each in filter(None, text.split(",")):
        name, sign, value = each.partition("=")
        if not sign or not name.isidentifier():
            raise ValueError(
                f"--cluster-options {each!r} is not NAME=VALUE: give submitit's parameters, such as "
                "slurm_partition=gpu,gpus_per_node=1,timeout_min=600"
            )
        found[name] = int(value) if value.isdigit() else value
    return found


@contextlib.contextmanager
def workers(
    kind: str, options: Mapping[str, Any], measured: MeasureOne, *, at_once: int | None = None
) -> Iterator[Measure]:
    """Yield a function that measures cases in jobs and returns their rows in order of completion.

    Args:
        kind: "slurm", or "local" for processes of this machine.
        options: parameters of submitit's executor.
        measured: from experiment, case and directory to a row; it is pickled.
        at_once: maximum number of jobs at a time; None: all.
    """
    if kind not in KINDS:
        raise ValueError(f"--cluster {kind}: there is {' and '.join(KINDS)}")
    try:
        import submitit
    except ModuleNotFoundError as problem:
        raise ValueError(
            f"--cluster needs submitit: pip install 'toeplix[cluster]' ({problem})"
        ) from (problem)

    def measure_all(name: str, take: rows.Take, work: Path) -> Iterator[rows.StoredRow]:
        folder = work.absolute() / "cluster"
        folder.mkdir(parents=True, exist_ok=True)
        executor = submitit.AutoExecutor(folder=folder / "logs", cluster=kind)
        try:
            executor.update_parameters(**{"name": f"toeplix-{name}", **options})
        except (NameError, TypeError, ValueError) as problem:
            raise ValueError(f"--cluster-options: {problem}") from problem
        ended = _local_ended if kind == "local" else _ended
        yield from _Jobs(executor, folder, measured, POLL_SECONDS[kind], ended).run(
            name, take, work.absolute(), at_once or sys.maxsize
        )

    yield measure_all


class _Jobs:
    """The jobs of one experiment, with the files by which they are found again."""

    def __init__(
        self,
        executor: Any,
        folder: Path,
        measured: MeasureOne,
        poll: float,
        ended: Callable[[Any], bool],
    ) -> None:
        self.executor, self.folder, self.measured, self.poll = executor, folder, measured, poll
        self.ended = ended

    def run(self, name: str, take: rows.Take, work: Path, at_once: int) -> Iterator[rows.StoredRow]:
        running: dict[str, tuple[rows.Fields, Any]] = {}
        ended: dict[str, float] = {}
        while True:
            while len(running) < at_once and (fields := take()) is not None:
                key = _key(name, fields)
                running[key] = fields, self._job(name, key, fields, work)
            if not running:
                return
            before = len(running)
            for key, (fields, job) in list(running.items()):
                row = self._row(key, fields, job, ended)
                if row is not None:
                    del running[key]
                    yield row
                    # by now the row is in the file of results
                    for ending in ("row", "job"):
                        self._file(key, ending).unlink(missing_ok=True)
            if len(running) == before:
                time.sleep(self.poll)

    def _file(self, key: str, ending: str) -> Path:
        return self.folder / f"{key}.{ending}"

    def _job(self, name: str, key: str, fields: rows.Fields, work: Path) -> Any:
        """Return the job of a case: one that was submitted before, or a new one."""
        record = self._file(key, "job")
        if record.exists():
            known = read_json(record, "delete it, and the case is submitted again")
            job = self.executor._executor.job_class(self.folder / "logs", str(known.get("job")))
            if self._file(key, "row").exists() or not self.ended(job):
                return job
        job = self.executor.submit(
            _measured_to_file, self.measured, name, fields, work, self._file(key, "row")
        )
        text = json.dumps({"job": job.job_id, "experiment": name, "case": fields})
        replace_file(record, lambda aside: aside.write_text(text, encoding="utf-8"))
        return job

    def _row(
        self, key: str, fields: rows.Fields, job: Any, ended: dict[str, float]
    ) -> rows.StoredRow | None:
        """Return the row of a job, or that of its failure; None while it runs."""
        file = self._file(key, "row")
        if file.exists():
            return read_json(file, "delete it, and the case is measured again")
        if not self.ended(job):
            return None
        if time.monotonic() - ended.setdefault(key, time.monotonic()) < min(
            GRACE_SECONDS, 10 * self.poll
        ):
            return None
        error = f"its job {job.job_id} ended without a row: {job.state}, see {job.paths.stderr}"
        return _failure(fields, error)


def _ended(job: Any) -> bool:
    return bool(job.done())


def _local_ended(job: Any) -> bool:
    """Return whether a job of this machine has ended.

    A job that another process submitted has no process in submitit, which then calls it done. Its id is
    that of the process.
    """
    if job.done() and job._process is None:
        return job.paths.result_pickle.exists() or not _runs(int(job.job_id))
    return bool(job.done())


def _runs(process: int) -> bool:
    """Return whether a process runs and is one of submitit's: numbers of processes are used again."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):
        return False
    command = Path("/proc") / str(process) / "cmdline"
    try:
        return b"submitit" in command.read_bytes()  # empty if it has ended and nobody has asked
    except FileNotFoundError:
        return not command.parent.parent.exists()  # a system without /proc


def _failure(fields: rows.Fields, error: str) -> rows.StoredRow:
    row: rows.StoredRow = {"case": fields, "error": error, "seconds": 0}
    return {**row, **rows.provenance()}


def _key(name: str, fields: rows.Fields) -> str:
    return hashlib.sha256(f"{name} {rows.key(fields)}".encode()).hexdigest()[:16]


def _measured_to_file(
    measured: MeasureOne, name: str, fields: rows.Fields, work: Path, file: Path
) -> None:
    """Measure a case and write its row; runs in the job."""
    try:
        row = measured(name, fields, work)
    except ModuleNotFoundError as problem:
        row = _failure(fields, f"{type(problem).__name__}: {problem}")
    text = json.dumps(row)
    replace_file(file, lambda aside: aside.write_text(text, encoding="utf-8"))
