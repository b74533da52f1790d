"""The protocol: grids that grow, seeds that are added, halves that are disjoint, rows that are old."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from toeplix.data import Store
from toeplix.experiments import SCALES, training
from toeplix.experiments.engine import corpora, task_tuning, text_runs, text_training, tuning
from toeplix.experiments.engine import rows as stored
from toeplix.experiments.engine.collect import collect, results_file
from toeplix.experiments.engine.models import MODELS
from toeplix.experiments.engine.text_rows import Case, at_best, edge
from toeplix.experiments.engine.text_runs import Sized, run_of
from toeplix.experiments.engine.text_training import Pair, best_rate, settled, tuned

LAPTOP = SCALES["laptop"]
TWO = {"hyena": MODELS["hyena"], "llama": MODELS["llama"]}


def row(name, seed, *, loss, tune, lr=0.016, **other):
    fields = {"model": name, "part": "", "lr": lr, "seed": seed, "loss": loss, "tune_loss": tune}
    return fields | {"protocol_version": 2} | other


def test_rates_are_chosen_on_the_tuning_half():
    losses = dict(zip(LAPTOP.rates, ((4.0, 4.4), (4.2, 4.1), (4.3, 4.3)), strict=True))
    rows = [row("hyena", 0, loss=a, tune=b, lr=lr) for lr, (a, b) in losses.items()]
    assert best_rate(rows, "hyena", {}, LAPTOP) == LAPTOP.rates[1], "not that of the lowest loss"
    assert {each["lr"] for each in at_best(rows)["hyena"]} == {LAPTOP.rates[1]}
    assert edge(rows, "hyena") == "inside"
    assert edge(rows[:2], "hyena") == "highest"


@pytest.mark.parametrize(("spread", "seeds"), [(0.01, 3), (2.0, 6)])
def test_an_undecided_comparison_gets_more_seeds(spread, seeds):
    rows = []
    for name, level in (("hyena", 4.0), ("llama", 4.5)):
        for lr, extra in zip(LAPTOP.rates, (0.3, 0.0, 0.3), strict=True):
            for seed in LAPTOP.seeds if extra == 0 else (0,):
                noise = spread * (seed if name == "hyena" else -seed)
                rows.append(row(name, seed, loss=level + noise, tune=level + extra, lr=lr))
    cases = tuned(LAPTOP, TWO, rows, pairs=[Pair("hyena", "llama")])
    at = [case.seed for case in cases if case.model == "llama" and case.lr == LAPTOP.rates[1]]
    assert at == list(range(seeds))
    assert len(tuned(LAPTOP, TWO, rows)) == 2 * (3 + 2), "without a claim nobody asks for more"


def test_claims_are_decided_with_all_seeds_at_the_desk():
    """However clear the first seeds are: no comparison ends early."""
    desk = replace(SCALES["desk"], tuning=1.0)
    rows = full_rows(desk, {"hyena": 4.0, "llama": 9.0})
    for pair, seeds in ((Pair("hyena", "llama"), 6), (Pair("hyena", "llama", decides=False), 3)):
        cases = tuned(desk, TWO, rows, pairs=[pair])
        assert {case.seed for case in cases if case.model == "llama"} == set(range(seeds))
    assert {case.seed for case in tuned(LAPTOP, TWO, rows, pairs=[Pair("hyena", "llama")])} == {0}
    areas = {name: [{"seed": seed, "area": 0.1} for seed in range(3)] for name in TWO}
    assert task_tuning.unsettled(desk, areas, [("hyena", "llama")]) == set(TWO)


def test_the_error_of_both_rules():
    """If nothing differs, all seeds at once decide 5% of comparisons, and two looks 9%."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((40_000, LAPTOP.max_seeds))

    def decided(some):
        error = some.std(1, ddof=1) / some.shape[1] ** 0.5
        return abs(some.mean(1)) / error > stats.t.ppf(0.975, some.shape[1] - 1)

    first, last = decided(values[:, : len(LAPTOP.seeds)]), decided(values)
    assert last.mean() == pytest.approx(0.05, abs=0.005)
    assert (first | last).mean() == pytest.approx(0.09, abs=0.005)
    assert "from 5% to at most 10%" in " ".join(tuning.SEEDS_RULE.split())
    assert SCALES["desk"].all_seeds
    assert not LAPTOP.all_seeds


