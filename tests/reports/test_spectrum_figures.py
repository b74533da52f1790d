"""Figures of `toeplix spectrum`: layers are numbered by integers."""

import pytest
import torch

from toeplix import Model, build
from toeplix.reports import spectrum_figures
from toeplix.reports.filters import layers


@pytest.mark.parametrize("depth", [1, 2, 3, 16])
def test_layers_have_integer_ticks(depth):
    torch.manual_seed(0)
    settings = {"arch": "toeplitz", "filter": "free", "vocab": 300, "dim": 8, "context": 8}
    found = layers(build(Model(**settings, depth=depth)))
    assert len(found) == depth
    figure = spectrum_figures.superimposed(found)
    figure.draw_without_rendering()
    bar = figure.axes[-1]
    assert bar.get_ylabel() == "layer"
    low, high = bar.get_ylim()
    ticks = [tick for tick in bar.get_yticks() if low <= tick <= high]
    assert len(ticks) >= 2
    assert all(float(tick).is_integer() for tick in ticks)
