"""The paper's table: complete, and differences within noise are marked."""

import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from toeplix.evaluation import paper
from toeplix.evaluation.paper import Score
from toeplix.evaluation.table import noisy, paper_table
from toeplix.experiments.engine.collect import published_file

ROOT = Path(__file__).parents[2]


def row(model, task, metric, value, stderr, count=1000, note=""):
    found = {"model": model, "task": task, "metric": metric, "value": value}
    return {**found, "stderr": stderr, "count": count, "note": note}


def drawn(rows):
    console = Console(width=150)
    with console.capture() as captured:
        console.print(paper_table(rows))
    return captured.get()


def line(text, label):
    (found,) = [each for each in text.splitlines() if label in each]
    return [cell.strip() for cell in found.strip("│").split("│")]


def test_published_values_are_on_file():
    lines = published_file("benchmarks").read_text().splitlines()
    assert [json.loads(line) for line in lines] == paper.published_rows()
    values = [json.loads(line)["found"]["percent"] for line in lines]
    # the paper leaves two of the Transformer's out
    assert sorted(map(len, values)) == [len(paper.TABLE) - 2, len(paper.TABLE), len(paper.TABLE)]


def test_the_harness_knows_the_same_group():
    text = (ROOT / "toeplix" / "evaluation" / "tasks" / "paper.yaml").read_text()
    assert [each[4:] for each in text.splitlines() if each.startswith("  - ")] == list(paper.TASKS)
    assert f"group: {paper.GROUP}" in text
    assert paper.expanded([paper.GROUP, "wikitext", "swde"]) == [*paper.TASKS, "wikitext"]


def test_noise():
    assert noisy(Score(50, 1, 1, 2000), Score(52.5, 1, 1, 2000))
    assert not noisy(Score(50, 1, 1, 2000), Score(53, 1, 1, 2000))
    # an error of zero is not believed: nothing right of 50 is within noise of one
    assert noisy(Score(0, 0, 1, 50), Score(2, 2, 1, 50))
    assert noisy(Score(3, math.nan, 1, 50), Score(3, math.nan, 1, 50))


def test_the_best_constant_answer_of_a_line():
    (glue,) = [each for each in paper.TABLE if each.label == "GLUE"]
    tasks = {"mrpc": ("acc", 0.7), "sst2": ("acc", 0.5), "cola": ("mcc", None)}
    found = {
        (task, metric): row(None, task, metric, 0.4, 0.01) | {"constant": share}
        for task, (metric, share) in tasks.items()
    }
    assert glue.constant_answer(found) == pytest.approx(40), "a correlation of zero in CoLA"
    assert glue.constant_answer({}) is None
    (swde,) = [each for each in paper.TABLE if each.label.startswith("SWDE")]
    free = row(None, "swde", "contains", 0.1, 0.01) | {"constant": None}
    assert swde.constant_answer({("swde", "contains"): free}) is None


def test_models_side_by_side():
    shown = drawn(
        [
            row("ours", "arc_easy", "acc", 0.30, 0.01, 2376),
            row("theirs", "arc_easy", "acc", 0.32, 0.01, 2376),
            row("ours", "lambada_openai", "acc", 0.02, 0.001, 5153),
            row("theirs", "lambada_openai", "acc", 0.04, 0.002, 5153),
        ]
    )
    assert line(shown, "ARC-Easy") == [
        *("ARC-Easy", "2376", "30.0 ± 1.0 ~", "32.0 ± 1.0", "49.7", "49.6", "49.3")
    ]
    assert line(shown, "LAMBADA")[2:] == ["2.0 ± 0.1", "4.0 ± 0.2", "4.0 ~", "7.2", "23.6"]
    assert "HellaSwag" not in shown


def test_means_over_tasks_and_parts_of_them():
    shown = drawn(
        [
            row("ours", "cola", "mcc", 0.1, 0.03, 1043),
            row("ours", "sst2", "acc", 0.5, 0.04, 872),
            row("ours", "squadv2", "f1", 41.0, 0.5, 11873),
            row("ours", "squad_completion", "contains", 0.021, 0.01, 10570, note="other questions"),
        ]
    )
    found = line(shown, "GLUE")
    assert found[0] == "GLUE (2 of 9 tasks) *"
    assert found[1:3] == ["1915", "30.0 ± 2.5"]
    assert line(shown, "SQuAD v2, F1")[2:4] == ["41.0 ± 0.5", "40.9 ~"]
    # other questions than the paper's are not compared with it
    assert line(shown, "SQuAD, contains")[0].endswith("*")
    assert line(shown, "SQuAD, contains")[3] == "2.1"


def test_the_error_of_a_published_share():
    (arc,) = [each for each in paper.TABLE if each.label == "ARC-Easy"]
    assert arc.published_error(50.0) == pytest.approx(100 * math.sqrt(0.25 / 2376))


def test_nothing_of_the_paper():
    assert paper_table([row("ours", "wikitext", "bits_per_byte", 1.0, None)]) is None
