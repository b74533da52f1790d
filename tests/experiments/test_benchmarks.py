"""The benchmarks experiment: from files in their published formats to scores, and what scores decide."""

import json

import pytest

from tests.evaluation.published import ARC, lines, write_all
from toeplix.experiments import SCALES, benchmarks
from toeplix.experiments.engine import benchmark_scores
from toeplix.experiments.engine.collect import collect
from toeplix.experiments.engine.report import draw

pytestmark = pytest.mark.slow


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
        assert row["constant_answers"]["ARC-Easy"] is None, "questions have their own choices"
        assert row["constant_answers"]["SWDE, contains"] is None
        assert (row["bits_per_byte"] is None) == (row["model"] in benchmarks.CONTROLS)
    assert (
        scored[-2]["scores"]["SWDE, contains"]["value"] == 0
    )  # the completions of the null model are empty
    assert draw("benchmarks", "smoke", results=results, figures=tmp_path).exists()


def test_every_task_is_found(tmp_path):
    root = write_all(tmp_path)
    assert benchmarks.available(root) == (*benchmarks.paper.TASKS, "wikitext")
    assert benchmarks.available(None) == ()


def row(model, seed, **scores):
    labels = {"swde": "SWDE, contains", "arc": "ARC-Easy", "squad": "SQuAD v2, F1"}
    made = {
        labels[name]: {"value": value, "error": 1.0, "tasks": 1, "questions": 500, "note": ""}
        for name, value in scores.items()
    }
    common = {"part": benchmarks.SCORES, "tasks": ["swde", "arc_easy"], "bits_per_byte": 2.0}
    common |= {"lr": 0.016, "loss": None if model in benchmarks.CONTROLS else 3.0}
    return {"model": model, "seed": seed, "scores": made, "truncated": [], **common}


CONTROLS = [row(name, 0, swde=0.0, arc=20.0, squad=50.0) for name in benchmarks.CONTROLS]


def verdict(ours, theirs, arc=(45.0, 45.2), squad=(50.0, 50.0)):
    rows = [
        row("paper flat", seed, swde=ours + seed / 10, arc=arc[0] + seed / 5, squad=squad[0])
        for seed in range(3)
    ]
    rows += [row("hyena", seed, swde=theirs, arc=arc[1], squad=squad[1]) for seed in range(3)]
    return benchmarks.holds(rows + CONTROLS)


def test_what_scores_decide():
    assert verdict(20.0, 4.0)["C14a"].kind == "holds"
    assert verdict(4.0, 20.0)["C14a"].kind == "fails"
    assert verdict(9.9, 10.0)["C14a"].kind == "undecided"
    at_chance = verdict(1.0, 0.0, arc=(25.0, 25.0))  # better, but neither is above chance
    assert {each.kind for each in at_chance.values()} == {"control not trained"}
    assert "paper flat in SWDE, contains (10.1 standard errors)" in verdict(10.0, 0.0)["C14a"].ours


def test_others_have_to_be_on_par():
    assert verdict(10.0, 4.0, arc=(30.0, 45.0))["C14b"].kind == "fails"
    assert verdict(10.0, 4.0, arc=(60.0, 45.0))["C14b"].kind == "holds"
    assert verdict(10.0, 4.0, arc=(25.0, 25.0))["C14b"].kind == "control not trained"


def test_lines_at_chance_decide_nothing():
    """The null model has 50 in SQuAD v2's F1: fewer empty answers than its are no retrieval."""
    assert verdict(10.0, 21.0, squad=(50.0, 20.0))["C14a"].kind == "fails"
    assert "SQuAD" not in verdict(10.0, 21.0, squad=(50.0, 20.0))["C14a"].ours


