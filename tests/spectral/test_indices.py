"""The certified index against companion roots, exact products, Schur-Cohn, and itself."""

import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

from tests.spectral.witness import by_roots, by_schur_cohn, product
from toeplix.spectral import arcs, index, indices


def noise(filters: int, taps: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(filters, taps, generator=generator, dtype=torch.float64)


def test_the_shift_is_the_worked_example():
    """y = (0, x0, x1, ...) as rows times a matrix from the right: -1, and -l for a shift by l."""
    for lag in range(6):
        kernel = torch.zeros(6)
        kernel[lag] = -3.0
        found = index(kernel)
        assert (found.index, found.status) == (-lag, "certified")
        assert found.margin == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("taps", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 64, 127, 128, 129, 257])
def test_random_filters_against_companion_roots(taps):
    kernel = noise(6, taps, seed=taps)
    assert [found.index for found in indices(kernel)] == [-by_roots(row) for row in kernel.numpy()]


@pytest.mark.slow
@pytest.mark.parametrize("taps", [512, 1024])
def test_long_filters_against_companion_roots(taps):
    kernel = noise(1, taps, seed=3)[0]
    found = index(kernel)
    assert found.index == -by_roots(kernel.numpy())
    assert found.arcs < 8 * taps  # uniform points would not do with 2^22


MILLION = 10**6
NEAR = {  # exact factors, and their zeros inside the unit disc
    "1 - 1e-6": ([MILLION, -(MILLION + 1)], 1),
    "1 + 1e-6": ([MILLION, -(MILLION - 1)], 0),
    "-(1 - 1e-6)": ([MILLION, MILLION + 1], 1),
    "fifth roots, 1 - 2e-7": ([MILLION, 0, 0, 0, 0, -(MILLION + 1)], 5),
    "fifth roots, 1 + 2e-7": ([MILLION, 0, 0, 0, 0, MILLION - 1], 0),
}
SMALL = {"3 u": ([0, 3], 1), "2 + u": ([2, 1], 0), "1 - 3 u^2": ([1, 0, -3], 2), "1": ([1], 0)}


@pytest.mark.parametrize("first", NEAR)
@pytest.mark.parametrize("second", NEAR)
@pytest.mark.parametrize("third", SMALL)
def test_exact_products_of_integer_factors(first, second, third):
    factors = [NEAR[first], NEAR[second], SMALL[third]]
    exact = product([[Fraction(value) for value in taps] for taps, _ in factors])
    taps = [float(value) for value in exact]
    assert [Fraction(value) for value in taps] == exact  # nothing is rounded
    found = index(torch.tensor(taps, dtype=torch.float64))
    assert found.status == "certified"
    assert found.index == -sum(inside for _, inside in factors)


@pytest.mark.parametrize("power", [1, 7, 64, 255])
@pytest.mark.parametrize("side", [-1, 1])
def test_zeros_at_the_last_bit(power, side):
    """2^52 - (2^52 +- 1) u^k: all its zeros are 2^-52 / k off, which doubles do not resolve."""
    kernel = torch.zeros(power + 1, dtype=torch.float64)
    kernel[0], kernel[-1] = 2.0**52, -(2.0**52) - side
    found = index(kernel)
    assert found.status == "certified"
    assert found.index == (-power if side > 0 else 0)
    assert found.margin == pytest.approx(2.0**-53, rel=0.75)


def test_clusters_inside_and_outside():
    """(4 - 3u)^a (3 - 4u)^b: high powers, tiny on one side of the circle; exact integers."""
    for outside, inside in ((8, 0), (0, 8), (5, 4), (1, 9)):
        factors = [[4, -3]] * outside + [[3, -4]] * inside
        exact = product([[Fraction(value) for value in factor] for factor in factors])
        found = index(torch.tensor([float(value) for value in exact], dtype=torch.float64))
        assert (found.index, found.status) == (-inside, "certified")


def test_small_integers_against_schur_cohn():
    draw, decided = random.Random(1), 0
    for _ in range(300):
        taps = [draw.randrange(-4, 5) for _ in range(draw.randrange(1, 14))]
        if not any(taps):
            continue
        inside = by_schur_cohn([Fraction(tap) for tap in taps])
        found = index(torch.tensor(taps, dtype=torch.float64))
        if inside is not None:
            assert (found.index, found.status) == (-inside, "certified"), taps
            decided += 1
    assert decided > 150


