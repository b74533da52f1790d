"""Curves of symbols: closed, and around the origin as often as is certified."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from toeplix.reports.symbol_plot import draw_symbols, symbol_curve, symbol_panels
from toeplix.spectral import indices


def kernels(count, taps):
    generator = torch.Generator().manual_seed(0)
    decay = 0.7 ** torch.arange(taps)
    return torch.randn(count, taps, generator=generator, dtype=torch.float64) * decay


def turns(points):
    """The winding number of a closed polygon around the origin."""
    steps = np.angle(points[1:] / points[:-1])
    return steps.sum() / (2 * np.pi)


@pytest.mark.parametrize("taps", [1, 2, 16, 17])
def test_a_curve_winds_as_often_as_is_certified(taps):
    for kernel, proof in zip(kernels(6, taps), indices(kernels(6, taps)), strict=True):
        curve = symbol_curve(kernel).numpy()
        assert curve[0] == curve[-1]
        assert turns(curve) == pytest.approx(proof.index, abs=1e-6)


def test_a_thinned_curve_is_closed_and_as_small_as_asked():
    kernel = kernels(1, 64)[0]
    whole, thin = symbol_curve(kernel), symbol_curve(kernel, max_drawn=100)
    assert len(thin) <= 101 < len(whole)
    assert thin[0] == thin[-1]
    assert set(thin.tolist()) <= set(whole.tolist())


def test_a_normalised_curve_lies_in_the_unit_disc():
    for kernel in kernels(4, 32):
        curve = symbol_curve(kernel, normalise=True).abs()
        assert curve.max() <= 1 + 1e-12
        torch.testing.assert_close(curve * kernel.abs().sum(), symbol_curve(kernel).abs())


def test_what_is_drawn_is_the_curve_and_the_origin():
    axes = Figure().subplots()
    kernel = kernels(1, 8)[0]
    draw_symbols(axes, [kernel], colours=["C1"])
    curve, origin = axes.lines
    drawn = curve.get_xdata() + 1j * curve.get_ydata()
    np.testing.assert_array_equal(drawn, symbol_curve(kernel).numpy())
    assert (list(origin.get_xdata()), list(origin.get_ydata())) == ([0], [0])


def test_one_panel_for_each_filter():
    figure = symbol_panels([(f"filter {n}", each) for n, each in enumerate(kernels(5, 8))])
    assert [axes.get_title() for axes in figure.axes if axes.axison] == [
        f"filter {n}" for n in range(5)
    ]
