"""Histograms: every finite value is counted once, in its bin."""

import math

import pytest
import torch
from safetensors.torch import save_file

from toeplix.checkpoint import WEIGHTS
from toeplix.explorer import weights
from toeplix.explorer.differences import told_apart
from toeplix.explorer.weights import BINS, MAX_HISTOGRAMS, Weights, histogram


def test_values_are_in_their_bins():
    values = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    found = histogram(values)
    limit = float(values.abs().max())
    edges = [limit * (2 * number / BINS - 1) for number in range(BINS + 1)]
    expected = [
        sum(low <= float(value) < high for value in values.flatten())
        for low, high in zip(edges[:-1], [*edges[1:-1], math.inf], strict=True)
    ]
    assert found["counts"] == expected
    assert found["limit"] == pytest.approx(limit)
    assert found["deviation"] == pytest.approx(float(values.std(correction=0)), rel=1e-4)


@pytest.mark.parametrize(
    ("values", "counted", "odd"),
    [
        (torch.zeros(5), 5, 0),
        (torch.zeros(0), 0, 0),
        (torch.tensor([math.nan, math.inf, 1.0]), 1, 2),
        (torch.tensor([1e308, -1e308], dtype=torch.float64), 2, 0),
        (torch.tensor(3, dtype=torch.int8), 1, 0),
    ],
)
def test_odd_tensors(values, counted, odd):
    found = histogram(values)
    assert (sum(found["counts"]), found["not_finite"]) == (counted, odd)
    assert math.isfinite(found["limit"])


def test_a_large_tensor_is_sampled(monkeypatch):
    monkeypatch.setattr(weights, "MAX_COUNTED", 100)
    found = histogram(torch.arange(1001.0))
    assert 90 <= found["counted"] == sum(found["counts"]) <= 100


def test_names_are_in_the_order_of_the_model(tmp_path):
    tensors = {f"blocks.{number}.w": torch.ones(2, number + 1) for number in range(12)}
    save_file(tensors, tmp_path / WEIGHTS)
    found = Weights(tmp_path)
    assert found.tree()["parameters"] is None, "there is no record of the model"
    rows = found.tree()["tensors"]
    assert [row["name"] for row in rows] == [f"blocks.{number}.w" for number in range(12)]
    assert [row["numbers"] for row in rows] == [2 * number + 2 for number in range(12)]
    assert len(found.histograms("blocks.1")) == 1
    assert len(found.histograms("blocks")) == 12 <= MAX_HISTOGRAMS
    with pytest.raises(LookupError, match="no tensor or module 'block'"):
        found.histograms("block")


def test_runs_that_look_alike_are_told_apart():
    model = {"arch": "toeplitz", "dim": 8}
    base = {"model": model, "steps": 9, "seed": 0, "lr": 0.1, "data": "here"}
    runs = {
        "a": base,
        "b": base | {"seed": 1},
        "c": base | {"seed": 1, "data": "there"},
        "other": base | {"model": model | {"dim": 16}},
        "damaged": {},
    }
    assert told_apart(runs) == {"a": "seed 0", "b": "seed 1", "c": "seed 1, same settings as b"}
    many = {"a": base, "b": base | {f"x{number}": number for number in range(9)}}
    assert told_apart(many)["b"] == "x0 0, x1 1, x2 2, x3 3, …"
    assert told_apart({"a": base, "b": base}) == {"b": "same settings as a"}
