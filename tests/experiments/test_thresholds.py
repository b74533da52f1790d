"""Thresholds: every one has a reason, and computed ones agree with simulation."""

import numpy as np
import pytest

from toeplix.experiments.engine.claims import CLAIMS
from toeplix.experiments.engine.thresholds import THRESHOLDS, lines, noise_recency


def test_every_threshold_has_a_reason_and_a_claim():
    for name, value in THRESHOLDS.items():
        assert value.where.split(":")[0].split(" ")[0].strip(",").rstrip("abcdefgh") in CLAIMS, name
        assert len(value.reason) > 20
    assert len(lines()) == 2 + len(THRESHOLDS) + 1, "a head, and one threshold is computed"


@pytest.mark.parametrize(("taps", "newest", "filters"), [(32, 4, 4), (128, 16, 8)])
def test_recency_of_white_noise(taps, newest, filters):
    noise = np.random.default_rng(0).standard_normal((4000, filters, taps)) ** 2
    shares = (noise[..., :newest].sum(-1) / noise.sum(-1)).mean(-1)
    assert np.mean(shares > noise_recency(taps, newest, filters)) == pytest.approx(0.03, abs=0.012)
