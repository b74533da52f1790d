"""What a filter does, on filters of which it is known."""

import math

import numpy as np
import pytest
import torch

from toeplix.spectral.lags import hankel_values, lags, states


def test_a_shift_is_a_shift():
    kernel = torch.zeros(100)
    kernel[37] = -2.0
    found = lags(kernel)
    assert (found.centre, found.mode, found.likeness, found.half) == (37.0, 37, -1.0, 38)
    assert found.recency == {1: 0, 2: 0, 4: 0, 8: 0, 16: 0, 32: 0, 64: 1.0, 100: 1.0}


def test_energy_by_hand():
    found = lags(torch.tensor([2.0, 0.0, 1.0, -1.0]))
    assert found.centre == pytest.approx((2 + 3) / 6)
    assert found.recency == {
        1: pytest.approx(4 / 6),
        2: pytest.approx(4 / 6),
        4: pytest.approx(1.0),
    }
    assert found.likeness == pytest.approx(2 / math.sqrt(6))
    assert lags(torch.tensor([3.0])).recency == {1: 1.0}


@pytest.mark.parametrize("rates", [[0.5], [0.5, -0.8], [0.9, 0.6, -0.3]])
def test_sums_of_exponentials_need_as_many_states(rates):
    """w[l] = sum of r^l has rank len(rates), whatever its length."""
    lag = torch.arange(400, dtype=torch.float64)
    kernel = sum(rate**lag for rate in rates)
    values = hankel_values(kernel)
    assert len(values) == 399
    assert int((values > 1e-9 * values[0]).sum()) == len(rates)
    assert states(kernel, close=1e-6) == len(rates)


def test_hankel_values_against_the_definition():
    kernel = torch.randn(17, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    padded = np.concatenate([kernel.numpy(), np.zeros(20)])
    dense = [[padded[i + j + 1] for j in range(16)] for i in range(16)]
    np.testing.assert_allclose(hankel_values(kernel), np.linalg.svd(dense)[1], atol=1e-12)


def test_a_scalar_needs_no_state_and_a_delay_as_many_as_its_lag():
    assert states(torch.tensor([1.0])) == 0
    assert states(torch.tensor([1.0, 0.0, 0.0])) == 0
    assert states(torch.tensor([0.0, 0.0, 0.0, 1.0])) == 3
