"""The frontier: every model ends at its best width and rate; claims follow from rows."""

import math

import pytest

from toeplix.experiments import frontier
from toeplix.experiments.engine import frontier_rows
from toeplix.experiments.engine import rows as stored
from toeplix.experiments.engine.scale import SCALES

DESK = SCALES["desk"]
BUDGETS = frontier.SIZES["desk"].budgets
BEST = {BUDGETS[0]: 32, BUDGETS[1]: 64, BUDGETS[2]: 96}
RATE = 1.6e-2


def simulated(case, shift):
    """A row whose loss is a bowl around the best width of the budget and one learning rate."""
    width = math.log2(case.dim / BEST[case.budget]) ** 2
    rate = math.log2(case.lr / RATE) ** 2
    jitter = 0.002 * ((case.seed * (7 + len(case.model)) + sum(map(ord, case.model))) % 5 - 2)
    loss = 4 - 0.2 * BUDGETS.index(case.budget) + 0.1 * width + 0.05 * rate + shift + jitter
    return stored.record(case) | {
        "loss": loss,
        "tune_loss": loss,
        "bigram_loss": 5.0,
        "parameters": 1000 * case.dim,
        "flops_per_step": case.budget / case.steps,
        "relative_time": case.dim / 64 * (2 if case.model == "hyena" else 1),
    }


def searched(shifts, scale=DESK):
    """All rows of a run to its end, with the loss of each model shifted."""
    found = {}
    for _ in range(30):
        missing = {
            stored.key(stored.record(case)): case
            for case in frontier.cases(scale, list(found.values()))
            if stored.key(stored.record(case)) not in found
        }
        if not missing:
            return list(found.values())
        for key, case in missing.items():
            found[key] = simulated(case, shifts.get(case.model, 0.0))
    raise AssertionError("the search does not end")


@pytest.fixture(scope="module")
def rows():
    return searched({"hyena": 0.1, "mamba2": 0.2})


def test_every_model_reaches_its_best_width_and_rate(rows):
    for name, budgets in frontier.frontier(rows).items():
        assert list(budgets) == list(BUDGETS), name
        for budget, group in budgets.items():
            assert group[0]["dim"] == BEST[budget]
            assert group[0]["lr"] == pytest.approx(RATE, rel=0.3)
            assert {row["seed"] for row in group} == {0, 1, 2}, "clear with three seeds"
    assert set(frontier.frontier(rows)) == {*frontier.COMPARED} - {"toeplitz"}


def test_what_three_seeds_leave_open_has_six_at_all_budgets():
    rows = searched({"hyena": -frontier.SIMILAR_LOSS, "paper flat": 0.1, "mamba2": 0.2})
    best = frontier.frontier(rows)
    wanted = {"paper 4 heads": 6, "hyena": 6, "paper flat": 3, "mamba2": 3, "llama": 3}
    for name, several in wanted.items():
        assert [len(group) for group in best[name].values()] == [several] * 3, name
    # interrupted anywhere, the search asks for no other cases
    every = {stored.key(stored.record(frontier.Case(**_fields(row)))) for row in rows}
    for end in range(0, len(rows), 7):
        again = frontier.cases(DESK, rows[:end])
        assert {stored.key(stored.record(case)) for case in again} <= every


def _fields(row):
    return {name: row[name] for name in frontier.Case.__dataclass_fields__}


def _key(row):
    return stored.key(_fields(row))


def test_what_is_open_at_equal_time_has_six_seeds():
    """Hyena's steps take twice the time here: much better at equal FLOPs, it is level in time."""
    for shift, several in {-0.12: 6, -0.06: 3}.items():
        best = frontier.frontier(searched({"hyena": shift, "paper flat": 0.1, "mamba2": 0.2}))
        assert [len(group) for group in best["hyena"].values()] == [several] * 3, shift


