"""Closed forms of recurrent filters against their taps, so many that the rest is below rounding."""

import math

import numpy as np
import pytest
import torch

from tests.spectral.test_rational_indices import random_filter, rational
from toeplix.spectral import rational_lags
from toeplix.spectral.lags import hankel_values, lags, states
from toeplix.spectral.rational_lags import (
    degree,
    lag_quantile,
    rational_frobenius_norm,
    rational_hankel_values,
    rational_stable_rank,
    rational_states,
)
from toeplix.spectral.rational_sums import Sums, sign_changes
from toeplix.spectral.singular import matrix, stable_rank

LONG = 8192  # the slowest decay, 0.9945, is below 1e-19 after it


@pytest.mark.parametrize("short", [0, 1, 2, 5, 16, 33])
@pytest.mark.parametrize("rank", [1, 2, 8])
def test_lags_are_those_of_the_taps(short, rank):
    for seed in range(3):
        filter = random_filter(short, rank, seed)
        found, expected = rational_lags(filter), lags(filter.taps(LONG))
        assert (found.mode, found.half) == (expected.mode, expected.half)
        assert found.centre == pytest.approx(expected.centre, rel=1e-9)
        assert found.likeness == pytest.approx(expected.likeness, rel=1e-9)
        known = {taps: expected.recency[taps] for taps in found.recency}
        assert found.recency == pytest.approx(known, rel=1e-9)
        assert found.recency[max(found.recency)] > 1 - 1e-6


@pytest.mark.parametrize("short", [0, 1, 7])
def test_the_sum_of_absolute_values(short):
    """Signs change in several places, which decides where geometric sums begin and end."""
    changed = 0
    for seed in range(20):
        filter = random_filter(short, 8, seed)
        taps, sums = filter.taps(LONG), Sums(filter)
        assert float(sums.absolute()) == pytest.approx(taps.abs().sum().item(), rel=1e-12)
        assert float(sums.energy()) == pytest.approx((taps**2).sum().item(), rel=1e-12)
        changed += len(sign_changes(sums.terms, sums.start))
    assert changed  # otherwise the filters would not test it


def test_signs_of_a_filter_with_given_zeros():
    """(l - 3.5)(l - 9.5) seen through three close decays: signs + - + from 0, 4 and 10 on."""
    decays = np.array([0.9, 0.8, 0.7])
    weights = np.linalg.solve(
        np.stack([decays**3.5, decays**9.5, decays**20.0]), np.array([0.0, 0.0, 1.0])
    )
    sums = Sums(rational([], weights.tolist(), decays.tolist()))
    assert sign_changes(sums.terms, 0) == [4, 10]
    assert sign_changes(sums.terms, 4) == [10]
    assert sign_changes(sums.terms, 10) == []


def test_nothing_cancels_between_close_decays():
    """10^12 (rho^l - sigma^l), rho - sigma = 1e-12 or so, is l rho^(l - 1) to 12 digits."""
    rho = 0.9
    sigma = rho - 1e-12
    difference = rho - sigma
    filter = rational([], [1 / difference, -1 / difference], [rho, sigma])
    lag = np.arange(1000)
    taps = lag * rho ** (lag - 1.0)
    assert float(Sums(filter).energy()) == pytest.approx((taps**2).sum(), rel=1e-9)
    assert float(Sums(filter).absolute()) == pytest.approx(taps.sum(), rel=1e-9)
    found = rational_lags(filter)
    assert found.mode in (9, 10)  # l rho^(l - 1) is the same at both
    assert found.centre == pytest.approx((lag * taps**2).sum() / (taps**2).sum(), rel=1e-9)


