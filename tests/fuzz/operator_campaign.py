"""Cases of the operator and its decoders for `make fuzz`: new ones until the time is over.

    run(seconds, seed, out) -> Counter

Hypothesis makes the cases in rounds, each with a seed of its own, and shrinks what fails to a small case,
which is saved as a line of JSON: `operator_cases.check(operator_cases.read(line))` runs it again.
"""

import collections
import hashlib
import itertools
import time
import traceback
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

from tests.fuzz.operator_cases import CASES, Case, check, written

Counts = collections.Counter[str]
ROUND = 40  # cases of a kind that are made with one seed


class _Over(BaseException):
    """The time is over: of no class that Hypothesis would take for a failure."""


class _Search:
    """A round: counts cases until one fails, and none of those that are tried to shrink it."""

    def __init__(self, until: float, counts: Counts) -> None:
        self.until, self.counts = until, counts
        self.failed: tuple[Case, str] | None = None

    def test(self, case: Case) -> None:
        if time.monotonic() > self.until and self.failed is None:
            raise _Over
        try:
            check(case)
        except Exception as problem:
            if self.failed is None:
                self.counts["wrong" if isinstance(problem, AssertionError) else "traceback"] += 1
            self.failed = case, traceback.format_exc()  # the last one is the smallest
            raise
        if self.failed is None:
            self.counts["ok"] += 1


def run(seconds: float, seed: str, out: Path) -> Counts:
    """Check cases of all kinds in turn; failures are saved below `out`."""
    counts = Counts()
    until = time.monotonic() + seconds
    for number in itertools.count():
        for kind, cases in CASES.items():
            key = f"{seed}/{kind}/{number}"
            search = _Search(until, counts)
            try:
                _round(search, cases, key)
            except _Over:
                return counts
            except Exception:
                if search.failed is None:
                    raise  # not of a case: a fault of the suite
                _save(out, f"operator-{kind}-{seed}-{number}", *search.failed)
    raise AssertionError("there is always another round")


def _round(search: _Search, cases: st.SearchStrategy[Case], key: str) -> None:
    settings = hypothesis.settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    start = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    hypothesis.seed(start)(settings(hypothesis.given(cases)(search.test)))()


def _save(out: Path, name: str, case: Case, trace: str) -> None:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(written(case) + "\n")
    (folder / "traceback.txt").write_text(trace)