def test_rows_of_another_corpus_are_not_pooled(rows):
    known = {stored.key(stored.record(case)) for case in frontier.cases(DESK, rows)}
    other = [row | {"data": "other@0123456789ab", "loss": 1.0, "tune_loss": 1.0} for row in rows]
    for both in (rows + other[: len(rows) // 2], other[: len(rows) // 2] + rows):
        assert {stored.key(stored.record(case)) for case in frontier.cases(DESK, both)} == known
        assert frontier.frontier(both) == frontier.frontier(rows)
        assert frontier.table(both) == frontier.table(rows)
    first = {stored.key(stored.record(case)) for case in frontier.cases(DESK, other)}
    assert first == {stored.key(stored.record(case)) for case in frontier.cases(DESK, [])}


def test_runs_of_a_budget_cost_the_same(rows):
    from toeplix.architectures import forward_flops
    from toeplix.experiments.engine.models import model

    for row in rows[:: len(rows) // 20]:
        sizes = {key: row[key] for key in ("dim", "depth", "context", "vocab")}
        config = model(row["settings"], **sizes)
        step = 3 * forward_flops(config, row["context"], row["batch"])
        assert row["steps"] * step == pytest.approx(row["budget"], rel=0.02)


def test_the_search_is_affordable(rows):
    """Runs of the largest budget decide what the experiment costs: about seven for each model."""
    largest = [row for row in rows if row["budget"] == BUDGETS[-1]]
    assert len(largest) <= 10 * (len(frontier.COMPARED) - 1)
    assert sum(row["budget"] for row in rows) < 1.5 * sum(row["budget"] for row in largest)


def test_what_is_measured_twice_is_the_same(rows):
    """An interrupted search goes on to the same end."""
    kept = rows[: len(rows) // 2]
    again = {stored.key(stored.record(case)) for case in frontier.cases(DESK, kept)}
    assert again <= {
        stored.key({key: row[key] for key in stored.record(frontier.cases(DESK, [])[0])})
        for row in rows
    }


@pytest.mark.parametrize(("shift", "kind"), [(0.1, "holds"), (-0.2, "fails")])
def test_the_claim_is_decided_at_the_largest_budget(shift, kind):
    found = frontier.holds(searched({"hyena": shift, "mamba2": shift}))
    assert {part: verdict.kind for part, verdict in found.items()} == {
        "C1a": kind,
        "C1b": kind,
        "C1c": kind,
    }
    assert f"{BUDGETS[-1]:.2g} FLOPs" in found["C1a"].reason


def test_models_that_no_part_names_are_not_needed():
    rows = searched({"hyena": 0.1, "mamba2": 0.1})
    some = [row for row in rows if row["model"] not in ("llama", "hybrid", "toeplitz")]
    assert frontier.holds(some) == frontier.holds(rows) != {}
    assert frontier.holds([row for row in some if row["model"] != "mamba2"]) == {}


def test_a_control_below_a_bigram_model_decides_nothing():
    assert frontier.holds(searched({"hyena": 3.0}))["C1a"].kind == "control not trained"


def test_where_a_seed_diverged_the_next_best_is_repeated():
    rows = searched({"hyena": 0.2, "mamba2": 0.2})
    first = frontier.frontier(rows)["hyena"][BUDGETS[2]]
    lost = {"loss": None, "tune_loss": None}
    rows = [row | lost if _key(row) == _key(first[-1]) else row for row in rows]
    assert BUDGETS[2] not in frontier.frontier(rows)["hyena"], "its next best has one seed yet"
    assert frontier.holds(rows) == {}
    for _ in range(30):
        known = {stored.key(_fields(row)) for row in rows}
        cases = [
            case
            for case in frontier.cases(DESK, rows)
            if stored.key(stored.record(case)) not in known
        ]
        if not cases:
            break
        rows += [simulated(case, 0.2) for case in cases]
    second = frontier.frontier(rows)["hyena"][BUDGETS[2]]
    assert {row["seed"] for row in second} == {0, 1, 2}
    assert frontier_rows.point_of(second[0]) != frontier_rows.point_of(first[0])
    assert all(verdict.kind == "holds" for verdict in frontier.holds(rows).values())
    lines = [line for line in frontier.table(rows) if line["model"] == "hyena"]
    assert [line["diverged"] for line in lines] == ["", "", 1]


def test_a_search_that_has_not_ended_decides_nothing(rows):
    """The best of Mamba 2 at the largest budget is not repeated with all seeds yet."""
    best = frontier.frontier(rows)["mamba2"][BUDGETS[2]]
    some = [row for row in rows if _key(row) not in map(_key, best[1:])]
    assert frontier.holds(some) == {}
    assert list(frontier.frontier(some)["mamba2"]) == list(BUDGETS[:2])


def test_learning_rates_and_widths_are_chosen_on_other_documents(rows):
    """Reported losses do not choose: with any others, the same points are the best."""
    other = [row | {"loss": row["lr"] * row["dim"]} for row in rows]
    points = [
        {
            name: [frontier_rows.point_of(group[0]) for group in budgets.values()]
            for name, budgets in frontier.frontier(each).items()
        }
        for each in (rows, other)
    ]
    assert points[0] == points[1]


def test_the_table_says_where_the_ladder_ends(rows):
    lines = [line for line in frontier.table(rows) if line["model"] == "hyena"]
    assert {line["width, among those tried"] for line in lines} == {"inside"}
    narrow = [row for row in rows if row["dim"] >= BEST[row["budget"]]]
    lines = [line for line in frontier.table(narrow) if line["model"] == "hyena"]
    assert {line["width, among those tried"] for line in lines} == {"lowest"}


def test_the_table_compares_with_hyena_by_seed(rows):
    named = {(line["model"], line["FLOPs"]): line for line in frontier.table(rows)}
    last = f"{BUDGETS[-1]:.2g}"
    here, there = (
        {row["seed"]: row["loss"] for row in frontier.frontier(rows)[name][BUDGETS[-1]]}
        for name in ("mamba2", "hyena")
    )
    mean = sum(here[seed] - there[seed] for seed in here) / len(here)
    assert named["mamba2", last]["minus hyena"].startswith(f"{mean:.3f} ± ")
    assert named["hyena", last]["minus hyena"] == ""
    assert not any(
        line["minus hyena at equal time"] for line in named.values() if line["FLOPs"] != last
    )
    assert named["mamba2", last]["minus hyena at equal time"] == "", "a scan without its kernels"
    shown = frontier_rows.minus_at_equal_time(frontier.frontier(rows), "paper flat", "hyena")
    assert named["paper flat", last]["minus hyena at equal time"] == shown != ""


def timed(name, loss, times, steps=(100, 400), time_error=0.0):
    """Two budgets, three seeds each, in frontier's form."""
    return {
        float(count): [
            {
                **{"model": name, "seed": seed, "loss": level + 0.01 * seed, "steps": count},
                **{"relative_time": time, "time_error": time_error},
            }
            for seed in range(3)
        ]
        for count, level, time in zip(steps, loss, times, strict=True)
    }


def test_losses_at_a_time_between_budgets():
    budgets = timed("paper flat", (4.0, 3.0), (1.0, 1.0))
    assert frontier_rows.at_time(budgets, 200.0) == pytest.approx({0: 3.5, 1: 3.51, 2: 3.52})
    assert frontier_rows.at_time(budgets, 400.0)[0] == pytest.approx(3.0)


def test_the_difference_at_equal_time_is_at_the_shorter_of_the_longest_runs():
    """Twice the time for each step: Hyena has the losses of half the time."""
    best = {
        "paper flat": timed("paper flat", (4.0, 3.0), (1.0, 1.0)),
        "hyena": timed("hyena", (4.0, 3.0), (2.0, 2.0)),
        "mamba2": timed("mamba2", (4.0, 3.0), (2.0, 2.0)),
    }
    time, difference = frontier_rows.at_equal_time(best, "paper flat", "hyena")
    assert time == pytest.approx(400.0)
    assert difference.value == pytest.approx(-0.5)
    assert difference.high - difference.low < 1e-6, "seeds move both alike"
    assert frontier_rows.minus_at_equal_time(best, "hyena", "paper flat") == "0.500 (at 400)"
    assert frontier_rows.minus_at_equal_time(best, "mamba2", "hyena") == ""
    late = timed("mamba2", (4.0, 3.0), (5.0, 5.0))  # its first run is longer than the last of flat
    assert frontier_rows.at_equal_time(best | {"hyena": late}, "paper flat", "hyena") is None
    one = {400.0: best["paper flat"][400.0]}
    assert frontier_rows.at_equal_time(best | {"paper flat": one}, "paper flat", "hyena") is None
    # a time that is known to 10% is a loss that is known to 10% of a slope
    loose = timed("hyena", (4.0, 3.0), (2.0, 2.0), time_error=0.1)
    _, wide = frontier_rows.at_equal_time(best | {"hyena": loose}, "paper flat", "hyena")
    error = 0.1 / math.log(4)
    assert (wide.high - wide.low) / 2 == pytest.approx(4.303 * error, rel=1e-3)


def test_step_times_are_medians_over_all_runs_of_a_width(rows):
    factors = (0.5, 1.0, 1.5)
    noisy = [
        row | {"relative_time": row["relative_time"] * factor} for row in rows for factor in factors
    ]
    known = {(row["model"], row["dim"]): row["relative_time"] for row in rows}
    for row in frontier_rows.with_shared_times(noisy):
        assert row["relative_time"] == pytest.approx(known[row["model"], row["dim"]])
        assert row["time_error"] > 0


def test_an_interrupted_run_is_drawn_and_decides_nothing(rows):
    """Models whose best is not repeated yet are dots without a line."""
    for end in range(10, len(rows), len(rows) // 12):
        some = rows[:end]
        assert frontier.figure(some, []) is not None
        frontier.table(some)
        if {row["budget"] for row in some} != set(BUDGETS):
            assert frontier.holds(some) == {}
    assert frontier.holds([row for row in rows if row["budget"] != BUDGETS[-1]]) == {}


def test_seeds_between_the_planned_looks_do_not_decide():
    rows = searched({"hyena": -frontier.SIMILAR_LOSS, "paper flat": 0.1, "mamba2": 0.2})
    three, four = ([row for row in rows if row["seed"] < most] for most in (3, 4))
    assert frontier.holds(four) == frontier.holds(three) != frontier.holds(rows)


def test_conditions_name_the_seeds_of_the_best_width(rows):
    from toeplix.experiments.engine.conditions import conditions

    assert "seeds: 3" in conditions(rows)


def test_conditions_count_the_seeds_of_every_task():
    from toeplix.experiments.engine.conditions import conditions

    rows = [{"model": "paper flat", "task": "copy", "seed": seed} for seed in range(3)]
    rows += [{"model": "paper flat", "task": "autoencoder", "seed": seed} for seed in range(6)]
    assert conditions(rows) == ["seeds: 3 to 6"]


def test_how_the_loss_falls_with_flops(rows):
    def made(power):
        return {
            budget: [
                row | {"loss": (7 + row["seed"]) * budget**-power}
                for row in frontier.frontier(rows)["hyena"][budget]
            ]
            for budget in BUDGETS
        }

    assert frontier_rows.exponent(made(0.07)).startswith("0.070")
    two = {budget: group for budget, group in made(0.07).items() if budget != BUDGETS[0]}
    assert frontier_rows.exponent(two) == "", "two budgets say nothing of their spread"
    lines = [line for line in frontier.table(rows) if line["model"] == "hyena"]
    assert [bool(line["exponent of FLOPs"]) for line in lines] == [False, False, True]


def test_the_better_tmm_is_chosen_by_seeds_that_both_have():
    def row(name, seed, level):
        return {"model": name, "seed": seed, "loss": level, "tune_loss": level}

    flat = [row("paper flat", seed, 3.5) for seed in range(3)]
    heads = [row("paper 4 heads", seed, 3.4 + 0.2 * (seed > 2)) for seed in range(6)]
    best = {"paper flat": {1.0: flat}, "paper 4 heads": {1.0: heads}}
    assert frontier_rows.best_tmm(best, 1.0) == "paper 4 heads", "its later seeds are harder"
    assert frontier_rows.best_tmm(best, 2.0) is None
