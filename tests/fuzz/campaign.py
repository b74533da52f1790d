"""Cases side by side until the time is over: a worker forks a child for each case and tells its outcome.

A case is a function of the seed and its number. Worker w of n takes the numbers w, w + n, w + 2n, ...
"""

import collections
import contextlib
import json
import os
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fuzz import command_cases, file_cases, fixtures, forking, reproducers
from tests.fuzz.checks import weights
from tests.fuzz.oracles import Case, Outcome, judge, tree

MAKERS: dict[str, Callable[..., Case]] = {
    file_cases.KIND: file_cases.make,
    command_cases.KIND: command_cases.make,
}
SLOWER = 2.5
START = 15.0  # seconds that a real start of the program may take on a busy machine
SAVED = 2  # reproducers of one signature, of each worker


class Campaign:
    """Fixtures and truths in a scratch directory, and room for cases."""

    def __init__(self, scratch: Path, out: Path) -> None:
        self.scratch, self.out, self.root = scratch, out, scratch / "fixtures"
        self.truths: dict[str, dict[str, Any]] = {}
        forking.prepare()

    def make_fixtures(self) -> None:
        """What cases are made of, and what commands say over it."""
        _in_child(lambda: fixtures.make(self.root))
        self.truths = self._truths()

    def run(self, kind: str, seconds: float, seed: str, cases: int, jobs: int, say: Any) -> Any:
        """Counts by outcome, and a first case of every signature among the failures."""
        counts: collections.Counter[str] = collections.Counter()
        failures: dict[str, dict[str, Any]] = {}
        began = time.monotonic()
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as ready:
            for worker in range(jobs):
                stream = stack.enter_context(self._worker(kind, seconds, seed, cases, worker, jobs))
                ready.register(stream, selectors.EVENT_READ)
            while ready.get_map():
                for found, _ in ready.select():
                    line = found.fileobj.readline()  # type: ignore[union-attr]
                    if not line:
                        ready.unregister(found.fileobj)
                        continue
                    told = json.loads(line)
                    counts[told["word"]] += 1
                    if told["signature"]:
                        known = failures.setdefault(told["signature"], told | {"times": 0})
                        known["times"] += 1
                    say(kind, counts, time.monotonic() - began, len(failures))
        return counts, failures

    def one(self, case: Case, place: Path, aside: Path) -> Outcome:
        """Run a case in its directory."""
        before = tree(place)
        ended = forking.run(self._call(case, place), aside)
        return judge(case, ended, before, tree(place), place)

    @contextlib.contextmanager
    def _worker(
        self, kind: str, seconds: float, seed: str, cases: int, worker: int, jobs: int
    ) -> Any:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(reading)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                with os.fdopen(writing, "w") as tell:
                    self._work(kind, seconds, seed, range(worker, cases, jobs), worker, tell)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)
        try:
            with os.fdopen(reading, "r") as stream:
                yield stream
        finally:
            _, status = os.waitpid(pid, 0)
            if status:
                raise RuntimeError(f"a worker of {kind} ended with {status}: a fault of the suite")

    def _work(
        self, kind: str, seconds: float, seed: str, numbers: range, worker: int, tell: Any
    ) -> None:
        saved: collections.Counter[str] = collections.Counter()
        until = time.monotonic() + seconds
        aside = self.scratch / f"streams-{kind}-{worker}"
        aside.mkdir(exist_ok=True)
        for number in numbers:
            if time.monotonic() > until:
                break
            place = self.scratch / f"case-{kind}-{worker}"
            case = self.made(kind, f"{seed}/{kind}/{number}", number, place)
            outcome = self.one(case, place, aside)
            if outcome.word == "hang":  # or a busy machine: once more, with more time
                self.made(kind, case.seed, number, place)
                patient = replace(case, patience=case.patience * SLOWER, grace=case.grace * SLOWER)
                outcome = self.one(patient, place, aside)
            if not outcome.fine:
                saved[outcome.signature] += 1
                if saved[outcome.signature] <= SAVED:
                    small = reproducers.smaller(self, case, outcome, place, aside)
                    self.made(kind, case.seed, number, place)
                    reproducers.save(self.out, small, outcome, place, aside)
            remove(place)
            told = {"word": outcome.word, "signature": outcome.signature, "number": number}
            told |= {"title": case.title, "argv": case.argv, "detail": outcome.detail}
            tell.write(json.dumps(told) + "\n")
            tell.flush()

    def made(self, kind: str, seed: str, number: int, place: Path) -> Case:
        """A case anew, in an empty directory."""
        remove(place)
        place.mkdir()
        return MAKERS[kind](seed, number, self.root, place, self.truths)

    def _call(self, case: Case, place: Path) -> forking.Call:
        env = {"HOME": str(place / "home"), "XDG_CONFIG_HOME": str(place / "home" / ".config")}
        return forking.Call(
            argv=[os.fsencode(each) for each in case.argv],
            cwd=place,
            env=env | case.env,
            stdin=None if case.stdin is None else os.fsencode(case.stdin),
            closed_stdout=case.closed_stdout,
            executable=case.executable,
            patience=case.patience + START * case.executable,
            ending=case.ending,
            grace=case.grace,
        )

    def _truths(self) -> dict[str, dict[str, Any]]:
        """What commands print and write over sound files."""
        found: dict[str, dict[str, Any]] = {}
        aside = self.scratch / "streams"
        aside.mkdir(exist_ok=True)
        for target, reader in file_cases.readers():
            place = self.scratch / "sound"
            place.mkdir()
            file_cases.fill(self.root, place, target, reader)
            case = Case(
                kind="", number=0, seed="", title="", argv=reader.argv, env=reader.env, patience=60
            )
            ended = forking.run(self._call(case, place), aside)
            if ended.status != 0:
                raise RuntimeError(f"{reader.argv} over sound files: {ended.err.decode()}")
            known = found[file_cases.key(reader)] = {"stdout": ended.out.decode()}
            if reader.weights:
                known["weights"] = weights(place / reader.weights)
            shutil.rmtree(place)
        return found


def remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    if place.exists():
        raise RuntimeError(f"{place} cannot be removed")


def _in_child(work: Callable[[], None]) -> None:
    """Computing in the parent would start threads that no fork survives."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the fixtures could not be made")
