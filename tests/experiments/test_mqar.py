"""Recall until the control solves it: others follow the control, and not where it fails."""

from dataclasses import replace

from toeplix.experiments import mqar
from toeplix.experiments.engine import rows as stored
from toeplix.experiments.engine import task_training
from toeplix.experiments.engine.scale import SCALES

DESK = SCALES["desk"]


def row(case, solved):
    accuracy = 0.4 if solved is None else 0.96
    return stored.record(case) | {
        "solved": solved,
        "tune_solved": solved,
        "loss": 1.0,
        "tune_loss": 1.0,
        "accuracy": accuracy,
    }


def measured(solved_at):
    """All rows of the control: `solved_at(setting, lr)` says after how many steps it solved one."""
    found = {}
    for _ in range(10):
        for case in mqar.cases(DESK, list(found.values())):
            if case.model == mqar.CONTROL:
                setting = mqar.Setting(case.options["pairs"], case.dim, case.context)
                found[stored.key(stored.record(case))] = row(case, solved_at(setting, case.lr))
    return list(found.values())


def test_others_wait_for_the_control():
    assert {case.model for case in mqar.cases(DESK, [])} == {mqar.CONTROL}
    assert all(case.steps == 10_000 for case in mqar.cases(DESK, []))


def test_others_get_a_multiple_of_the_steps_of_the_control():
    hard = mqar.SETTINGS["desk"][2]
    rows = measured(
        lambda setting, lr: None if setting == hard else int(1230 * (1 + abs(lr - 4e-3)))
    )
    assert mqar.steps_of_others(DESK, hard, rows) is None, "nothing is concluded there"
    assert {row["seed"] for row in rows if row["options"]["pairs"] == hard.pairs} == {0}
    first = mqar.SETTINGS["desk"][0]
    steps = mqar.steps_of_others(DESK, first, rows)
    assert steps == 2500
    others = [case for case in mqar.cases(DESK, rows) if case.model != mqar.CONTROL]
    assert {case.model for case in others} == set(mqar.NAMES) - {"mamba2"}
    assert {case.steps for case in others} == {2500}
    assert {mqar.Setting(c.options["pairs"], c.dim, c.context) for c in others} == {first}


def test_other_widths_are_tuned_around_the_known_rate():
    """At every other setting, with one seed."""
    rows = measured(lambda setting, lr: int(1230 * (1 + abs(lr - 4e-3))))
    for _ in range(10):
        others = [case for case in mqar.cases(DESK, rows) if case.model != mqar.CONTROL]
        known = {stored.key(stored.record(case)): case for case in others}
        rows = [each for each in rows if each["model"] == mqar.CONTROL]
        rows += [row(case, int(900 * (1 + abs(case.lr - 4e-3)))) for case in known.values()]
    for setting in mqar.SETTINGS["desk"][1:]:
        here = [
            case for case in others if (case.dim, case.context) == (setting.dim, setting.context)
        ]
        here = [case for case in here if case.options["pairs"] == setting.pairs]
        assert {case.lr for case in here} == {2e-3, 4e-3, 8e-3}
        assert {case.seed for case in here} == {DESK.seeds[0]}
        assert {case.model for case in here} == set(mqar.names(DESK))


def test_learning_rates_of_the_control_are_tried_one_after_the_other():
    """Those after one that solves the setting end where it did; its own run and other seeds do not."""
    found, order = {}, []
    for _ in range(10):
        first = [
            case
            for case in mqar.cases(DESK, list(found.values()))
            if case.model == mqar.CONTROL and case.options["pairs"] == 4
        ]
        new = [case for case in first if stored.key(stored.record(case)) not in found]
        if not new:
            break
        order.append([(case.lr, case.seed, case.limit) for case in new])
        for case in new:
            steps = {2e-3: None, 4e-3: 900, 8e-3: 700}.get(case.lr)
            solved = None if steps is None or steps > (case.limit or steps) else steps
            found[stored.key(stored.record(case))] = row(case, solved)
    assert order == [
        [(2e-3, 0, None)],
        [(4e-3, 0, None)],
        [(8e-3, 0, 900)],
        [(1.6e-2, 0, 700)],
        [(8e-3, 1, None), (8e-3, 2, None)],
    ]


def test_a_run_that_diverged_sets_no_limit():
    first = [case for case in mqar.cases(DESK, []) if case.options["pairs"] == 4]
    spoiled = row(first[0], 700) | {"diverged": "the loss is nan"}
    (second,) = [
        case
        for case in mqar.cases(DESK, [spoiled])
        if case.options["pairs"] == 4 and case.lr != first[0].lr
    ]
    assert second.limit is None


def test_a_run_with_a_limit_is_the_beginning_of_the_same_run(tmp_path):
    case = replace(mqar.cases(SCALES["smoke"], [])[0], steps=60, lr=1e-2)
    long, short = (mqar.measure(replace(case, limit=limit), tmp_path) for limit in (None, 31))
    assert short["curve"] == [point for point in long["curve"] if point[0] <= 31]
    assert [point[0] for point in short["curve"]][-1] == 31


def test_a_run_that_is_solved_on_the_tuning_half_goes_on_beyond_its_limit(tmp_path, monkeypatch):
    """It may be the fastest, and then has to say when it solved the reported half."""
    case = replace(mqar.cases(SCALES["smoke"], [])[0], steps=50, limit=20)

    def ended(*accuracies):
        """Evaluations on the reported and the tuning half, in turns."""
        several = iter(accuracies)
        monkeypatch.setattr(task_training, "score", lambda *_: (1.0, next(several, 1.0)))
        folder = tmp_path / str(len(accuracies))
        return mqar.measure(case, folder)

    both = [0.5] * 19 * 2
    assert ended(*both, 0.94, 0.94)["curve"][-1][0] == 20
    found = ended(*both, 0.94, 0.96, 0.94, 0.96)
    assert (found["curve"][-1][0], found["tune_solved"]) == (22, 20)
    assert found["solved"] is not None


def test_a_run_ends_at_the_target_accuracy(tmp_path):
    case = replace(
        mqar.cases(SCALES["smoke"], [])[0], options={"pairs": 1}, context=8, vocab=5, lr=2e-2
    )
    long = replace(case, steps=1500, batch=32, eval_sequences=64, seed=1)
    found = mqar.measure(long, tmp_path)
    assert found["accuracy"] >= 0.95
    assert found["curve"][-1][0] < long.steps
