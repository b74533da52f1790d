"""The benchmarks experiment: from files in their published formats to scores, and what scores decide."""

import pytest

from tests.evaluation.published import ARC, lines, write_all
from toeplix.experiments import SCALES, benchmarks
from toeplix.experiments.collect import collect
from toeplix.experiments.report import draw


@pytest.mark.usefixtures("unchecked")
def test_scores_of_what_there_is_data_for(tmp_path, monkeypatch):
    lines(tmp_path / "data" / "ARC-Easy-Test.jsonl", ARC)
    lines(tmp_path / "data" / "based-swde-v2.jsonl", [{"value": "b", "text": "x: a:"}] * 2)
    monkeypatch.setenv("TOEPLIX_BENCHMARKS", str(tmp_path / "data"))
    results, work = tmp_path / "results", tmp_path / "work"
    found = collect("benchmarks", SCALES["smoke"], results=results, work=work)
    scored = [row for row in found if row["part"] == benchmarks.SCORES]
    assert [row["model"] for row in scored] == [*benchmarks.COMPARED, *benchmarks.CONTROLS]
    for row in scored:
        assert row["tasks"] == ["swde", "arc_easy"]
        assert set(row["scores"]) == {"SWDE, contains", "ARC-Easy"}
        assert row["scores"]["ARC-Easy"]["questions"] == 2  # the limit of this scale
        assert (row["bits_per_byte"] is None) == (row["model"] in benchmarks.CONTROLS)
    assert scored[-2]["scores"]["SWDE, contains"]["value"] == 0  # silence holds no answer
    assert draw("benchmarks", "smoke", results=results, figures=tmp_path).exists()


def test_every_task_is_found(tmp_path):
    root = write_all(tmp_path)
    assert benchmarks.available(root) == (*benchmarks.paper.TASKS, "wikitext")
    assert benchmarks.available(None) == ()


def row(model, seed, **scores):
    labels = {"swde": "SWDE, contains", "arc": "ARC-Easy"}
    made = {
        labels[name]: {"value": value, "error": 1.0, "tasks": 1, "questions": 500, "note": ""}
        for name, value in scores.items()
    }
    common = {"part": benchmarks.SCORES, "tasks": ["swde", "arc_easy"], "bits_per_byte": 2.0}
    return {"model": model, "seed": seed, "scores": made, **common}


def verdict(ours, theirs):
    rows = [row("toeplitz", seed, swde=ours + seed / 10, arc=25.0) for seed in range(3)]
    rows += [row("hyena", seed, swde=theirs, arc=25.2) for seed in range(3)]
    return benchmarks.holds(rows)["C14"]


def test_what_scores_decide():
    assert verdict(10.0, 4.0).holds is True
    assert verdict(4.0, 10.0).holds is False
    assert verdict(9.9, 10.0).holds is None
    at_chance = verdict(1.0, 0.0)  # better, but neither is above chance
    assert at_chance.holds is None
    assert "above chance: none" in at_chance.ours
    assert "toeplitz in SWDE, contains (10.1 standard errors)" in verdict(10.0, 0.0).ours
    assert benchmarks.holds([]) == {}


def test_guessing_is_not_knowing():
    (arc,) = [line for line in benchmarks.TABLE if line.label == "ARC-Easy"]
    rows = [row("toeplitz", seed, arc=27.0) for seed in range(3)]
    assert benchmarks.above_chance(benchmarks.evaluated(rows), "toeplitz", arc) == pytest.approx(2)
    assert benchmarks.above_chance(benchmarks.evaluated([]), "toeplitz", arc) is None


@pytest.mark.parametrize("control", benchmarks.CONTROLS)
def test_what_knows_nothing_is_chance(control):
    (arc,) = [line for line in benchmarks.TABLE if line.label == "ARC-Easy"]
    rows = [row("toeplitz", seed, arc=27.0) for seed in range(3)]
    rows += [row(control, 0, arc=26.0), row(control, 1, arc=27.0)]
    models = benchmarks.evaluated(rows)
    assert benchmarks.above_chance(models, "toeplitz", arc) == pytest.approx(0.5)
    models = benchmarks.evaluated([*rows[:3], row(control, 0, arc=10.0)])
    assert benchmarks.above_chance(models, "toeplitz", arc) == pytest.approx(2)
