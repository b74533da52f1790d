"""Copying and recall: their claims on rows made by hand."""

import pytest

from tests.experiments.rows_by_hand import kinds, solved
from toeplix.experiments import SCALES, copying, frozen, recall
from toeplix.experiments.engine import accuracies
from toeplix.experiments.engine.task_training import area
from toeplix.experiments.engine.task_tuning import by_seed, effort, groups


def copied(narrow=0.5, **levels):
    """The paper's order, but for what is given."""
    found = {
        "toeplitz": 0.8,
        "paper flat": 0.9,
        "paper 4 heads": 0.8,
        "masked": 0.7,
        "hyena": 0.5,
        "mamba2": 0.3,
        "llama": 0.85,
        "window": 0.6,
        "linear elu": 0.2,
        "frozen flat": 0.1,
        "frozen 4 heads": 0.4,
    }
    found |= {name.replace("_", " "): level for name, level in levels.items()}
    rows = []
    for name, level in found.items():
        right = {} if name.startswith("frozen") else {"accuracy": 0.97 if level > 0.25 else 0.5}
        rows += solved(name, level, part="constant lag", **right)
    rows += solved("hyena", 0.5, part="narrow", dim=256, accuracy=0.97)
    return rows + solved("paper flat", narrow, part="narrow", dim=8)


def test_copying_in_the_order_of_the_paper():
    found = kinds(copying.holds(copied()))
    assert found == dict.fromkeys(["C12a", "C12b", "C12c", "C12d", "C13a", "C13b", "C13c"], "holds")


@pytest.mark.parametrize(
    ("changed", "claim", "answer"),
    [
        ({"llama": 0.99}, "C12a", "fails"),
        ({"llama": 0.93}, "C12a", "holds"),
        ({"llama": 0.93}, "C13b", "fails"),
        ({"llama": 0.2}, "C12a", "control not trained"),
        ({"hyena": 0.26}, "C12c", "fails"),
        ({"hyena": 0.1}, "C12c", "control not trained"),
        ({"narrow": 0.3}, "C12d", "fails"),
        ({"frozen_flat": 0.99}, "C13a", "fails"),
        ({"frozen_4_heads": 0.99}, "C13a", "holds"),  # the paper: only the flat one cannot
        ({"frozen_4_heads": 0.89}, "C13c", "fails"),
        ({"llama": 0.2}, "C13c", "control not trained"),
        ({"masked": 0.9}, "C13b", "undecided"),
        ({"toeplitz": 0.95}, "C13b", "holds"),
    ],
)
def test_copying_in_another_order(changed, claim, answer):
    assert copying.holds(copied(**changed))[claim].kind == answer


def test_copying_at_the_desk_is_evaluated_a_hundred_times():
    """Every 6 steps; rows of scale laptop keep their 50 evaluations."""

    def counts(scale):
        return {case.evaluations for case in copying.cases(SCALES[scale], [])}

    assert (counts("desk"), counts("laptop"), counts("paper")) == ({100}, {50}, {100})


def test_copying_at_the_desk_is_the_papers_task():
    """No claim is about the harder tasks."""

    def parts(scale):
        return {case.part for case in copying.cases(SCALES[scale], [])}

    assert parts("laptop") - parts("desk") == {"variable lag"}
    assert parts("desk") == {"constant lag", "narrow"}
    same = [case for case in copying.cases(SCALES["desk"], []) if case.part == "constant lag"]
    assert {case.model for case in same} == set(copying.COMPARED), "C12 and C13 compare all of them"


def test_the_better_model_is_chosen_on_batches_that_are_not_reported():
    order = copied(paper_flat=0.8, paper_4_heads=0.9)
    assert "llama minus paper 4 heads" in copying.holds(order)["C12a"].ours
    for row in order:
        row["tune_solved"] = 100 if row["model"] == "paper flat" else 200
    assert "llama minus paper flat" in copying.holds(order)["C12a"].ours


def test_copying_waits_for_all_models():
    assert copying.holds([]) == {}
    assert copying.holds(solved("llama", 0.9, part="constant lag")) == {}
    without = [row for row in copied() if row["part"] != "narrow"]
    assert set(copying.holds(without)) == {"C12a", "C12b", "C12c", "C13a", "C13b", "C13c"}
    two = [row | {"dim": 2} if row["dim"] == 8 else row for row in copied()]
    assert copying.holds(two)["C12d"].kind == "not testable here", "two channels say nothing"


def test_frozen_at_the_desk_is_without_ones():
    """Noise decides the claim."""
    names = {case.model for case in frozen.cases(SCALES["desk"], [])}
    assert names == {"paper flat", "paper 4 heads", "frozen flat", "frozen 4 heads"}
    assert {case.model for case in frozen.cases(SCALES["laptop"], [])} == set(frozen.COMPARED)


def test_guessing_looks_nothing_up():
    """One pair is known; of more, somewhat more than one of so many; a full context has no places."""
    assert recall.guessing(8, 9, 1, texts=50) == 1
    assert 0.5 < recall.guessing(32, 65, 2, texts=400) < 0.7
    assert 0.27 < recall.guessing(32, 65, 4, texts=400) < 0.4


def test_recall_decides_no_claim():
    assert recall.holds(solved("llama", 0.9, part="pairs")) == {}


def test_area_by_hand():
    assert area([[100, 1.0, 0.5], [200, 0.5, 1.0]], 400) == pytest.approx((25 + 75 + 200) / 400)
    assert area([], 100) == 0


def test_the_rate_that_solves_first_wins_then_the_lower_loss():
    quick = solved("hyena", 0.96, part="x", steps=100, lr=0.02)
    slow = solved("hyena", 0.99, part="x", steps=200, lr=0.01)
    assert {row["lr"] for row in groups(quick + slow)[0]} == {0.02}
    assert effort(quick) < effort(slow) < effort(solved("hyena", 1.0, part="x"))
    better, worse = solved("a", 0.5, part="x", lr=1), solved("a", 0.4, part="x", lr=2)
    assert {row["lr"] for row in groups(better + worse)[0]} == {1}
    for row in quick:
        row["loss"] = None
    assert {row["lr"] for row in groups(quick + slow)[0]} == {0.01}, "solved, then diverged"


def test_the_loss_at_the_end_chooses_rates_of_autoencoders():
    """They are compared by their accuracy at the end, not by the steps on the way."""
    quick = solved("hyena", 0.96, part="x", steps=100, lr=0.02, task="autoencode")
    slow = solved("hyena", 0.99, part="x", steps=200, lr=0.01, task="autoencode")
    assert {row["lr"] for row in groups(quick + slow)[0]} == {0.01}


def test_steps_in_words():
    rows = solved("hyena", 0.96, part="x", steps=100)
    assert accuracies.steps_to_target(rows) == "100 ± 0"
    rows[0]["solved"] = None
    assert accuracies.steps_to_target(rows) == "100 ± 0 (2 of 3 seeds)"
    assert accuracies.steps_to_target(solved("hyena", 0.9, part="x")) == "not in 300"
    assert by_seed(rows, "solved") == {1: 100, 2: 100}
