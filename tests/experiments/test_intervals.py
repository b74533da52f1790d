"""Intervals against scipy's own tests, and what follows from them."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from toeplix.experiments.engine import intervals
from toeplix.experiments.engine.intervals import Interval, below, every

FIRST, SECOND = [4.31, 4.29, 4.36], [4.20, 4.25, 4.11]


def test_the_mean_against_scipy():
    found = intervals.mean(FIRST)
    wanted = stats.ttest_1samp(FIRST, 0).confidence_interval()
    assert found.value == pytest.approx(np.mean(FIRST))
    assert (found.low, found.high) == pytest.approx(tuple(wanted))


def seeds(values):
    return dict(enumerate(values))


def test_the_difference_against_scipy():
    found = intervals.difference(seeds(FIRST), seeds(SECOND))
    wanted = stats.ttest_rel(FIRST, SECOND).confidence_interval()
    assert (found.low, found.high) == pytest.approx(tuple(wanted))
    assert found.flipped == pytest.approx(intervals.difference(seeds(SECOND), seeds(FIRST)))


def test_pairs_are_of_one_seed():
    """What a data order does to both falls out."""
    found = intervals.difference({0: 1.0, 1: 5.0, 2: 9.0}, {2: 8.0, 1: 4.0, 0: 0.0, 7: 100.0})
    assert found == Interval(1, 1, 1, 2)


def test_a_single_number_decides_nothing():
    assert below(intervals.mean([1.0]), 2.0) is None
    assert below(intervals.difference({0: 1.0}, seeds(SECOND))) is None
    assert str(intervals.mean([1.0])) == "1.000"


def test_below_and_every():
    assert below(Interval(-1, -2, -0.5)) is True
    assert below(Interval(1, 0.5, 2)) is False
    assert below(Interval(0, -1, 1)) is None
    assert below(Interval(0, -math.inf, math.inf)) is None
    assert every(True, True) is True
    assert every(True, None) is None
    assert every(None, False) is False


def test_holm_against_the_definition():
    """By statsmodels' rule, written out: adjusted p are running maxima of (m - rank) p."""
    rng = random.Random(0)
    for _ in range(50):
        many = [
            intervals.mean([rng.gauss(level, 1.0) for _ in range(4)])
            for level in (0.0, 1.0, 2.0, 4.0, -3.0)
        ]
        probabilities = [intervals.probability(each) for each in many]
        adjusted, worst = {}, 0.0
        for rank, place in enumerate(sorted(range(5), key=probabilities.__getitem__)):
            worst = max(worst, (5 - rank) * probabilities[place])
            adjusted[place] = worst
        for place, answer in enumerate(intervals.holm([(each, 0.0) for each in many])):
            assert (answer is not None) == (adjusted[place] <= 0.05)
            assert answer is None or answer is (many[place].value < 0)


def test_probability_is_that_of_a_t_test():
    values = [0.3, 0.5, 0.1, 0.4]
    found = intervals.probability(intervals.mean(values), 0.2)
    assert found == pytest.approx(stats.ttest_1samp(values, 0.2).pvalue)
    assert intervals.probability(intervals.mean([1.0])) == 1.0
    assert intervals.holm([(intervals.exact(0.4), 0.5)]) == [True]
