"""Precision, gradient checkpointing, compilation and sharding together: the losses of a plain run."""

import json
import os
import subprocess
import sys

import pytest

from tests.combinations_worker import CASES, STEPS
from tests.toy import toy_store
from tests.training.test_loop import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    """Of all runs, made one after the other by two processes."""
    folder = tmp_path_factory.mktemp("combinations")
    store = toy_store(folder)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["-m", "tests.combinations_worker", str(folder), str(store.directory)]
    environment = os.environ | {"TOEPLIX_UNCHECKED": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads((folder / "losses.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_the_losses_are_those_of_a_plain_run(losses, case):
    expected = losses[f"{CASES[case]['arch']}-plain"]
    assert len(expected) == STEPS
    near = 1e-5 if CASES[case]["precision"] == "float32" else 2e-2
    assert losses[case] == pytest.approx(expected, rel=near)


def test_low_precision_is_really_used(losses):
    """Equal losses to the last bit would mean that a setting had no effect."""
    for case, settings in CASES.items():
        if settings["precision"] != "float32":
            assert losses[case] != losses[f"{settings['arch']}-plain"], case
