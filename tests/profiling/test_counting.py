"""Formulas equal what is counted on built models."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.models import FREE
from tests.test_architectures import CASES
from toeplix import Model, build
from toeplix.architectures import forward_flops, parameters
from toeplix.ops.dispatch import AUTO, AUTO_EXACT, choose, current_rule
from toeplix.ops.flops import product_flops
from toeplix.profiling.memory import activation_bytes, count_saved_bytes


@pytest.mark.parametrize("case", CASES)
def test_parameters(case):
    with torch.device("meta"):
        model = build(CASES[case])
    assert parameters(CASES[case]) == sum(p.numel() for p in model.parameters())


def counted(config, time, rows=1):
    """By PyTorch's own counter, which sees every matmul and convolution, and no transform."""
    model = build(config).eval().requires_grad_(False)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(torch.zeros(rows, time, dtype=torch.long))
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "case", ["toeplitz-flat", "toeplitz-two-layer", "toeplitz-gated", "masked"]
)
@pytest.mark.parametrize("time", [2, 20])
def test_flops_of_matmuls(case, time):
    assert forward_flops(CASES[case], time) == counted(CASES[case], time)


@pytest.mark.parametrize("case", ["toeplitz-flat", "masked", "hyena", "hybrid-filters"])
def test_rows_share_the_filters_that_a_network_computes(case):
    """What does not grow with the rows is the same in the formula and in PyTorch's counter."""
    config = CASES[case]
    shared = 2 * forward_flops(config, 20) - forward_flops(config, 20, rows=2)
    assert shared == 2 * counted(config, 20) - counted(config, 20, rows=2)
    assert (shared > 0) is ("hyena" in config.mixers)


def test_flops_of_tiles():
    config = Model(**FREE, vocab=10, context=300, dim=32, depth=1, heads=1)
    assert forward_flops(config, 200) == counted(config, 200)


def test_attention_counts_its_triangle():
    """PyTorch's counter does not see a CPU's attention: what is missing are the scores in use."""
    config = Model(arch="llama", vocab=10, context=64, dim=16, depth=2, heads=2)
    triangle = 2 * 4.0 * 16 * 64 * 65 / 2
    assert forward_flops(config, 64) == counted(config, 64) + triangle


def test_long_products_are_near_linear():
    for channels in (1, 64):
        ratio = product_flops(16384, 1, channels) / product_flops(4096, 1, channels)
        assert 4 < ratio < 4 * math.log2(16384) / math.log2(4096) * 1.1


@pytest.mark.parametrize("name", CASES)
def test_activation_memory_equals_what_is_counted(name):
    config = replace(CASES[name], depth=3)
    for batch, time in ((2, 17), (4, 24)):
        assert activation_bytes(config, batch, time) == count_saved_bytes(config, batch, time)
    alone = count_saved_bytes(config, 1, 24)
    assert alone <= activation_bytes(config, 1, 24) <= 1.2 * alone


def test_counts_know_nothing_of_what_was_tuned_here(tmp_path, monkeypatch):
    """Otherwise `bench ops --tune` would change widths of equal compute, and which cases are known."""
    sizes = [
        (time, channels) for time in (96, 128, 129, 384, 385, 4096) for channels in (1, 16, 64)
    ]
    before = [product_flops(time, 2, channels) for time, channels in sizes]
    bands = [{"columns": None, "paths": [[None, "dense"]]}]
    file = tmp_path / "paths.json"
    file.write_text(json.dumps({"rule": {"cpu": {AUTO: bands, AUTO_EXACT: bands}}}))
    monkeypatch.setenv("TOEPLIX_RULE", str(file))
    current_rule.cache_clear()
    try:
        assert choose(AUTO, "cpu", 4096, 64, 64) == "dense"
        assert [product_flops(time, 2, channels) for time, channels in sizes] == before
    finally:
        current_rule.cache_clear()


@pytest.mark.parametrize("columns", [1, 16, 17, 4096])
@pytest.mark.parametrize("time", [127, 128, 129, 383, 384, 385, 5000])
def test_counts_are_those_of_the_results_on_disk(time, columns):
    """Which were measured when a CPU took tiles up to 384 positions, and up to 128 for few columns."""
    tiles = time <= (128 if columns <= 16 else 384)
    quadratic = product_flops(time, 1, columns) >= columns * time * time
    assert quadratic == tiles
