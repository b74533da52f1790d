"""A file of rows may have several texts: tasks are compared on one of them."""

import json
from dataclasses import fields

import pytest

from toeplix.experiments import SCALES, load
from toeplix.experiments.engine import report
from toeplix.experiments.engine.collect import _Missing, results_file
from toeplix.experiments.engine.text_rows import comparable

TASKS = ("capacity", "copying", "retention", "index", "filters", "symbols")


def rows_of(*texts):
    """A row a text and number; the last text has one row less."""
    every = [{"model": str(n), "data": text} for text in texts for n in range(3)]
    return every[:-1]


@pytest.mark.parametrize("name", TASKS)
def test_tasks_are_compared_on_one_text(name):
    case, both = load(name).Case, rows_of("one", "other")
    anywhere = [{"model": "0", "data": ""}]
    assert comparable(case, [*both, *anywhere]) == [*both[:3], *anywhere]
    assert comparable(case, [*both, *anywhere], "other") == [*both[3:], *anywhere]


def test_training_on_text_chooses_by_itself():
    both = rows_of("one", "other")
    assert comparable(load("family").Case, both) == both, "it has two texts"


def test_the_report_and_the_next_cases_see_one_text(tmp_path, monkeypatch):
    experiment, scale = load("capacity"), SCALES["laptop"]
    first = experiment.cases(scale, [])[0]
    own = {field.name: getattr(first, field.name) for field in fields(first)}
    file = results_file("capacity", "laptop", tmp_path)
    file.parent.mkdir()
    with open(file, "w") as lines:
        for data, seeds in ((scale.data, (0, 1)), ("other", (2, 3, 4))):
            for seed in seeds:
                case = own | {"data": data, "seed": seed}
                lines.write(json.dumps({"case": case, "found": {}}) + "\n")
    shown, _ = report.reported("capacity", "laptop", tmp_path)
    assert [row["seed"] for row in shown] == [2, 3, 4]
    asked = []
    monkeypatch.setattr(experiment, "cases", lambda scale, rows: asked.append(rows) or [])
    _Missing(experiment, scale, file, lambda row, done, known: None).take()
    assert [row["seed"] for row in asked[0]] == [0, 1]