def test_tasks_are_extended_around_the_bound_of_the_claim():
    """An area 0.05 lower counts as equal in C12: what is near 0.05 is not decided yet."""
    areas = {
        name: [{"seed": seed, "area": level + x} for seed, x in enumerate(noise)]
        for name, level, noise in (("llama", 0.55, (0, 0, 0)), ("hyena", 0.5, (0.01, 0, -0.01)))
    }
    assert task_tuning.unsettled(LAPTOP, areas, [("llama", "hyena")]) == set()
    assert task_tuning.unsettled(LAPTOP, areas, [Pair("llama", "hyena", 0.05)]) == {
        "llama",
        "hyena",
    }


def test_more_seeds_are_not_asked_for_by_seeds_beyond_the_first():
    """Otherwise a comparison would stop as soon as it looks decided."""
    pair, first = [Pair("hyena", "llama")], (0.0, 1.0, -1.0)
    rows = [row("hyena", seed, loss=4 + x, tune=4) for seed, x in enumerate((*first, 0.1, 0.1))]
    rows += [row("llama", seed, loss=4.05, tune=4) for seed in range(5)]
    assert text_training.unsettled(LAPTOP, rows, pair) == {"hyena", "llama"}


def full_rows(scale, levels, **other):
    """Rows of every model at every learning rate with the first seed, and at the middle one with all."""
    found = []
    for name, level in levels.items():
        for lr, extra in zip(scale.rates, (0.3, 0.0, 0.3), strict=True):
            for seed in scale.seeds if extra == 0 else scale.seeds[:1]:
                case = Case.of(scale, name, MODELS[name], lr=lr, seed=seed, **other)
                loss = level + extra + 0.01 * seed
                found.append(stored.record(case) | {"loss": loss, "tune_loss": loss})
    return found


@pytest.mark.parametrize("other", [{"data": "other@0123456789ab"}, {"steps": 600, "batch": 16}])
def test_rows_of_another_corpus_or_length_are_not_pooled(other):
    """Rates are chosen, and models compared, within one setting: the fullest, or that of the scale."""
    here = full_rows(LAPTOP, {"hyena": 4.0, "llama": 4.5})
    there = full_rows(replace(LAPTOP, **other), {"hyena": 2.0})
    for rows in (here + there, there + here):
        groups = at_best(rows)
        assert {name: len(group) for name, group in groups.items()} == {"hyena": 3, "llama": 3}
        assert {each["data"] for group in groups.values() for each in group} == {LAPTOP.data}
        assert edge(rows, "hyena") == "inside"
        assert best_rate(rows, "hyena", MODELS["hyena"], LAPTOP) == LAPTOP.rates[1]
    elsewhere = replace(LAPTOP, **other)
    assert best_rate(here, "hyena", MODELS["hyena"], elsewhere) is None, "nothing is measured there"
    assert {case.seed for case in tuned(elsewhere, TWO, here)} == {0}
    noisy = [each | {"loss": each["loss"] + 9 * each["seed"]} for each in here]
    cases = tuned(
        elsewhere,
        TWO,
        noisy + full_rows(elsewhere, {"hyena": 4.0, "llama": 4.5}),
        pairs=[Pair("hyena", "llama")],
    )
    assert {case.seed for case in cases} == set(LAPTOP.seeds), "only these seeds decide"


def test_a_part_with_all_models_is_preferred_to_a_longer_one_with_few():
    here = full_rows(LAPTOP, {"hyena": 4.0, "llama": 4.5})
    longer = replace(LAPTOP, steps=2 * LAPTOP.steps, seeds=tuple(range(12)))
    assert {
        each["steps"] for each in at_best(here + full_rows(longer, {"hyena": 2.0}))["hyena"]
    } == {LAPTOP.steps}


def test_models_of_equal_cost_have_steps_of_their_own():
    rows = [
        stored.record(
            Case.of(LAPTOP, name, MODELS[name], lr=0.01, seed=seed, steps=steps, part=part)
        )
        | {"loss": 4.0, "tune_loss": 4.0}
        for part in ("python, equal FLOPs", "python, equal time", "python, equal steps")
        for name, steps in (("hyena", 230), ("hybrid", 310))
        for seed in LAPTOP.seeds
    ]
    assert set(at_best(rows, "python, equal FLOPs")) == {"hyena", "hybrid"}
    assert set(at_best(rows, "python, equal time")) == {"hyena", "hybrid"}
    assert len(at_best(rows, "python, equal steps")) == 1


