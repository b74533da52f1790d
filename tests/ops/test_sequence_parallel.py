"""Sequences divided among processes: what one process computes, forward and backward."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.ops.oracle import spelled_out
from toeplix.ops import recurrent_kernel
from toeplix.ops.sequence_parallel import WHOLE

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_four_and_two_processes_are_one():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4"]
    command += ["-m", "tests.ops.sequence_worker"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "agreed in 4 processes" in done.stdout


def test_a_whole_sequence_has_nothing_before_it():
    x = torch.randn(2, 9, 3, 4, dtype=torch.float64)
    kernel = torch.randn(3, 9, dtype=torch.float64)
    assert WHOLE.first(9) == 0
    assert WHOLE.before(x, 2).shape == (2, 2, 3, 4)
    assert not WHOLE.before(x, 2).any()
    torch.testing.assert_close(WHOLE.windowed(x, kernel), spelled_out(x, kernel))
    filters = (kernel[:, :2], kernel[:, 2:4], kernel[:, 4:6].sigmoid())
    expected = spelled_out(x, recurrent_kernel(*filters, 9))
    torch.testing.assert_close(WHOLE.recurrent(x, *filters), expected)
