"""Whole models under torch.compile equal themselves, values and gradients.

Not collected by itself: test_compiled.py runs this file in a process without run-time type checks, which
the compiler cannot trace.
"""

import pytest
import torch

from tests.models import FREE, OURS, small, used
from tests.toy import toy_run, toy_store
from toeplix import Model, build
from toeplix.architectures import ARCHITECTURES
from toeplix.training.logs import read
from toeplix.training.loop import fit

SMALL = {"vocab": 37, "context": 24, "dim": 32, "depth": 2, "state_size": 16, "window": 7}
CASES = {arch: small(arch, **SMALL) for arch in ARCHITECTURES} | {
    "toeplitz-flat": small(**FREE, heads=0, gate=True, **SMALL),
    "toeplitz-heads-kernels": small(**FREE, heads=4, kernels=2, sequential=2, **SMALL),
    "toeplitz-paper": Model.paper(**used("toeplitz", **SMALL)),
}


# torch's own compiler imports deprecated parts of torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("case", CASES)
def test_compiled_equals_eager(case):
    config = CASES[case]
    torch.compiler.reset()  # one class in many configurations: each is compiled afresh
    torch.manual_seed(0)
    model = build(config)
    # ours are one graph; the graphs of backbones are for Hugging Face to keep whole
    compiled = torch.compile(model, backend="aot_eager", fullgraph=config.arch in OURS)
    tokens = torch.randint(37, (2, 20))
    results = []
    for module in (model, compiled):
        model.zero_grad()
        logits = module(tokens)
        logits.square().mean().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        results.append([logits.detach(), *gradients])
    for eager, other in zip(*results, strict=True):
        torch.testing.assert_close(other, eager, rtol=1e-4, atol=1e-5 * float(eager.abs().max()))


# the compiler looks at the gradients of what lies between blocks
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_training_compiled_equals_eager(tmp_path):
    torch.compiler.reset()
    store = toy_store(tmp_path)
    losses = []
    for compiled in (False, True):
        run = toy_run(store, compile=compiled, dropout=0.0, steps=4, log_every=1)
        rows = read(fit(run, tmp_path / str(compiled)).parent)
        losses.append([row["loss"] for row in rows if "loss" in row])
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