def desk_rows(*runs, steps=1.0):
    """Rows of Hyena at scale desk: learning rate, loss (None: diverged), seed; shorter runs or full."""
    found = []
    for lr, loss, seed in runs:
        case = Case.of(SCALES["desk"], "hyena", MODELS["hyena"], lr=lr, seed=seed)
        case = text_training.shortened(case, steps) if steps < 1 else case
        known = {"loss": loss, "tune_loss": loss, "diverged": None if loss else "the loss is nan"}
        found.append(vars(case) | known)
    return found


def full_cases(rows):
    """Learning rates and seeds of the full runs of Hyena at scale desk."""
    cases = tuned(SCALES["desk"], {"hyena": MODELS["hyena"]}, rows)
    return {(case.lr, case.seed) for case in cases if not case.tuning_run}


SHORT = desk_rows((0.002, 4.3, 0), (0.006, 4.2, 0), (0.016, 4.0, 0), (0.043, 4.1, 0), steps=0.2)


def test_full_runs_check_the_rate_that_shorter_runs_choose():
    """They walk down while the next lower rate is better, with the first seed."""
    desk, settings = SCALES["desk"], MODELS["hyena"]
    assert best_rate(SHORT, "hyena", settings, desk) == 0.016
    assert settled(SHORT, "hyena", settings, desk).rate is None
    assert full_cases(SHORT) == {(0.016, 0), (0.006, 0)}
    right = SHORT + desk_rows((0.016, 3.8, 0), (0.006, 3.9, 0))
    assert settled(right, "hyena", settings, desk).rate == 0.016
    assert full_cases(right) == {(0.006, 0), *((0.016, seed) for seed in desk.seeds)}
    wrong = SHORT + desk_rows((0.016, 3.8, 0), (0.006, 3.7, 0))
    assert full_cases(wrong) == {(0.016, 0), (0.006, 0), (0.002, 0)}
    lowest = wrong + desk_rows((0.002, 3.6, 0))
    assert (0.00067, 0) in full_cases(lowest), "beyond the rates of shorter runs"
    assert best_rate(lowest, "hyena", settings, desk) == 0.016, "the centre of other widths' grids"
    done = lowest + desk_rows((0.00067, 3.9, 0))
    assert settled(done, "hyena", settings, desk).rate == 0.002
    seeds = desk_rows(*((0.016, 3.8, seed) for seed in desk.seeds[1:]))
    assert {(0.016, 0), (0.016, 1), (0.016, 2)} <= full_cases(done + seeds), "measured before"
    assert edge(done, "hyena") == "inside"


def test_a_rate_at_which_a_full_run_diverged_is_not_chosen():
    """The short run with one seed was lucky; half the step down is tried, and the whole."""
    desk, settings = SCALES["desk"], MODELS["hyena"]
    rows = SHORT + desk_rows((0.016, 3.7, 0), (0.006, 3.9, 0), (0.016, None, 1))
    assert settled(rows, "hyena", settings, desk).rate is None
    diverged = {(0.016, 0), (0.016, 1)}
    assert full_cases(rows) == {*diverged, (0.0098, 0), (0.006, 0)}
    rows += desk_rows((0.0098, 3.8, 0))
    assert settled(rows, "hyena", settings, desk).rate == 0.0098
    assert full_cases(rows) == {*diverged, (0.006, 0), *((0.0098, seed) for seed in desk.seeds)}
    rows += desk_rows((0.0098, None, 2), (0.002, 4.0, 0))
    assert settled(rows, "hyena", settings, desk).rate == 0.006


def test_half_a_step_is_tried_once_where_all_runs_are_full():
    """At scale laptop the runs that choose a rate are the reported ones."""
    seen, rows = {}, []
    for _ in range(20):
        for case in tuned(LAPTOP, {"hyena": MODELS["hyena"]}, rows):
            lost = case.seed == 1 and case.lr >= 0.016
            loss = None if lost else 4.0 + abs(case.lr - 0.016)
            known = {"loss": loss, "tune_loss": loss, "diverged": "nan" if lost else None}
            seen[case.lr, case.seed] = vars(case) | known
        rows = list(seen.values())
    assert {lr for lr, _ in seen} == {*LAPTOP.rates, 0.0098}
    assert settled(rows, "hyena", MODELS["hyena"], LAPTOP).rate == 0.0098
    assert {row["lr"] for row in at_best(rows)["hyena"]} == {0.0098}


