"""The search for width and learning rate: it ends at the best of a known loss."""

import math

import pytest

from toeplix.experiments.engine.size_search import Point, search

LADDER, GRID = (8, 16, 32, 64, 128), (0.005, 0.01)


def found_by(loss, start, levels):
    """Search to the end, adding what is measured to the levels."""
    while (found := search(LADDER, GRID, start, levels)).best is None:
        levels |= {each: loss(each) for each in found.needed if each not in levels}
    return found.best


def bowl(point, width=64, rate=0.01):
    """Lowest at one width and rate; wider models want lower rates."""
    across = math.log2(point.width / width) + math.log2(point.rate / rate)
    return abs(across) + 0.1 * abs(math.log2(point.width / width))


@pytest.mark.parametrize("start", [Point(8, 0.02), Point(128, 0.04), Point(64, 0.0013)])
def test_the_search_ends_at_the_best_width_and_rate(start):
    levels = {}
    assert found_by(bowl, start, levels) == Point(64, 0.01)
    assert len(levels) <= 25, "far fewer than all widths and rates"


def test_a_wider_model_at_a_lower_rate_is_seen():
    """Along the valley of the bowl, no neighbour of (32, 0.02) is better: a diagonal is."""
    here = Point(32, 0.02)
    around = [Point(16, 0.02), Point(64, 0.02), Point(32, 0.01), Point(32, 0.04)]
    assert all(bowl(each) > bowl(here) for each in around)
    assert found_by(bowl, here, {}) == Point(64, 0.01)


def test_better_points_beside_the_path_are_not_missed():
    levels = {Point(128, 0.08): -1.0}
    assert found_by(bowl, Point(8, 0.08), levels) == Point(128, 0.08)
    assert Point(128, 0.04) in levels, "it has neighbours too"


def test_rates_that_are_nearly_the_same_count_once():
    levels = {Point(64, 0.0102): 0.0}
    found = search(LADDER, GRID, Point(64, 0.01), levels)
    assert Point(64, 0.0102) in found.needed
    assert Point(64, 0.01) not in found.needed


def test_widths_beside_the_ladder_do_not_count():
    assert found_by(bowl, Point(32, 0.02), {Point(48, 0.01): -1.0}) == Point(64, 0.01)


def test_at_the_ends_of_the_ladder_and_with_one_rate():
    assert found_by(lambda point: point.width, Point(16, 0.01), {}) == Point(8, 0.01)
    only = {}
    while (found := search((16,), (0.01,), Point(16, 0.01), only)).best is None:
        only |= dict.fromkeys(found.needed, 1.0)
    assert found == (Point(16, 0.01), [Point(16, 0.01)])


def test_a_diverged_start_is_left():
    def loss(point):
        return math.inf if point.rate > 0.015 else bowl(point)

    assert found_by(loss, Point(32, 0.02), {}) == Point(64, 0.01)
    assert found_by(lambda point: math.inf, Point(32, 0.02), {}) == Point(32, 0.02)
