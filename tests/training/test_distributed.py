"""Several processes, with whole models or parts of one: what one process computes, and exact resume."""

import subprocess
import sys

import pytest
import torch

from tests.distributed_worker import WAYS
from tests.kill_worker import contents
from tests.training.test_loop import ROOT, losses, rows
from tests.training.test_train_command import ARGUMENTS, call
from toeplix import load

pytestmark = pytest.mark.slow


def torchrun(*arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_two_processes_are_one_with_twice_the_batch(store, tmp_path, monkeypatch, capsys):
    given, tokens = ["--data", str(store.directory), *ARGUMENTS], torch.tensor([[1, 2, 3]])
    torchrun("-m", "tests.distributed_worker", str(tmp_path / "two"), *given, "--batch", "4")
    for name, way in WAYS.items():
        one, two = tmp_path / "one" / name, tmp_path / "two" / name
        status, error = call(monkeypatch, capsys, *given, *way, "--batch", 8, "--out", one)
        assert status == 0, error
        near = 1e-2 if "--precision" in way else 1e-4
        assert losses(two) == pytest.approx(losses(one), rel=near), name
        norms = [[row["grad_norm"] for row in rows(run) if "loss" in row] for run in (one, two)]
        assert norms[1] == pytest.approx(norms[0], rel=10 * near), name
        assert rows(two)[-1]["val_loss"] == pytest.approx(rows(one)[-1]["val_loss"], rel=near)
        assert [row["tokens"] for row in rows(two)] == [row["tokens"] for row in rows(one)]
        assert load(two / "model")(tokens).shape == (1, 3, store.vocab)
        assert contents(two).keys() == contents(one).keys()
        for kind in ("weights", "moments"):  # the same files, whoever holds what
            sizes = [{k: len(v) for k, v in contents(run)[kind].items()} for run in (one, two)]
            assert sizes[0] == sizes[1], name


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_kill_9_of_two_processes(tmp_path, parallel):
    """At random moments; by hand: python -m tests.kill_worker DIRECTORY 20 2 fsdp."""
    command = [sys.executable, "-m", "tests.kill_worker", str(tmp_path), "2", "2", parallel]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same bits" in done.stdout


def test_torchrun_restarts_what_was_killed(store, tmp_path):
    module = ["-m", "tests.restart_worker", str(store.directory), str(tmp_path)]
    error = torchrun("--max-restarts", "1", *module)
    assert "exitcode: -9" in error
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
