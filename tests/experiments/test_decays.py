"""Variants of recurrent filters: what they are at the start, and that they stand in for the library's."""

import cmath
import math

import pytest
import torch

from toeplix import Model, build
from toeplix.experiments.decays import VARIANTS, DampedCosines, LearnedDecays, standing_in
from toeplix.mixers.recurrent import RecurrentFilter
from toeplix.ops import recurrent_kernel

SIZES = {"heads": 2, "context": 64, "free_taps": 4, "decays": 6}


def test_learned_decays_start_as_fixed_ones_and_learn():
    fixed, learned = RecurrentFilter(**SIZES), LearnedDecays(**SIZES)
    for layer in (fixed, learned):
        layer.reset("decay")
        torch.nn.init.normal_(layer.weights, generator=torch.Generator().manual_seed(0))
    x = torch.randn(3, 40, 2, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(learned(x), fixed(x), atol=1e-5, rtol=1e-5)
    learned(x).square().sum().backward()
    assert (learned.log_constants.grad.abs() > 1e-3).all()


def test_damped_cosines_by_complex_powers():
    """Every pair is the real part of (a - ib) z^l."""
    layer = DampedCosines(**SIZES)
    layer.reset("decay")
    torch.nn.init.normal_(layer.weights, generator=torch.Generator().manual_seed(0))
    taps = layer.taps(9).tolist()
    cosines, sines = layer.weights.tensor_split(2, 1)
    for head in range(2):
        for lag in range(9):
            expected = layer.free[head, lag].item() if lag < 4 else 0.0
            for pair in range(3):
                decay = math.exp(-math.exp(-layer.log_constants[pair].item()))
                power = cmath.rect(decay, layer.frequencies[pair].item()) ** lag
                factor = complex(cosines[head, pair].item(), -sines[head, pair].item())
                expected += math.sqrt(1 - decay**2) * (factor * power).real
            assert taps[head][lag] == pytest.approx(expected, abs=1e-5)


def test_damped_cosines_without_waves_are_their_free_taps():
    layer = DampedCosines(**SIZES)
    layer.reset("decay")
    free = recurrent_kernel(layer.free, torch.zeros(2, 6), layer.decays, 12)
    torch.testing.assert_close(layer.taps(12), free)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_stands_in_and_leaves_again(variant):
    config = Model(arch="toeplitz", dim=8, depth=1, context=16, vocab=20)
    with standing_in(variant):
        inside = build(config)
    assert type(next(iter(inside.blocks[0].token_mixer.filters))) is VARIANTS[variant]
    assert type(next(iter(build(config).blocks[0].token_mixer.filters))) is RecurrentFilter
