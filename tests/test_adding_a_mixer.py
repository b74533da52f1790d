"""docs/adding-a-mixer.md is executed, and the mixer it adds keeps the contract of every architecture."""

import re
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests import test_architectures as contract
from tests.test_architectures import SMALL
from toeplix import Model, build
from toeplix.architectures import ARCHITECTURES, MIXERS, forward_flops, parameters, state_bytes
from toeplix.inference.generation import generate
from toeplix.ops import toeplitz

PAGE = Path(__file__).parent.parent / "docs" / "adding-a-mixer.md"


@pytest.fixture(scope="module", autouse=True)
def page():
    """The names that the blocks of the page define, executed one after the other."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    before, names = dict(ARCHITECTURES), {"__name__": "adding_a_mixer"}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    yield names
    ARCHITECTURES.clear()
    ARCHITECTURES.update(before)
    MIXERS.pop("ema")


@pytest.fixture(scope="module")
def config(page):
    return Model(arch="ema", **SMALL)


@pytest.fixture(scope="module")
def model(config):
    torch.manual_seed(0)
    return build(config).eval()


@pytest.fixture
def tokens():
    return torch.randint(SMALL["vocab"], (3, 24))


def test_the_contract(model, tokens, tmp_path):
    """The same functions that test the architectures of the package."""
    contract.test_causal(model, tokens)
    for way in contract.WAYS:
        contract.test_one_result_however_it_is_fed(model, tokens, way)
    contract.test_one_result_in_any_pieces(model, tokens)
    contract.test_beyond_the_context_whole_equals_stepped(model)
    contract.test_gradients_reach_what_is_trained_and_nothing_else(model, tokens)
    contract.test_saved_and_loaded_bit_for_bit(model, tokens, tmp_path)
    contract.test_pads_may_hold_anything(model, tokens)
    contract.test_no_positions_are_refused(model)


def test_formulas_equal_what_is_counted(config, model):
    assert parameters(config) == sum(value.numel() for value in model.parameters())
    time = 20
    with FlopCounterMode(display=False) as whole, torch.no_grad():
        model(torch.zeros(1, time, dtype=torch.long))
    with FlopCounterMode(display=False) as product, torch.no_grad():
        toeplitz(torch.zeros(1, time, config.dim, 1), torch.zeros(config.dim, time))
    products = config.depth * product.get_total_flops()
    recurrences = config.depth * 4.0 * time * config.dim
    # PyTorch counts the product by the path that is taken, the formula as a recurrence
    assert forward_flops(config, time) == whole.get_total_flops() - products + recurrences
    assert state_bytes(config, time) == config.depth * 4 * config.dim


def test_rows_of_a_ragged_batch(model):
    """Prompts of different lengths: each continues as it does alone."""
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8]]
    together = generate(model, prompts, max_new_tokens=8)
    assert together == [generate(model, [prompt], max_new_tokens=8)[0] for prompt in prompts]


def test_fields_of_other_architectures_are_rejected(page):
    with pytest.raises(ValueError, match="gate=False has no effect on arch='ema'"):
        Model(arch="ema", gate=False)
    with pytest.raises(ValueError, match="window=64 has no effect on arch='ema'"):
        Model(arch="ema", window=64)
