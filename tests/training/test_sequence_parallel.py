"""Sequences divided among processes: the losses and gradients of one, forward and backward."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tests.training.sequence_worker import WAYS
from tests.training.test_loop import ROOT, losses, rows
from tests.training.test_train_command import ARGUMENTS, call
from toeplix import Model, load
from toeplix.training.preflight import check_run
from toeplix.training.processes import Processes
from toeplix.training.run import Run
from toeplix.training.sequence_parallel import divided_processes

DIVIDED = Run(model=Model(), data="-", parallel="sequence", trackers="")


@pytest.mark.slow
def test_four_processes_are_one(store, tmp_path, monkeypatch, capsys):
    given = ["--data", str(store.directory), *ARGUMENTS, "--batch", "4"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4"]
    command += ["-m", "tests.training.sequence_worker", str(tmp_path / "four"), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for name, way in WAYS.items():
        one, four = tmp_path / "one" / name, tmp_path / "four" / name
        groups = 2 if "--sequence-processes" in way else 1
        arguments = ["ddp" if word.startswith("sequence") else word for word in way]
        if groups > 1:
            at = arguments.index("--sequence-processes")
            del arguments[at : at + 2]
        status, error = call(
            monkeypatch, capsys, *given, *arguments, "--batch", 4 * groups, "--out", one
        )
        assert status == 0, error
        assert losses(four) == pytest.approx(losses(one), rel=1e-4), name
        norms = [[row["grad_norm"] for row in rows(run) if "loss" in row] for run in (one, four)]
        assert norms[1] == pytest.approx(norms[0], rel=1e-3), name
        assert rows(four)[-1]["val_loss"] == pytest.approx(rows(one)[-1]["val_loss"], rel=1e-4)
        assert [row["tokens"] for row in rows(four)] == [row["tokens"] for row in rows(one)]
        sent = [row["exchanged_bytes_per_layer_and_token"] for row in rows(four) if "loss" in row]
        assert min(sent) > 0
        assert load(four / "model")(torch.tensor([[1, 2, 3]])).shape == (1, 3, store.vocab)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Model(arch="llama"), "llama"),
        (Model(arch="window"), "window"),
        (Model(arch="mamba2"), "mamba2"),
        (Model(arch="masked"), "masked"),
        (Model(blocks=("toeplitz", "attention")), "attention"),
    ],
)
def test_an_architecture_that_cannot_is_named(model, names):
    with pytest.raises(ValueError, match=f"'sequence' is not supported by {names}, whose"):
        check_run(replace(DIVIDED, model=model))


def test_processes_form_groups_of_consecutive_ranks():
    run = replace(DIVIDED, sequence_processes=2)
    cpu = torch.device("cpu")
    found = [divided_processes(run, Processes(rank=r, count=6, device=cpu)) for r in range(6)]
    assert [each.data_rank for each in found] == [0, 0, 1, 1, 2, 2]
    assert {each.data_count for each in found} == {3}
    assert [each.counts_rows for each in found] == [True, False] * 3
    alone = divided_processes(DIVIDED, Processes(device=cpu))
    assert (alone.sequence, alone.data_count) == (1, 1)
    with pytest.raises(ValueError, match="sequence_processes=2 does not divide the 3 processes"):
        divided_processes(run, Processes(count=3, device=cpu))


def test_settings_that_contradict_each_other(store, tmp_path, monkeypatch, capsys, unchecked):
    with pytest.raises(ValueError, match="sequence_processes=2 has no effect on parallel='ddp'"):
        replace(DIVIDED, parallel="ddp", sequence_processes=2)
    given = ["--data", store.directory, "--out", tmp_path / "run", "--arch", "llama"]
    status, error = call(monkeypatch, capsys, *given, "--parallel", "sequence")
    assert (status, len(error.splitlines())) == (2, 1)
    assert "is not supported by llama" in error