def test_prompts_that_do_not_fit_and_other_questions_decide_nothing():
    rows = [row("paper flat", seed, swde=30.0, arc=45.0) for seed in range(3)]
    rows += [row("hyena", seed, swde=10.0 + seed, arc=45.0) for seed in range(3)]
    assert benchmarks.holds(rows + CONTROLS)["C14a"].kind == "holds"
    rows[-1]["truncated"] = ["swde: prompts truncated 20 of 40"]
    assert benchmarks.holds(rows + CONTROLS)["C14a"].kind == "holds", "half of them fit"
    rows[-1]["truncated"] = ["swde: prompts truncated 21 of 40"]
    assert benchmarks.holds(rows + CONTROLS)["C14a"].kind == "not testable here"
    rows[-1]["truncated"] = []
    rows[0]["scores"]["SWDE, contains"]["note"] = "another split"
    assert benchmarks.holds(rows + CONTROLS)["C14a"].kind == "not testable here"


def test_tasks_that_fit_count_too():
    """Six of ten prompts of one task of three are cut, and of another all: a row has no other lines."""
    (glue,) = [line for line in benchmarks.TABLE if line.label == "GLUE"]
    several = row("hyena", 0) | {"tasks": list(glue.tasks[:3])}
    assert benchmark_scores.truncated(several, glue) is None
    first, second = glue.tasks[:2]
    several["truncated"] = [f"{first}: contexts truncated 240 of 400"]
    assert benchmark_scores.truncated(several, glue) == pytest.approx(0.2)
    several["truncated"] += [
        f"{second}: continuations truncated 40 of 40",
        "other: prompts truncated 1 of 1",
    ]
    assert benchmark_scores.truncated(several, glue) == pytest.approx(1.6 / 3)
    several["truncated"] = [
        f"{first}: contexts truncated 10 of 40",
        f"{first}: continuations truncated 20 of 40",
        f"{first}: prompts truncated 40 of 40",
    ]
    assert benchmark_scores.truncated(several, glue) == pytest.approx(70 / 80 / 3)


def test_questions_have_an_error_that_seeds_do_not_reduce():
    """Two standard errors of 1% over questions, and almost none over seeds."""
    kinds = {}
    for lead in (2.0, 20.0):
        rows = [row("paper flat", seed, swde=10 + lead + seed / 100) for seed in range(3)]
        rows += [row("hyena", seed, swde=10.0) for seed in range(3)]
        found = benchmarks.holds(rows + CONTROLS)["C14a"]
        kinds[lead] = found.kind
        assert f"± {4.3027 * 2**0.5:.3f}" in found.number
    assert kinds == {2.0: "undecided", 20.0: "holds"}


def test_models_of_equal_compute_are_evaluated_with_three_seeds(monkeypatch):
    desk = SCALES["desk"]
    every = (*benchmarks.paper.TASKS, "wikitext")
    monkeypatch.setattr(benchmarks, "available", lambda root: every)
    seen, before = {}, -1
    while len(seen) > before:
        before = len(seen)
        rows = [
            vars(case) | {"loss": 3.0, "tune_loss": abs(case.lr - 0.016)} for case in seen.values()
        ]
        for case in benchmarks.cases(desk, rows):
            seen[json.dumps(vars(case), sort_keys=True)] = case
    scored = [case for case in seen.values() if case.part == benchmarks.SCORES]
    for name, dim in {"paper flat": 80, "hyena": 64}.items():
        mine = [case for case in scored if case.model == name]
        assert {(case.dim, case.lr) for case in mine} == {(dim, 0.016)}
        assert sorted(case.seed for case in mine) == [0, 1, 2]
    assert {case.model for case in scored} == {"paper flat", "hyena", *benchmarks.CONTROLS}
    (tasks,) = {case.tasks for case in scored}
    assert {"xwinograd_en", "arc_easy", "wikitext"} < set(tasks) < set(every)
    assert "swde" not in tasks, "its prompts are longer than the context"
    others = [case for case in seen.values() if case not in scored]
    assert {case.seed for case in others} == {0}, "they choose a learning rate"


def test_a_rate_at_which_a_run_with_scores_diverged_is_given_up():
    desk, seen = SCALES["desk"], {}

    def searched(diverged):
        before = -1
        while len(seen) > before:
            before = len(seen)
            rows = []
            for case in seen.values():
                lost = (case.model, case.lr, case.seed) in diverged
                level = None if lost else abs(case.lr - 0.016)
                found = {"loss": level, "tune_loss": level, "diverged": "nan" if lost else None}
                rows.append(vars(case) | found | {"scores": {}})
            for case in benchmarks.cases(desk, rows):
                seen[json.dumps(vars(case), sort_keys=True)] = case
        return rows

    searched(set())
    rows = searched({("hyena", 0.016, 2)})
    (lr,) = {row["lr"] for row in benchmarks.evaluated(rows)["hyena"]}
    assert lr < 0.016
    assert sorted(row["seed"] for row in benchmarks.evaluated(rows)["hyena"]) == [0, 1, 2]