def test_a_decay_of_1_minus_one_rounding():
    """Its receptive field has 10^16 taps, which nobody could add up one by one."""
    gap = 2.0**-53
    filter = rational([], [1.0], [1 - gap])
    assert lag_quantile(filter, 0.5) == pytest.approx(math.log(2) / (2 * gap), rel=1e-9)
    assert float(Sums(filter).absolute()) == pytest.approx(1 / gap, rel=1e-12)
    assert rational_lags(filter).centre == pytest.approx(1 / (2 * gap), rel=1e-9)


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.9, 0.999])
def test_quantiles_of_the_receptive_field(fraction):
    for seed in range(3):
        filter = random_filter(4, 8, seed)
        energy = filter.taps(LONG) ** 2
        running = (energy.cumsum(0) / energy.sum()).numpy()
        assert lag_quantile(filter, fraction) == int(np.searchsorted(running, fraction)) + 1
    for bad in (0.0, 1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            lag_quantile(filter, bad)


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 31, 64, 65, 100])
def test_stable_rank_against_dense_matrices(count):
    for seed in range(3):
        filter = random_filter(16, 4, seed)
        dense = matrix(filter.taps(count))
        frobenius, largest = (float(torch.linalg.matrix_norm(dense, ord=o)) for o in ("fro", 2))
        assert rational_frobenius_norm(filter, count) == pytest.approx(frobenius, rel=1e-12)
        expected = (frobenius / largest) ** 2
        assert rational_stable_rank(filter, count) == pytest.approx(expected, rel=1e-5)
        assert stable_rank(filter.taps(count)) == pytest.approx(expected, rel=1e-5)
        assert 1 - 1e-6 <= expected <= count + 1e-6


def test_decays_of_1_have_sections_and_nothing_else():
    filter = rational([0.5, -1.0], [1.0, 2.0], [1.0, 0.5])
    dense = matrix(filter.taps(50))
    assert rational_frobenius_norm(filter, 50) == pytest.approx(float(dense.norm()), rel=1e-12)
    for measure in (rational_lags, rational_hankel_values):
        with pytest.raises(ValueError, match="has a decay of 1: its energy is infinite"):
            measure(filter)


@pytest.mark.parametrize(
    ("short", "rank"), [(0, 1), (0, 4), (1, 1), (1, 4), (2, 0), (2, 1), (2, 4), (6, 0), (6, 4)]
)
def test_hankel_values_are_those_of_a_long_truncation(short, rank):
    """Decays up to 0.9945 ** 5 here, so that 300 taps are as good as all."""
    filter = random_filter(short, rank, seed=short)
    filter = rational(filter.free.tolist(), filter.weights.tolist(), (filter.decays**5).tolist())
    taps = filter.taps(1000)
    found, expected = rational_hankel_values(filter), hankel_values(taps)
    assert len(found) == degree(filter) == max(0, short - 1) + rank
    np.testing.assert_allclose(found, expected[: len(found)], atol=1e-7 * float(expected[0]))
    assert expected[len(found) :].max() < 1e-7 * expected[0]
    assert rational_states(filter) == states(taps)


def test_the_number_of_states_is_exact():
    """Short - 1 inputs and r sums at most; zeros at the end, equal decays and decays of 0 need none."""
    assert degree(rational([1.0], [], [])) == 0
    assert degree(rational([1.0, 2.0, 0.0], [], [])) == 1
    assert degree(rational([1.0], [1.0, 1.0, 3.0], [0.5, 0.5, 0.0])) == 1
    assert degree(rational([1.0, 0.0, 3.0], [1.0, -1.0, 2.0], [0.5, 0.5, 0.25])) == 3
    assert degree(random_filter(16, 8, seed=0)) == 16 - 1 + 8
    assert len(rational_hankel_values(rational([1.0], [2.0], [0.0]))) == 0
    assert rational_states(rational([1.0], [2.0], [0.0])) == 0


def test_a_section_without_a_tap_is_refused():
    with pytest.raises(ValueError, match="zero at the first 2 taps"):
        rational_stable_rank(rational([0.0, 0.0, 1.0], [], []), 2)
