"""The fit of a law of scaling: on losses made by a law, and where losses say nothing about one."""

import pytest

from toeplix.experiments import scaling


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(scaling, "RESAMPLES", 10)


def made(law):
    """A row for every width and number of steps, its loss by the law of weights and tokens."""
    found = []
    for dim in (32, 64, 96, 128):
        for steps in (75, 150, 300, 600):
            row = {"model": "toeplitz", "part": "grid", "dim": dim, "steps": steps, "vocab": 2000}
            row |= {"batch": 8, "context": 128, "parameters": 2 * dim * 2000 + 12 * dim**2}
            found.append(row | {"loss": law(*scaling.sizes_of(row))})
    return found


def test_a_law_is_found_again():
    rows = made(lambda weights, tokens: 1.5 + 60 / weights**0.5 + 300 / tokens**0.4)
    fitted = scaling.fit(rows)
    assert fitted == pytest.approx({"E": 1.5, "a": 0.5, "b": 0.4}, rel=0.02)
    (line,) = scaling.table(rows)
    assert line["b"] == "0.40 (0.40 to 0.40)"


def test_texts_are_not_fitted_together():
    law = made(lambda weights, tokens: 1.5 + 60 / weights**0.5 + 300 / tokens**0.4)
    rows = [{**row, "data": "one"} for row in law]
    others = [{**row, "data": "other", "loss": 2 * row["loss"]} for row in rows[:-1]]
    assert scaling.table([*others, *rows]) == scaling.table(rows)


def test_what_is_not_determined_is_called_open():
    rows = made(lambda weights, tokens: 300 / tokens**0.4)
    (line,) = scaling.table(rows)
    assert line["E"].startswith("open")
    assert line["b"].startswith("0.40")
