"""The certified index of recurrent filters: roots of the numerator, truncations, exact functions."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

from tests.spectral.test_indices import NEAR, SMALL
from tests.spectral.witness import by_numerator, partial_fractions, product
from toeplix.ops import recurrent_kernel
from toeplix.spectral import RationalFilter, index, rational_arcs, rational_index, rational_indices
from toeplix.spectral.rational_indices import rational_eps_index, symbol_maximum

GRID = [1 - 0.7 * 2.0**-k for k in range(8)]  # decays from 0.3 to 0.9945


def rational(free: list[float], weights: list[float], decays: list[float]) -> RationalFilter:
    values = (torch.tensor(value, dtype=torch.float64) for value in (free, weights, decays))
    return RationalFilter(**dict(zip(("free", "weights", "decays"), values, strict=True)))


def random_filter(short: int, rank: int, seed: int) -> RationalFilter:
    generator = torch.Generator().manual_seed(seed)
    free, weights = (torch.randn(n, generator=generator).double() for n in (short, rank))
    decays = torch.tensor(GRID[8 - rank :], dtype=torch.float64)
    return RationalFilter(free=free, weights=weights * (1 - decays**2).sqrt(), decays=decays)


def parameters(filter: RationalFilter) -> tuple[list[float], list[float], list[float]]:
    return filter.free.tolist(), filter.weights.tolist(), filter.decays.tolist()


def test_worked_examples():
    """rho^l has no zero and index 0; without its first tap it is rho u / (1 - rho u), a shift: -1."""
    for decay in (0.0, 0.5, 0.99, 1 - 2.0**-53):
        found = rational_index(rational([], [3.0], [decay]))
        assert (found.index, found.status) == (0, "certified")
    assert rational_index(rational([-1.0], [1.0], [0.5])).index == -1
    assert rational_index(rational([0.0, 0.0, 2.0], [], [])).index == -2
    assert rational_index(rational([0.0, 0.0, 1.0], [0.0], [0.5])).index == -2


def test_weights_of_one_sign_have_index_0():
    """The real part of 1 / (1 - rho u) is positive on the circle, so the curve cannot wind."""
    for seed in range(5):
        filter = random_filter(0, 8, seed)
        one = RationalFilter(free=filter.free, weights=-filter.weights.abs(), decays=filter.decays)
        assert rational_index(one).index == 0


@pytest.mark.parametrize("short", [0, 1, 2, 3, 5, 16])
@pytest.mark.parametrize("rank", [1, 2, 3, 8])
def test_random_filters_against_roots_of_the_numerator(short, rank):
    for seed in range(1 if short * rank > 50 else 3):
        filter = random_filter(short, rank, seed)
        found = rational_index(filter)
        assert (found.index, found.status) == (-by_numerator(*parameters(filter)), "certified")


@pytest.mark.parametrize("short", [0, 1, 16, 33])
def test_long_truncations_have_the_same_index(short):
    """The taps that are dropped sum to less than the margin, so this is a theorem."""
    for seed in range(4):
        filter = random_filter(short, 8, seed)
        free, weights, decays = (
            value[None] for value in (filter.free, filter.weights, filter.decays)
        )
        kernel = recurrent_kernel(free, weights, decays, 4096)[0]
        found = rational_index(filter)
        dropped = (filter.weights.abs() * filter.decays**4096 / (1 - filter.decays)).sum()
        assert dropped < found.margin * kernel.abs().sum()
        assert index(kernel).index == found.index
        torch.testing.assert_close(filter.taps(4096), kernel, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("near", NEAR)
@pytest.mark.parametrize("small", SMALL)
@pytest.mark.parametrize("decays", [[Fraction(1, 2)], [Fraction(1, 2), Fraction(3, 4)]], ids=len)
def test_exact_functions_with_zeros_near_the_circle(near, small, decays):
    """Zeros of integer factors, from 2e-7 to 1e-6 beside the circle, over given poles."""
    numerator = product([[Fraction(tap) for tap in taps] for taps, _ in (NEAR[near], SMALL[small])])
    free, weights = partial_fractions(numerator, decays)
    found = rational_index(rational(free, weights, [float(decay) for decay in decays]))
    assert found.status == "certified"
    assert found.index == -(NEAR[near][1] + SMALL[small][1])


@pytest.mark.parametrize("zero", [[1, -1], [1, 1], [1, 0, 1], [1, 1, 1, 1, 1], [5, -6, 5]], ids=str)
@pytest.mark.parametrize("decays", [[Fraction(1, 2)], [Fraction(1, 4), Fraction(7, 8)]], ids=len)
def test_zeros_on_the_circle_are_said_to_be_there(zero, decays):
    numerator = product([[Fraction(tap) for tap in zero], [Fraction(3), Fraction(1)]])
    free, weights = partial_fractions(numerator, decays)
    found = rational_index(rational(free, weights, [float(decay) for decay in decays]))
    assert (found.index, found.status) == (None, "not fredholm within eps")
    assert found.margin <= 2.0**-100
    assert abs(np.polyval(zero[::-1], np.exp(-1j * found.angle))) < 1e-12


@pytest.mark.parametrize("side", [-1, 1])
def test_a_zero_at_the_last_bit(side):
    """-2 (1 + d) + 1 / (1 - u / 2) has its zero at 1 + d, up to d^2, with d = 2^-52."""
    found = rational_index(rational([-2.0 - side * 2.0**-51], [1.0], [0.5]))
    assert (found.index, found.status) == (0 if side > 0 else -1, "certified")
    assert 2.0**-52 / 3 <= found.margin <= 2.0**-52  # |a(1)| = 2^-51, and the taps sum to 2
    assert rational_index(rational([-2.0 - side * 2.0**-51], [1.0], [0.5]), eps=1e-9).index is None


@pytest.mark.parametrize("bits", [20, 40, 52])
def test_poles_at_the_last_bit(bits):
    """1 + w / (1 - rho u) is 0 at u = (1 + w) / rho, beside the pole at 1 / rho."""
    gap = 2.0**-bits
    assert rational_index(rational([1.0], [-2 * gap], [1 - gap])).index == -1
    assert rational_index(rational([1.0], [-gap / 2], [1 - gap])).index == 0
    assert rational_index(rational([1.0], [gap], [1 - gap])).index == 0
    exactly = rational_index(rational([1.0], [-gap], [1 - gap]))
    assert (exactly.status, exactly.angle) == ("not fredholm within eps", pytest.approx(0))


def test_a_decay_of_1_has_no_index_unless_its_weights_cancel():
    found = rational_index(rational([1.0], [1e-30], [1.0]))
    assert (found.index, found.status, found.margin) == (None, "undefined", 0.0)
    assert "pole" in found.reason
    cancelled = rational([-1.0], [1.0, 2.0, -2.0], [0.5, 1.0, 1.0])
    assert rational_index(cancelled).index == -1
    assert rational_index(rational([], [1.0], [1.0]), radius=0.5).index == 0


def test_the_margin_bounds_the_symbol_from_below():
    for seed in range(4):
        filter = random_filter(5, 8, seed)
        found = rational_index(filter)
        angles = torch.cat([filter.angles(20_001), found.angle + torch.linspace(-1e-3, 1e-3, 2001)])
        total = filter.taps(8192).abs().sum()
        least = filter.symbol(angles).abs().min() / total
        assert least / 4 < found.margin <= least
        with mpmath.workdps(30):
            wave = mpmath.expj(-mpmath.mpf(found.angle))
            free, weights, decays = parameters(filter)
            poles = (w / (1 - mpmath.mpf(d) * wave) for w, d in zip(weights, decays, strict=True))
            there = abs(mpmath.polyval(free[::-1], wave) + sum(poles))
        assert there >= found.margin * total.item()


def test_higher_precision_alone_says_the_same(monkeypatch):
    """Every arc left to fixed point: two ways through the proof, one answer."""
    filters = [rational([0.3, -1.0], [1.0], [0.5]), rational([2.0, 1.0], [-1.0, 0.5], [0.25, 0.5])]
    expected = [rational_index(filter).index for filter in filters]
    for module in (rational_arcs, rational_indices):
        monkeypatch.setattr(module, "TAYLOR_RADIUS", 4)  # longer arcs, and more terms
    monkeypatch.setattr(rational_arcs, "RESOLVED_ERROR_BOUNDS", 1e18)
    assert [rational_index(filter).index for filter in filters] == expected


@pytest.mark.parametrize("radius", [0.3, 0.9, 0.99])
def test_radius_counts_zeros_inside_other_circles(radius):
    for seed in range(3):
        filter = random_filter(8, 4, seed)
        found = rational_index(filter, radius=radius)
        assert found.index == -by_numerator(*parameters(filter), radius=radius)
    assert (
        rational_eps_index(filter, 64).index
        == rational_index(filter, radius=1e-6 ** (1 / 64)).index
    )


def test_scale_and_order_do_not_matter():
    filter = random_filter(6, 5, seed=7)
    free, weights, decays = filter.free, filter.weights, filter.decays
    expected = rational_index(filter)
    for factor in (1e-300, -1.0, 1e300):
        scaled = RationalFilter(free=free * factor, weights=weights * factor, decays=decays)
        assert rational_index(scaled).index == expected.index
    split = torch.cat([weights / 2, weights.flip(0) / 2])
    twice = RationalFilter(free=free, weights=split, decays=torch.cat([decays, decays.flip(0)]))
    found = rational_index(twice)
    assert found.index == expected.index
    assert found.margin == pytest.approx(expected.margin, rel=0.5)


@pytest.mark.parametrize("short", [0, 1, 16])
def test_the_maximum_of_the_symbol(short):
    for seed in range(3):
        filter = random_filter(short, 8, seed)
        sampled = filter.symbol(filter.angles(200_000)).abs().max().item()
        assert symbol_maximum(filter) == pytest.approx(sampled, rel=1e-7)
    assert symbol_maximum(rational([], [1.0], [0.75])) == pytest.approx(4.0, rel=1e-12)
    assert symbol_maximum(rational([1.0], [1.0], [1.0])) == math.inf


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": [0.0, 0.0], "free": [0.0]}, "layer 3 is zero at every tap"),
        ({"weights": [1.0, -1.0], "free": [], "decays": [0.5, 0.5]}, "is zero at every tap"),
        ({"free": [-1.0], "weights": [1.0, 0.0], "decays": [0.0, 0.5]}, "is zero at every tap"),
        ({"weights": [1.0, math.nan]}, r"layer 3 has nan in weights\[1\]"),
        ({"free": [math.inf]}, r"layer 3 has inf in free\[0\]"),
        ({"decays": [0.5, 1.5]}, r"layer 3 has the decay 1.5: decays must be in \[0, 1\]"),
        ({"decays": [-0.5, 0.5]}, "layer 3 has the decay -0.5"),
        ({"decays": [0.5]}, "2 weights and 1 decays"),
        ({"free": [[1.0]]}, r"free of layer 3 must be real numbers of one filter"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_filters_are_refused_by_name(change, words):
    values = {"free": [1.0], "weights": [1.0, 2.0], "decays": [0.5, 0.9]} | change
    tensors = {name: torch.tensor(value) for name, value in values.items()}
    with pytest.raises(ValueError, match=words):
        RationalFilter(**tensors, name="layer 3")


def test_bad_settings_are_refused():
    filter = rational([1.0], [1.0], [0.5])
    with pytest.raises(ValueError, match="eps=0"):
        rational_index(filter, eps=0.0)
    with pytest.raises(ValueError, match="radius=-1"):
        rational_index(filter, radius=-1.0)
    with pytest.raises(ValueError, match=r"radius=2.5 must be positive and below the pole 2"):
        rational_index(filter, radius=2.5)