@pytest.mark.parametrize(
    "taps",
    [
        [1, -1],
        [1, 1],
        [1, 0, 1],
        [1] * 9,
        [1] * 512,
        [2, -3, 1],
        product([[Fraction(1), Fraction(-6, 5), Fraction(1)], [Fraction(3), Fraction(1)]]),
    ],
    ids=["u = 1", "u = -1", "u = i", "roots of unity", "all ones", "1 and 2", "3/5 + 4/5 i"],
)
def test_zeros_on_the_circle_are_said_to_be_there(taps):
    whole = math.lcm(*(Fraction(tap).denominator for tap in taps))
    found = index(torch.tensor([float(tap * whole) for tap in taps], dtype=torch.float64))
    assert (found.index, found.status) == (None, "not fredholm within eps")
    assert found.margin <= 2.0**-100


def test_eps_decides_what_counts_as_on_the_circle():
    kernel = torch.tensor([MILLION, -(MILLION + 1.0)], dtype=torch.float64)
    assert index(kernel).index == -1
    near = index(kernel, eps=1e-5)
    assert near.status == "not fredholm within eps"
    assert 2e-7 < near.margin <= 1e-5
    assert index(kernel, eps=1e-8).index == -1


def test_the_margin_bounds_the_symbol_from_below():
    """Against a dense sampling with other arithmetic; and it is within a factor of 4 of the least."""
    for kernel in noise(4, 40, seed=5):
        found = index(kernel)
        theta = np.concatenate(
            [np.linspace(0, np.pi, 20001), found.angle + np.linspace(-1e-3, 1e-3, 2001)]
        )
        least = abs(np.exp(-1j * np.outer(theta, np.arange(40))) @ kernel.numpy()).min()
        share = least / kernel.abs().sum().item()
        assert share / 4 < found.margin <= share
        with mpmath.workdps(30):
            values = [mpmath.mpf(value) for value in kernel.tolist()]
            wave = mpmath.expj(-mpmath.mpf(found.angle))
            there = abs(mpmath.polyval(values[::-1], wave)) / sum(map(abs, values))
        assert there >= found.margin


def test_a_change_smaller_than_the_margin_changes_nothing():
    kernel = noise(1, 64, seed=9)[0]
    found = index(kernel)
    for seed in range(5):
        change = noise(1, 64, seed=seed)[0]
        change *= 0.999 * found.margin * kernel.abs().sum() / change.abs().sum()
        assert index(kernel + change).index == found.index


def test_higher_precision_alone_says_the_same(monkeypatch):
    """Every arc left to fixed point: two ways through the proof, one answer."""
    kernel = noise(3, 12, seed=2)
    expected = [found.index for found in indices(kernel)]
    monkeypatch.setattr(arcs, "RESOLVED_ERROR_BOUNDS", 1e15)
    assert [found.index for found in indices(kernel)] == expected


def test_radius_counts_zeros_inside_other_circles():
    kernel = noise(5, 60, seed=4)
    for radius in (0.3, 0.9, 0.99, 1.01, 2.0):
        sizes = [abs(np.roots(row[::-1])) for row in kernel.numpy()]
        assert [found.index for found in indices(kernel, radius=radius)] == [
            -int((size < radius).sum()) for size in sizes
        ]


def test_scale_reversal_and_dtype():
    """A factor does nothing; reversed taps exchange inside and outside; float32 taps are exact."""
    kernel = noise(1, 100)[0].float()
    found = index(kernel).index
    assert found is not None
    for factor in (1e-30, -1.0, 1e30):
        assert index(kernel.double() * factor).index == found
    assert index(kernel.flip(0)).index == -99 - found
    assert index(torch.tensor([5e-324, 1e-323], dtype=torch.float64)).index == -1
    assert index(torch.tensor([1.0, 4.0]).bfloat16()).index == -1


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (torch.zeros(4), "layer 3 is zero at every tap"),
        (torch.tensor([[1.0, 2.0], [0.0, 0.0]]), "layer 3, filter 1, is zero at every tap"),
        (torch.tensor([1.0, math.nan]), "layer 3 has nan at tap 1"),
        (torch.tensor([math.inf, 1.0]), "layer 3 has inf at tap 0"),
        (torch.zeros(0), "layer 3 is empty"),
        (torch.ones(3, dtype=torch.complex64), "layer 3 is complex"),
    ],
)
def test_bad_filters_are_refused_by_name(kernel, words):
    with pytest.raises(ValueError, match=words):
        indices(kernel, name="layer 3")


def test_bad_settings_are_refused():
    kernel = torch.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="eps=0"):
        index(kernel, eps=0.0)
    with pytest.raises(ValueError, match="radius=-1"):
        index(kernel, radius=-1.0)
    with pytest.raises(ValueError, match="must be one filter"):
        index(torch.ones(2, 2))
