"""Curves and indices that are shown: the definition, and the certified ones."""

import cmath

import pytest
import torch

from toeplix import load
from toeplix.reports.filter_curves import Filters, half
from toeplix.spectral import index


@pytest.mark.parametrize("taps", [1, 2, 31, 32, 33])
def test_half_of_the_symbol(taps):
    kernel = torch.randn(taps)
    curve = half(kernel, taps)
    last = len(curve) - 1
    for place in (0, 1, last // 3, last):
        theta = cmath.pi * place / last
        value = sum(float(w) * cmath.exp(-1j * lag * theta) for lag, w in enumerate(kernel))
        assert complex(curve[place]) == pytest.approx(value, abs=1e-5)


def test_every_filter_of_a_model(trained):
    checkpoint = trained / "first" / "model"
    model, filters = load(checkpoint), Filters(checkpoint)
    assert len(filters.rows) == 4
    for row in filters.rows:
        block = model.blocks[int(row["layer"].removeprefix("blocks."))]
        kernel = block.token_mixer.filters[0].kernel[row["head"], row["kernel"]].detach()
        assert (row["index"], row["status"]) == (index(kernel).index, "certified")
        sent = filters.one(row["layer"], row["head"], row["kernel"])
        assert sent["taps"] == pytest.approx(kernel.tolist(), rel=1e-5)
    with pytest.raises(LookupError, match=r"there is no filter blocks\.0, head 7"):
        filters.one("blocks.0", 7, 0)
