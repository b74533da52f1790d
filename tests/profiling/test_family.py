"""`toeplix bench family` runs at small sizes, and the state that it counts is what models keep."""

import json

import pytest
import torch
from typer.testing import CliRunner

from toeplix import Model, build
from toeplix.architectures import state_bytes
from toeplix.cli.main import app
from toeplix.profiling.bench.family import CASES

CONSTANT = ("recurrent", "lookup 1 of 4")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Mamba 2 says that its kernels are not installed
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_command(dtype):
    sizes = "--dim 32 --depth 4 --batch 2 --context 16 --seconds 0.1 --threads 1"
    places = f"--device cpu --dtype {dtype}"
    result = CliRunner().invoke(app, ["bench", "family", "20", "40", *f"{sizes} {places}".split()])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["machine"]["dtype"] == dtype
    assert [row["model"] for row in found["training"]] == list(CASES)
    assert found["training"][0]["over_free"] == 1
    assert [row["context"] for row in found["decoding"]] == [20, 40]


def kept(state):
    """The bytes of the tensors that a decoding state refers to, wherever they are."""
    seen, total, waiting = set(), 0, [state]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            total += thing.nbytes
        elif isinstance(thing, dict):
            waiting += thing.values()
        elif isinstance(thing, list | tuple):
            waiting += thing
        elif hasattr(thing, "__dict__"):
            waiting += vars(thing).values()
    return total


@pytest.mark.parametrize("name", CONSTANT)
@torch.no_grad()
def test_the_state_is_constant_and_as_counted(name):
    """Two prompt lengths: what differs in size is nothing, and the bank's buffers are the formula."""
    config = Model(**CASES[name], vocab=20, context=16, dim=32, depth=4)
    model = build(config).eval()
    sizes = []
    for length in (10, 200):
        state = model.start()
        _, state = model.step(torch.randint(20, (1, length)), state)
        state.begin_decoding()
        model.step(torch.zeros(1, 3, dtype=torch.long), state)
        sizes.append(kept(state))
    assert sizes[0] == sizes[1]
    held = sum(one.bytes for one in state.bank.decoders)
    for part in state.parts:
        if not isinstance(part, list):
            held += part.recent.nbytes + part.sums.nbytes
    assert held == state_bytes(config, 200) == state_bytes(config, 10)


@pytest.mark.parametrize("name", CONSTANT)
def test_within_twice_the_state_of_mamba2(name):
    ours = Model(**CASES[name], dim=512, depth=16)
    assert state_bytes(ours, 2**18) < 2 * state_bytes(Model(arch="mamba2", dim=512), 2**18)
    assert 64 * state_bytes(ours, 32768) < 512 * 2**20
