"""Measuring what is missing: nothing twice, failures recorded, interruptions without loss."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from toeplix.experiments import EXPERIMENTS, SCALES
from toeplix.experiments.engine import collect as collecting
from toeplix.experiments.engine.collect import collect, results_file

pytestmark = pytest.mark.slow

CLAIMS, COST, MEASURES_TIME = (), "nothing", False
FOREVER = 600  # seconds: beyond every limit of these tests, which end such a case by force


@dataclass(frozen=True, kw_only=True)
class Case:
    number: int


def cases(scale, rows):
    """Four, and when three of them are there one more that depends on them."""
    first = [Case(number=number) for number in range(4)]
    done = [row["square"] for row in rows if row["number"] < 4]
    return first + ([Case(number=sum(done))] if len(done) >= 3 else [])


def measure(case, work):
    with open(Path(work) / "calls", "a") as calls:
        calls.write(f"{case.number}\n")
    if case.number == 2 and not (Path(work) / "mended").exists():
        raise ValueError("two is broken")
    if case.number == 3 and (Path(work) / "deadly").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if (Path(work) / "poor").exists():
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")
    if (Path(work) / "endless").exists() or (case.number > 1 and (Path(work) / "held").exists()):
        time.sleep(FOREVER)
        (Path(work) / "ended").touch()
    if case.number == 3 and (Path(work) / "stopped").exists():
        raise KeyboardInterrupt  # as training does when its process is asked to stop
    if case.number == 3 and (Path(work) / "patient").exists():  # for what follows from the others
        end = time.monotonic() + FOREVER / 10
        while "5\n" not in (Path(work) / "calls").read_text() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.5)
    return {"square": case.number**2}


def figure(rows, published):
    raise AssertionError("nobody asked for a figure")


table = holds = figure


@pytest.fixture(autouse=True)
def experiment(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "squares", __name__)


def calls(work):
    return sorted(int(line) for line in (work / "calls").read_text().split())


def test_only_what_is_missing_is_measured(tmp_path):
    options = {"results": tmp_path / "results", "work": tmp_path / "work"}
    seen = []
    found = collect("squares", SCALES["smoke"], report=lambda *all: seen.append(all[1:]), **options)
    assert [row["square"] for row in found] == [0, 1, 9, 100]
    assert calls(tmp_path / "work") == [0, 1, 2, 3, 10]
    assert seen[-1] == (5, 5)
    (tmp_path / "work" / "mended").touch()
    found = collect("squares", SCALES["smoke"], **options)
    assert sorted(row["square"] for row in found) == [0, 1, 4, 9, 100, 14**2]
    assert calls(tmp_path / "work") == [0, 1, 2, 2, 3, 10, 14], "2 once more, and 14 that follows"
    collect("squares", SCALES["smoke"], **options)
    assert len(calls(tmp_path / "work")) == 7


def test_a_free_worker_does_not_wait_for_the_slowest_case(tmp_path, monkeypatch):
    """What follows from three rows is measured while the fourth case still runs."""
    work, results = tmp_path / "work", tmp_path / "results"
    work.mkdir()
    for name in ("mended", "patient"):
        (work / name).touch()
    monkeypatch.setattr(collecting, "_begin", begin)
    found = collect("squares", SCALES["smoke"], jobs=2, results=results, work=work)
    assert [row["square"] for row in found][-2:] == [9, 14**2], (
        "3 ended after what follows from 0 to 2"
    )
    assert {row["square"] for row in found} == {0, 1, 4, 5**2, 9, 14**2}


def test_a_failure_is_a_row_and_says_what(tmp_path):
    collect("squares", SCALES["smoke"], results=tmp_path, work=tmp_path / "work")
    lines = results_file("squares", "smoke", tmp_path).read_text().splitlines()
    failed = [json.loads(line) for line in lines if "error" in json.loads(line)]
    assert [row["error"] for row in failed] == ["ValueError: two is broken"]
    assert failed[0]["case"] == {"number": 2}
    assert failed[0]["versions"]["torch"]


RUN = """
import sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
from toeplix.experiments import EXPERIMENTS, SCALES
from toeplix.experiments.engine.collect import collect
EXPERIMENTS["squares"] = "tests.experiments.test_collect"
collect("squares", SCALES["smoke"], results=Path(sys.argv[2]), work=Path(sys.argv[3]))
"""


def test_side_by_side_and_a_process_that_dies(tmp_path, monkeypatch):
    """The case of the dead process is recorded, the others have their rows."""
    work, results = tmp_path / "work", tmp_path / "results"
    work.mkdir()
    (work / "deadly").touch()
    monkeypatch.setattr(collecting, "_begin", begin)
    found = collect("squares", SCALES["smoke"], jobs=2, results=results, work=work)
    assert sorted(row["square"] for row in found) == [0, 1]
    lines = results_file("squares", "smoke", results).read_text().splitlines()
    errors = {json.loads(line)["case"]["number"]: json.loads(line).get("error") for line in lines}
    assert "died" in errors[3]
    assert errors[2] == "ValueError: two is broken"


def test_a_process_that_is_asked_to_stop_fails_its_case_only(tmp_path, monkeypatch):
    work, results = tmp_path / "work", tmp_path / "results"
    work.mkdir()
    for name in ("mended", "stopped"):
        (work / name).touch()
    monkeypatch.setattr(collecting, "_begin", begin)
    counts = []
    found = collect(
        "squares",
        SCALES["smoke"],
        jobs=2,
        results=results,
        work=work,
        report=lambda row, *numbers: counts.append(numbers),
    )
    assert sorted(row["square"] for row in found) == [0, 1, 4, 5**2]
    assert counts[-1] == (5, 5)
    lines = results_file("squares", "smoke", results).read_text().splitlines()
    errors = [row["error"] for row in map(json.loads, lines) if "error" in row]
    assert errors == ["KeyboardInterrupt: "]


def test_the_order_of_an_experiment_is_kept(tmp_path, monkeypatch):
    """A case that becomes known later but stands first is measured before those that wait."""
    monkeypatch.setattr(sys.modules[__name__], "cases", urgent)
    monkeypatch.setattr(collecting, "MAX_TIME_SHARE", 1e9)
    collect("squares", SCALES["smoke"], results=tmp_path / "results", work=tmp_path / "work")
    called = [int(line) for line in (tmp_path / "work" / "calls").read_text().split()]
    assert called == [0, 7, 1, 5]


def urgent(scale, rows):
    later = [Case(number=7)] if rows else []
    return [*later, *(Case(number=number) for number in (0, 1, 5))]


def begin(threads):
    """What a worker does first here: it learns of this experiment too."""
    EXPERIMENTS["squares"] = "tests.experiments.test_collect"


def test_killed_and_gone_on_with(tmp_path):
    """After SIGKILL finished rows are there, and the next call measures the rest."""
    work, results = tmp_path / "work", tmp_path / "results"
    work.mkdir()
    (work / "held").touch()  # the third case does not end
    (work / "mended").touch()
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, "-c", RUN, root, str(results), str(work)])
    file = results_file("squares", "smoke", results)
    end = time.monotonic() + FOREVER / 2
    while not (file.exists() and file.read_text().count("\n") == 2 and len(calls(work)) == 3):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    (work / "held").unlink()
    found = collect("squares", SCALES["smoke"], results=results, work=work)
    assert sorted(row["square"] for row in found) == [0, 1, 4, 9, 14**2]
    assert calls(work) == [0, 1, 2, 2, 3, 14], "finished cases were not measured again"


def test_interrupted_beside_a_long_case(tmp_path, monkeypatch):
    """Ctrl-C that only the parent hears ends the cases under way, and no row is made of them."""
    work, results = tmp_path / "work", tmp_path / "results"
    work.mkdir()
    (work / "endless").touch()
    monkeypatch.setattr(collecting, "_begin", begin)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt():
        while not ((work / "calls").exists() and len(calls(work)) == 2):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            collect("squares", SCALES["smoke"], jobs=2, results=results, work=work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()
    assert not (work / "ended").exists(), "a case was waited for"
    assert not results_file("squares", "smoke", results).exists()


def test_two_at_once_are_refused(tmp_path):
    from toeplix.files.locking import locked

    (tmp_path / "squares").mkdir()
    with locked(tmp_path / "squares"), pytest.raises(OSError, match="another process"):
        collect("squares", SCALES["smoke"], results=tmp_path, work=tmp_path / "work")


def test_a_field_that_a_case_has_got_since(tmp_path):
    """Rows from before keep their place; rows of a field that is gone do not count."""
    file = results_file("squares", "smoke", tmp_path)
    file.parent.mkdir()
    file.write_text('{"case": {}, "found": {}}\n{"case": {"number": 1, "gone": 2}, "found": {}}\n')

    @dataclass(frozen=True, kw_only=True)
    class Later:
        number: int = 7

    assert set(collecting.known(Later, file)) == {'{"number": 7}'}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_package_that_is_not_installed_is_no_result(tmp_path, monkeypatch, jobs):
    """One line with a hint, instead of a failure for every case."""
    monkeypatch.setattr(collecting, "_begin", begin)
    options = {"results": tmp_path / "results", "work": tmp_path / "work"}
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "poor").touch()
    with pytest.raises(ModuleNotFoundError) as caught:
        collect("squares", SCALES["smoke"], jobs=jobs, **options)
    assert caught.value.name == "scipy"
    assert not results_file("squares", "smoke", tmp_path / "results").exists()
    (tmp_path / "work" / "poor").unlink()
    assert len(collect("squares", SCALES["smoke"], jobs=jobs, **options)) == 4
