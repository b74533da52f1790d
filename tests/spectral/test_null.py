"""The yardstick: certified indices of noise against the formula, and what starts at 0."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from toeplix.mixers.filter import Filter
from toeplix.spectral import indices
from toeplix.spectral.null_distribution import VARIANCE_PER_TAP, Null, noise, simulated, untrained


@pytest.mark.parametrize("taps", [64, 200, 512])
def test_the_formula_is_what_noise_gives(taps):
    """Mean within 4 standard errors; standard deviation within 4 of its own."""
    draws = 400
    found, null = simulated(taps, draws), noise(taps)
    assert len(found) == draws
    assert abs(found.mean() - null.mean) < 4 * null.deviation / math.sqrt(draws)
    assert abs(found.std() / null.deviation - 1) < 4 / math.sqrt(2 * draws)


def test_at_the_sizes_of_the_paper():
    assert (noise(512).mean, noise(1024).mean) == (-255.5, -511.5)
    assert noise(512).deviation == pytest.approx(12.5, abs=0.1)
    assert noise(1024).deviation == pytest.approx(17.7, abs=0.1)


def test_the_variance_is_rices_integral():
    def covariance(x: float) -> float:
        y = x / 2
        r = np.sin(y) / y
        first = (np.cos(y) / y - np.sin(y) / y**2) / 2
        second = (-np.sin(y) / y - 2 * np.cos(y) / y**2 + 2 * np.sin(y) / y**3) / 4
        return -0.5 * ((first / r) ** 2 - second / r) * np.log1p(-(r**2))

    turns = np.arange(1, 300) * 2 * np.pi  # r is 0 there, where the limit is finite
    edges = [1e-2, *turns]
    total = 2 * sum(quad(covariance, a + 1e-7, b - 1e-7)[0] for a, b in pairwise(edges))
    near = -math.log(1e-2**2 / 12) / 12 * 1e-2 * 2  # the logarithm at 0
    assert (total + near) / math.pi == pytest.approx(VARIANCE_PER_TAP, abs=0.003)


def test_few_taps_are_counted():
    assert noise(1) == Null(0.0, 0.0)
    assert noise(2).deviation == pytest.approx(0.5, abs=0.03)  # |w0| < |w1| or not


def test_decaying_filters_start_at_zero():
    for heads in (1, 4):
        layer = Filter(heads, 128)
        layer.reset("decay")
        assert {found.index for found in indices(layer.kernel)} == {0}
    null = untrained("decay", 128)
    assert null == Null(0.0, 0.0)
    assert (null.z(0), null.z(-1)) == (0.0, -math.inf)


def test_ones_have_no_index():
    assert untrained("ones", 64) is None
    assert indices(torch.ones(1, 64))[0].status == "not fredholm within eps"


def test_z():
    assert Null(-10.0, 2.0).z(-6) == 2.0
