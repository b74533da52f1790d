"""The demo, cut short: everything it promises is there."""

import subprocess
import sys

import pytest
import torch

from toeplix.architectures import forward_flops
from toeplix.data import Recipe, build
from toeplix.experiments.demo import runs
from toeplix.spectral import symbol

pytestmark = pytest.mark.slow


def test_the_demo_leaves_what_it_says(tmp_path):
    command = [sys.executable, "-m", "toeplix", "demo", "--out", str(tmp_path / "demo")]
    done = subprocess.run([*command, "--steps", "6"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("loss.svg", "symbols.svg", "sample.txt", "toeplitz/summary.md", "llama/model"):
        assert (tmp_path / "demo" / name).exists(), name
        if not name.startswith("llama"):
            assert name in done.stdout.replace("\n", "")
    assert "bits per byte" in done.stdout
    assert (tmp_path / "demo" / "sample.txt").read_text().startswith("Return the ")


def test_both_get_the_same_compute(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n\n".join(f"number {n} " * 40 for n in range(60)))
    store = build(Recipe(sources=(str(text),), vocab=300, val_fraction=0.2), tmp_path / "store")
    ours, theirs = runs(store, steps=400).values()
    flops = [run.steps * forward_flops(run.model, run.model.context) for run in (ours, theirs)]
    assert flops[1] == pytest.approx(flops[0], rel=0.01)
    assert (ours.batch, ours.data, ours.seed) == (theirs.batch, theirs.data, theirs.seed)


def test_the_symbol_by_its_sum():
    kernel = torch.randn(2, 5)
    theta = 2 * torch.pi * torch.arange(8) / 8
    waves = torch.exp(-1j * torch.arange(5)[:, None] * theta)
    torch.testing.assert_close(symbol(kernel, 8), kernel.to(torch.complex64) @ waves)
    with pytest.raises(ValueError, match="points=4 must be at least the 5 taps"):
        symbol(kernel, 4)