def test_a_walk_down_ends():
    levels = {}
    for _ in range(20):
        rate, needed = tuning.settled(0.016, desk_rates := SCALES["desk"].rates, levels)
        levels |= dict.fromkeys(needed, math.inf)
    assert rate == min(levels)
    assert tuning.settled(0.016, desk_rates[:1], {0.016: 4.0}) == (0.016, (0.016,)), "one rate"


def test_shorter_runs_choose_rates_at_the_desk():
    desk = SCALES["desk"]
    first = tuned(desk, {"hyena": MODELS["hyena"]}, [])
    assert [(case.lr, case.steps, case.tuning_run) for case in first] == [
        (lr, round(desk.steps * desk.tuning), True) for lr in desk.rates
    ]
    assert at_best(SHORT) == {}, "shorter runs are not reported"
    assert edge(SHORT, "hyena") == "inside"


def test_other_widths_are_tuned_around_the_known_rate():
    near = {"hyena": 0.016, "llama": None}
    cases = tuned(LAPTOP, TWO, [], near=near, part="compute", dim=80)
    assert {case.model for case in cases} == {"hyena"}, "the other waits for its rate"
    assert [case.lr for case in cases] == list(tuning.around(0.016, LAPTOP.rates))
    assert tuning.around(0.016, (0.1,)) == (0.016,)


def test_mamba_has_no_width_of_equal_memory():
    assert "memory" not in training.parts(LAPTOP, "mamba2", MODELS["mamba2"])
    assert "memory" in training.parts(LAPTOP, "hyena", MODELS["hyena"])


def test_the_grid_grows_up_to_a_bound():
    tried = {}
    for _ in range(10):
        tried |= {rate: rate for rate in tuning.rates((0.01, 0.02), tried)}
    assert len(tried) == 2 + tuning.MAX_EXTRA_RATES
    assert tuning.edge(tried) == "lowest"
    assert tuning.best((0.01, 0.02), tried) == min(tried)
    pairs = {rate: (np.inf, rate) for rate in (0.01, 0.02)}
    assert tuning.rates((0.02, 0.01), pairs) == (0.005, 0.01, 0.02), "steps, then loss, of a task"


def test_old_rows_stay_and_do_not_count(tmp_path):
    old, new = {"lr": 1.0}, {"lr": 2.0, "protocol_version": tuning.PROTOCOL_VERSION}
    assert tuning.current(Case, [old, new]) == [new]
    assert tuning.newest(Case, [old]) == ([old], True)
    assert tuning.newest(Case, [old, new]) == ([new], False)
    assert tuning.newest(type(SCALES["smoke"]), [old, new]) == ([old, new], False)


def test_long_runs_lose_few_steps_and_short_ones_keep_their_digest():
    assert [text_runs.save_every(steps) for steps in (1, 300, 4000)] == [1, 150, 2000]
    assert text_runs.save_every(SCALES["paper"].steps) == 2000


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_an_old_row_is_measured_anew_and_kept(tmp_path):
    """From the file of an experiment: the row of the first protocol is still there at the end."""
    smoke = replace(SCALES["smoke"], eval_sequences=2)
    case = Case.of(smoke, "paper flat", MODELS["paper flat"], lr=smoke.rates[0], seed=0)
    from toeplix.experiments.engine import rows

    fields = rows.record(replace(case, protocol_version=1))
    for name in ("protocol_version", "recipe", "tuning_run"):
        fields.pop(name)
    file = results_file("frozen", "smoke", tmp_path)
    rows.append(file, {"case": fields, "found": {"loss": 1.0, "diverged": None}})
    found = collect("frozen", smoke, results=tmp_path, work=tmp_path / "work")
    mine = [each for each in found if each["model"] == "paper flat"]
    assert [each["protocol_version"] for each in mine] == [tuning.PROTOCOL_VERSION]
    assert mine[0]["tune_loss"] != mine[0]["loss"]
    assert len(rows.flat(file)) == len(found) + 1


@pytest.mark.slow
def test_a_seed_changes_the_data_order_and_models_of_a_seed_share_it(tmp_path):
    smoke = SCALES["smoke"]

    def order(name, seed):
        from toeplix.training.batches import Batches

        case = Sized.of(smoke, name, MODELS[name], lr=0.01, seed=seed)
        run = run_of(case, tmp_path)
        assert run.val_documents == corpora.REPORT
        parts = Batches(run, Store.open(run.data), 0, 1).of(0)
        return [part["tokens"].tolist() for part in parts]

    assert order("paper flat", 0) != order("paper flat", 1)
    assert order("paper flat", 1) == order("hyena", 1)
