"""The benchmark of evaluation: real requests, and a report with every contender."""

import pytest
from rich.console import Console

from toeplix.profiling.bench import evaluation

pytestmark = pytest.mark.slow

SIZES = {"dim": 8, "depth": 1, "vocab": 300, "context": 64}


def test_a_report(root):
    for place, data, requests in ((root, "ARC-Easy", 9), (None, "random words", 12)):
        report = evaluation.run(Console(quiet=True), place, 3, SIZES, rounds=1)
        assert (report["data"], report["requests"]) == (data, requests)
        assert set(report["seconds"]) == {"toeplix", "forward", "forward, scored"}
        assert report["toeplix_over"]["toeplix"] == 1


def test_rows_are_padded_at_their_ends():
    rows = [([5, 6, 7], 2), ([8], 1)]
    ((tokens, scored),) = evaluation._padded(rows)
    assert tokens.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert scored.tolist() == [[False, True, True], [True, False, False]]
