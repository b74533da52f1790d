"""Jobs of a cluster, with submitit's local executor: rows, failures, and jobs that are found again."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.experiments import test_collect as squares
from toeplix.experiments import EXPERIMENTS, SCALES
from toeplix.experiments.engine import cluster
from toeplix.experiments.engine import collect as collecting
from toeplix.experiments.engine.collect import Cluster, collect, results_file

# submitit's local jobs are processes that outlive their objects, as jobs of a cluster do
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
LOCAL = Cluster("local", {"timeout_min": 5})
SQUARES = "tests.experiments.test_collect"


def measured(name, fields, work):
    """What a job does: its process learns of the experiment first."""
    EXPERIMENTS["squares"] = SQUARES
    return REAL(name, fields, work)


REAL = collecting.measured


@pytest.fixture(autouse=True)
def experiment(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "squares", SQUARES)
    monkeypatch.setattr(collecting, "measured", measured)


@pytest.mark.slow
def test_one_job_per_case_and_a_job_that_dies(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "GRACE_SECONDS", 0.5)
    work, results = tmp_path / "work", tmp_path / "results"
    work.mkdir()
    (work / "deadly").touch()
    found = collect("squares", SCALES["smoke"], results=results, work=work, cluster=LOCAL)
    assert sorted(row["square"] for row in found) == [0, 1]
    lines = results_file("squares", "smoke", results).read_text().splitlines()
    errors = {json.loads(line)["case"]["number"]: json.loads(line).get("error") for line in lines}
    assert errors[2] == "ValueError: two is broken"
    assert "ended without a row" in errors[3]
    assert squares.calls(work) == [0, 1, 2, 3]
    assert len(list((work / "cluster").glob("*.row"))) == 0
    (work / "deadly").unlink()
    (work / "mended").touch()
    again = collect("squares", SCALES["smoke"], results=results, work=work, cluster=LOCAL)
    found = {row["square"] for row in again}
    # as in one process; another case may follow from three of the first four
    assert found >= {0, 1, 4, 9, 14**2}


def one_by_one(fields):
    left = iter(fields)
    return lambda: next(left, None)


@pytest.mark.slow
def test_jobs_go_on_without_the_process_that_collects(tmp_path):
    """The next call takes the row that was written, and waits for the job that still runs."""
    fields = [{"number": 0}, {"number": 1}]
    with cluster.workers("local", LOCAL.options, measured) as measure_all:
        rows = measure_all("squares", one_by_one(fields), tmp_path)
        first = next(rows)
        rows.close()  # as if the process had been stopped before the row was in the results
    records = {
        json.loads(file.read_text())["case"]["number"]: json.loads(file.read_text())["job"]
        for file in (tmp_path / "cluster").glob("*.job")
    }
    assert set(records) == {0, 1}
    with cluster.workers("local", LOCAL.options, measured) as measure_all:
        found = list(measure_all("squares", one_by_one(fields), tmp_path))
    assert sorted(row["found"]["square"] for row in found) == [0, 1]
    assert first in found
    assert squares.calls(tmp_path) == [0, 1], "no case was submitted twice"
    assert not list((tmp_path / "cluster").glob("*.job"))


def slowly(name, fields, work):
    if fields["number"] == 1:
        time.sleep(6)
    return measured(name, fields, work)


@pytest.mark.slow
def test_a_job_that_still_runs_is_not_submitted_twice(tmp_path):
    """submitit calls a job of another process done, as it does not know its process."""
    fields = [{"number": 0}, {"number": 1}]
    with cluster.workers("local", LOCAL.options, slowly) as measure_all:
        rows = measure_all("squares", one_by_one(fields), tmp_path)
        next(rows)
        rows.close()
    with cluster.workers("local", LOCAL.options, slowly) as measure_all:
        found = list(measure_all("squares", one_by_one(fields), tmp_path))
    assert sorted(row["found"]["square"] for row in found) == [0, 1]
    assert len(list((tmp_path / "cluster" / "logs").glob("*_submitted.pkl"))) == 2
    assert squares.calls(tmp_path) == [0, 1]


def test_a_process_that_has_ended_or_is_another_one():
    assert not cluster._runs(os.getpid()), "no job of submitit"
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    assert not cluster._runs(process.pid)


def test_options_are_submitit_s(tmp_path):
    assert cluster.parse_options("") == {}
    assert cluster.parse_options("timeout_min=60,slurm_partition=gpu") == {
        "timeout_min": 60,
        "slurm_partition": "gpu",
    }
    with pytest.raises(ValueError, match="is not NAME=VALUE"):
        cluster.parse_options("gpu")
    with pytest.raises(ValueError, match="there is slurm and local"):
        collect("squares", SCALES["smoke"], results=tmp_path, cluster=Cluster("pbs", {}))
    with (
        pytest.raises(ValueError, match="--cluster-options"),
        cluster.workers("local", {"no_such": 1}, measured) as measure_all,
    ):
        list(measure_all("squares", one_by_one([{"number": 0}]), tmp_path))