def test_without_controls_or_scores_nothing_is_decided():
    rows = [row(name, 0, swde=10.0, arc=45.0) for name in ("paper flat", "hyena")]
    assert benchmarks.holds([]) == benchmarks.holds(rows) == {}
    assert benchmarks.holds([*rows, *CONTROLS]) != {}
    without_data = [row(name, 0) | {"tasks": []} for name in ("paper flat", "hyena")]
    assert benchmarks.holds([*rows, *CONTROLS, *without_data]) != {}
    none = [each | {"tasks": []} for each in (*without_data, *CONTROLS)]
    assert "no data files" in benchmarks.holds(none)["C14a"].reason


def test_the_model_of_the_paper_decides():
    """The gated model of this library is shown beside it, whatever its scores."""
    best = [row("toeplitz", seed, swde=90.0, arc=90.0, squad=90.0) for seed in range(3)]
    rows = [row("paper flat", seed, swde=4.0 + seed / 10, arc=45.0) for seed in range(3)]
    rows += [row("hyena", seed, swde=20.0, arc=45.0) for seed in range(3)] + CONTROLS
    assert benchmarks.holds(rows + best) == benchmarks.holds(rows)
    assert benchmarks.holds(rows)["C14a"].kind == "fails"
    older = [each for each in rows + best if each["model"] != "paper flat"]
    assert {each.kind for each in benchmarks.holds(older).values()} == {"not testable here"}


def test_the_table_says_what_data_it_was():
    seen = row("toeplitz", 0, swde=1.0)
    seen["scores"]["SWDE, contains"]["note"] = "another split"
    seen["truncated"] = [
        "swde: prompts truncated 30 of 40",
        "arc_easy: contexts truncated 1 of 9",
        "swde: completions truncated 1 of 2",
    ]
    line = next(line for line in benchmarks.table([seen]) if "SWDE" in line["benchmark"])
    assert line["benchmark"] == "SWDE, contains *"
    assert line["data"] == "another split"
    assert line["truncated"] == "75%"


def test_guessing_is_not_knowing():
    (arc,) = [line for line in benchmarks.TABLE if line.label == "ARC-Easy"]
    rows = [row("toeplitz", seed, arc=27.0) for seed in range(3)]
    assert benchmarks.above_chance(benchmarks.evaluated(rows), "toeplitz", arc) == pytest.approx(2)
    assert benchmarks.above_chance(benchmarks.evaluated([]), "toeplitz", arc) is None


def test_always_the_same_answer_is_chance():
    (arc,) = [line for line in benchmarks.TABLE if line.label == "ARC-Easy"]
    rows = [row("toeplitz", seed, arc=29.0) for seed in range(3)]
    rows.append(row("null", 0, arc=10.0) | {"constant_answers": {"ARC-Easy": 28.0, "GLUE": None}})
    assert benchmarks.above_chance(benchmarks.evaluated(rows), "toeplitz", arc) == pytest.approx(1)


@pytest.mark.parametrize("control", benchmarks.CONTROLS)
def test_what_knows_nothing_is_chance(control):
    (arc,) = [line for line in benchmarks.TABLE if line.label == "ARC-Easy"]
    rows = [row("toeplitz", seed, arc=27.0) for seed in range(3)]
    rows += [row(control, 0, arc=26.0), row(control, 1, arc=27.0)]
    models = benchmarks.evaluated(rows)
    assert benchmarks.above_chance(models, "toeplitz", arc) == pytest.approx(0.5)
    models = benchmarks.evaluated([*rows[:3], row(control, 0, arc=10.0)])
    assert benchmarks.above_chance(models, "toeplitz", arc) == pytest.approx(2)
