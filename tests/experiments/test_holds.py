"""Claims on rows made by hand, where the answer is known: holding, failing, undecided, too few rows."""

import json
import math

import pytest

from tests.experiments.rows_by_hand import costs, kinds, learned
from toeplix.experiments import complexity, decoding, frozen, linear, throughput, training, variants
from toeplix.experiments import window as windowed
from toeplix.experiments.engine import curves, intervals
from toeplix.experiments.engine.equal_cost import compute, memory, width
from toeplix.experiments.engine.models import MODELS, model
from toeplix.experiments.engine.scale import SCALES
from toeplix.experiments.engine.text_rows import at_best
from toeplix.experiments.engine.text_training import best_rate, tuned
from toeplix.experiments.engine.tuning import rates


@pytest.mark.parametrize(
    ("tmm", "answer"), [(4.0, "holds"), (4.49, "holds"), (4.8, "fails"), (4.515, "undecided")]
)
def test_similar_or_lower(tmm, answer):
    rows = costs(
        paper_flat=tmm, paper_4_heads=5.0, toeplitz=4.2, hyena=4.5, mamba2=4.5, llama=4, masked=4
    )
    assert training.holds(rows)["C1d"].kind == answer
    assert "mamba2" not in training.holds(rows)["C1d"].ours, (
        "compared at equal FLOPs, in `frontier`"
    )


def test_quadratic_models_are_lower():
    losses = {"paper_flat": 4.3, "paper_4_heads": 4.4, "toeplitz": 4.2, "hyena": 4, "mamba2": 4}
    both = kinds(training.holds(costs(**losses, llama=4.0, masked=4.9)))
    assert (both["C2a"], both["C2b"]) == ("holds", "fails")
    level = training.holds(costs(**losses, llama=4.3, masked=4.3))
    assert level["C2a"].kind == "holds", "a level loss is not lower"


def test_a_control_that_is_not_trained_decides_nothing():
    """Above a bigram model, or with rows of the first protocol below one token per parameter."""
    losses = {"paper_flat": 4.3, "paper_4_heads": 4.4, "hyena": 4, "mamba2": 4, "masked": 4.1}
    rows = costs(**losses, llama=4.9)
    for row in rows:
        row["bigram_loss"] = 4.8
    assert training.holds(rows)["C2b"].kind == "holds", "the Masked Mixer is below it"
    found = training.holds(rows)["C2a"]
    assert found.kind == "control not trained"
    assert "llama" in found.reason
    assert "bigram" in found.reason
    assert training.holds(rows)["C1d"].kind != "control not trained", "Hyena is below it"
    old = [row | {"parameters": 10**6} for row in costs(**losses, llama=4.0)]
    assert "tokens per parameter" in training.holds(old)["C2a"].reason


def ranges(bigram=9.0, **highest):
    """Rows of three learning rates: the lowest loss is 4.0, the highest is given by model."""
    found = []
    for name, high in highest.items():
        for lr, loss in ((0.01, 4.01), (0.02, 4.0), (0.04, high)):
            found += learned(name.replace("_", " "), loss, lr=lr, part="rates")
    return [row | {"bigram_loss": bigram} for row in found]


FLAT = {"paper_flat": 4.02, "paper_4_heads": 4.02, "hyena": 4.02, "llama": 4.02}


def test_each_model_has_its_own_range_over_rates():
    rows = ranges(**(FLAT | {"hyena": 4.5}), toeplitz=6.0)
    found = training.holds(rows)["C8"]
    assert found.kind == "fails"
    assert "toeplitz" not in found.ours, "the paper's models only"
    elsewhere = [row | {"data": "other", "loss": 9.0} for row in rows if row["model"] == "hyena"]
    assert training.holds(rows + elsewhere)["C8"].ours == found.ours, "texts are not mixed"
    factor = "hyena, learning rates up to a factor of 4 apart, 40 steps"
    assert found.reason.startswith(f"{factor}: not below 0.1")
    assert found.number.startswith("0.5")
    assert training.holds(ranges(**FLAT))["C8"].kind == "holds"


def test_ranges_over_rates_need_all_models_rates_and_seeds():
    rows = ranges(**FLAT)
    without = [row for row in rows if row["model"] != "llama"]
    assert "C8" not in training.holds(without)
    assert "C8" not in training.holds(rows[:-1]), "a seed has two rates"
    assert "C8" not in training.holds([row for row in rows if row["lr"] > 0.01]), "two rates"
    last = [row for row in rows if (row["model"], row["seed"]) != ("llama", 2)]
    assert "C8" not in training.holds(last), "a model has fewer seeds"
    weak = training.holds(ranges(bigram=3.9, **FLAT))["C8"]
    assert weak.kind == "control not trained"
    assert "bigram" in weak.reason


def test_the_ratio_of_costs_is_said():
    """Widths are multiples of 8, so that equal compute is not quite equal."""
    rows = costs(paper_flat=4.3, paper_4_heads=4.4, hyena=4.5, mamba2=4.5, masked=4.1, llama=4.0)
    for row in rows:
        row["flops_per_step"] *= 1.16 if row["model"] == "paper flat" else 1.0
    assert "paper flat minus hyena, with 1.16 times the FLOPs" in training.holds(rows)["C1d"].ours


def collected(module, scale):
    """All cases of an experiment, with rows in which 6e-3 is the best learning rate."""
    found = {}
    for _ in range(10):
        for case in module.cases(scale, [row for _, row in found.values()]):
            found[json.dumps(vars(case), sort_keys=True)] = case, row_of(case)
    return [case for case, _ in found.values()]


def row_of(case):
    loss = 4.0 + abs(math.log(case.lr / 6e-3)) + 1e-3 * case.seed * len(case.model)
    return vars(case) | {"loss": loss, "tune_loss": loss, "diverged": None}


def trained_once(cases):
    """The training runs of cases: the part and the time that is measured do not change the weights."""
    fields = ("model", "dim", "steps", "lr", "seed", "tuning_run")
    return {tuple(getattr(case, name) for name in fields) for case in cases}


def test_training_at_the_desk_has_the_runs_that_decide():
    cases = collected(training, SCALES["desk"])
    assert "mamba2" not in {case.model for case in cases}
    full = [case for case in cases if not case.tuning_run]
    assert {case.steps for case in full} == {3000}
    by_part = {part: [c for c in full if c.part == part] for part in ("", "compute")}
    assert {case.model for case in by_part[""]} == {"toeplitz", "hybrid", "hyena", "llama"}
    assert {case.seed for case in by_part[""]} == set(range(3))
    masked = [case.settings for case in cases if case.model == "masked"]
    assert {settings["init"] for settings in masked} == {"scaled"}, "it learns better so"
    deciding = {"paper flat", "paper 4 heads", "hyena", "masked", "llama"}
    assert {case.model for case in by_part["compute"]} == deciding
    assert len(by_part["compute"]) == 7 * len(deciding), "six seeds, and a check of the rate"
    rates = [case for case in cases if case.part == training.RATES_PART]
    assert {case.model for case in rates} == {"paper flat", "paper 4 heads", "hyena", "llama"}
    assert {case.seed for case in rates} == set(range(6))
    first = trained_once(case for case in rates if case.seed == 0)
    tuned_runs = trained_once(case for case in cases if case.tuning_run and case.part == "")
    assert first <= tuned_runs, "the first seed is trained already"
    steps = sum(run[2] for run in trained_once(cases))
    assert steps < 190_000, "about three hours on two cores"


def test_training_at_the_desk_decides_before_it_describes():
    desk = SCALES["desk"]
    rows = [row_of(case) for case in collected(training, desk)]
    kinds = [(case.part, case.tuning_run) for case in training.cases(desk, rows)]
    ranges = (training.RATES_PART, True)
    order = [kind for kind in dict.fromkeys(kinds) if kind == ranges or not kind[1]]
    assert order == [("compute", False), ranges, ("", False)]
    places = [order.index(kind) + 1 if kind in order else 0 for kind in kinds]
    assert places == sorted(places), "runs that choose learning rates are the first"


def test_no_rows_decide_nothing():
    for module in (
        training,
        windowed,
        variants,
        frozen,
        linear,
        throughput,
        complexity,
        decoding,
    ):
        assert module.holds([]) == {}


def windows(**losses):
    """The paper's models at the compute of windowed attention, worse at equal width."""
    found = {"paper flat": 4.2, "paper 4 heads": 4.3, "llama": 4.0}
    found |= dict.fromkeys(windowed.WINDOWS, 4.5)
    found |= {name.replace("_", " "): loss for name, loss in losses.items()}
    rows = [row for name, loss in found.items() for row in learned(name, loss, part="compute")]
    for name, loss in found.items():
        rows += learned(name, loss + 0.5 * name.startswith("paper"))
    return rows


def test_windows_at_equal_compute():
    """The paper's TMM is twice as wide as attention, and need not be better than full attention."""
    found = windowed.holds(windows())
    assert kinds(found) == dict.fromkeys(windowed.PARTS, "holds")
    assert all(name in found[part].ours for part, name in windowed.PARTS.items())
    better = [row for row in windows() if row["model"] != "window n/2"]
    better += learned("window n/2", 4.0, part="compute")
    assert kinds(windowed.holds(better)) == {"C3a": "holds", "C3b": "holds", "C3c": "fails"}
    tied = {"paper_flat": 4.3, "paper_4_heads": 4.4, "masked": 4.1, "hyena": 4.5, "mamba2": 4.5}
    both = windows(paper_flat=4.3) + costs(**tied, llama=4.0)
    assert windowed.holds(both)["C3c"].kind == training.holds(both)["C2a"].kind == "holds"


def test_windows_at_equal_width_only_cannot_show_the_claim():
    rows = [row for row in windows() if row["part"] == ""]
    assert set(kinds(windowed.holds(rows)).values()) == {"not testable here"}
    assert list(windowed.holds(rows)) == ["C3a", "C3b", "C3c"]
    assert "equal compute" in windowed.holds(rows)["C3c"].reason


def test_windows_at_the_desk_reuse_the_runs_of_training():
    """TMM and full attention have the widths, steps, rates and seeds of training's equal compute."""
    desk = SCALES["desk"]
    mine, theirs = collected(windowed, desk), collected(training, desk)
    shared = [case for case in mine if case.model in (*windowed.TMM, "llama")]
    assert trained_once(shared) <= trained_once(theirs)
    assert {case.steps for case in mine} == {600, 3000}
    assert {case.dim for case in mine if case.model in windowed.WINDOWS} == {desk.dim}
    wide = {case.dim for case in mine if case.model in windowed.TMM and case.part == "compute"}
    assert min(wide) > desk.dim


def test_prefill_is_judged_over_rounds_or_says_that_it_is_not():
    row = {"what": "prefill", "context": 512, "peak_bytes": {}}
    row |= {"seconds": {"paper flat": 1.0, "llama": 2.0}}
    older = complexity.holds([row])["C20a"]
    assert (older.kind, older.number) == ("holds", "2.000")
    assert "no interval" in older.reason
    noisy = complexity.holds([row | {"rounds": {"llama": [0.5, 2.0, 3.0]}}])["C20a"]
    assert noisy.kind == "undecided"
    assert "mean of 3 rounds" in noisy.reason


def test_throughput_in_every_round():
    ratio = {"paper flat": 1.0, "hyena": 2.0, "mamba2": 2.5}
    row = {
        "dim": 512,
        "ratio": ratio,
        "spread": {name: [value - 0.1, value + 0.1] for name, value in ratio.items()},
        "peak_bytes": {"paper flat": 100, "hyena": 180, "mamba2": 280},
    }
    found = throughput.holds([row])
    assert (found["C18a"].kind, found["C18c"].kind) == ("holds", "holds")
    assert found["C18b"].kind == "not testable here", "a scan in PyTorch"
    assert throughput.holds([row | {"device": "some GPU"}])["C18b"].kind == "holds"
    near = row | {"spread": row["spread"] | {"hyena": [0.9, 2.2]}}
    assert throughput.holds([near])["C18a"].kind == "undecided", "a range is no interval"
    assert "0.900 to 2.200 over rounds" in throughput.holds([near])["C18a"].number
    del near["spread"]
    for several, kind in (([0.9, 2.0, 2.2], "undecided"), ([1.9, 2.0, 2.2, 0.9] * 4, "holds")):
        judged = throughput.holds([near | {"rounds": {"hyena": several, "mamba2": several}}])[
            "C18a"
        ]
        assert judged.kind == kind
        assert judged.number == str(intervals.mean(several)), "over rounds"
    lean = row | {"peak_bytes": row["peak_bytes"] | {"hyena": 90}}
    assert throughput.holds([lean])["C18c"].kind == "fails"


def test_exponents_come_out():
    rows = [
        {
            "what": what,
            "context": n,
            "seconds": {"paper flat": 1e-6 * n, "llama": 1e-9 * n * n, "dense": 1.0, "fft": 2.0},
            "rounds": {"llama": [1e-3 * n - 0.1, 1e-3 * n, 1e-3 * n + 0.1]},
            "peak_bytes": {"paper flat": 4 * n, "llama": 9 * n},
        }
        for what in ("operator", "training", "prefill")
        for n in (128, 512, 2048, 8192, 32768)
    ]
    assert complexity.fitted(rows, "training", "llama").value == pytest.approx(2)
    assert complexity.fitted(rows, "training", "paper flat").value == pytest.approx(1)
    kinds = {part: each.kind for part, each in complexity.holds(rows).items()}
    assert kinds.pop("C19c") == "not testable here", "a claim about tensor cores"
    assert kinds == dict.fromkeys(["C19a", "C19b", "C20a", "C20b"], "holds")
    on_gpu = [row | {"device": "some GPU"} for row in rows]
    assert complexity.holds(on_gpu)["C19c"].kind == "holds"


@pytest.mark.parametrize(("llama", "answer"), [(1.2, "holds"), (9.0, "fails"), (0.1, "fails")])
def test_decoding_beside_a_transformer(llama, answer):
    """As much time as attention is neither far more nor far less."""
    rows = [
        {"way": way, "context": n, "mean_ms": time * n * (1 + n / 10**5)}
        for n in (128, 1024, 2048, 4096)
        for way, time in zip(decoding.WAYS, (0.1, 1.0, llama, 0.5), strict=True)
    ]
    assert decoding.holds(rows)["C20c"].kind == answer


def test_rates_are_tuned_before_seeds():
    scale, compared = SCALES["laptop"], {"toeplitz": MODELS["toeplitz"]}
    first = tuned(scale, compared, [])
    assert [(case.lr, case.seed) for case in first] == [(lr, 0) for lr in scale.rates]
    losses = dict(zip(scale.rates, (4.5, 4.2, 4.3), strict=True))
    rows = [row for lr, loss in losses.items() for row in learned("toeplitz", loss, lr=lr)[1:2]]
    sizes = {name: getattr(scale, name) for name in ("vocab", "steps")}
    rows = [row | {"seed": 0} | sizes for row in rows]
    assert best_rate(rows, "toeplitz", {}, scale) == scale.rates[1]
    then = tuned(scale, compared, rows)
    assert [(case.lr, case.seed) for case in then[len(first) :]] == [
        (scale.rates[1], seed) for seed in scale.seeds[1:]
    ]
    assert best_rate(rows[:-1], "toeplitz", {}, scale) is None, "the grid is not complete"


def test_the_grid_grows_where_the_best_is_at_its_end():
    grid = (0.01, 0.02, 0.04)
    falling = {0.04: 3.0, 0.02: 2.0, 0.01: 1.0}
    assert rates(grid, {}) == grid
    assert rates(grid, falling) == (0.005, *grid)
    assert rates(grid, falling | {0.005: 1.5}) == (0.005, *grid), "the best is inside now"
    assert rates(grid, falling | {0.005: 0.5, 0.0025: 0.7}) == (0.0025, 0.005, *grid)
    assert rates((0.01,), {0.01: 1.0}) == (0.01,)


def test_the_best_model_is_chosen_on_the_tuning_half():
    rows = [*learned("paper flat", 4.0), *learned("paper 4 heads", 4.1)]
    assert curves.best_of(rows, ("paper flat", "paper 4 heads")) == "paper flat", "no tuning loss"
    for row in rows:
        row["tune_loss"] = {"paper flat": 4.2, "paper 4 heads": 4.1}[row["model"]]
    assert curves.best_of(rows, ("paper flat", "paper 4 heads")) == "paper 4 heads"
    assert curves.best_of(rows, ("paper flat", "hyena")) is None


def test_the_first_seed_chooses_the_reported_rate():
    rows = [*learned("hyena", 4.2, lr=0.01), *learned("hyena", 4.1, lr=0.02)[:1]]
    assert {row["lr"] for row in at_best(rows)["hyena"]} == {0.02}, "its other seeds are missing"
    rows += learned("hyena", 4.1, lr=0.02, diverged="the loss is nan")[1:2]
    assert {row["lr"] for row in at_best(rows)["hyena"]} == {0.01}, "a seed diverged"
    late = learned("hyena", 3.0, lr=0.03)[1:]
    assert {row["lr"] for row in at_best(rows + late)["hyena"]} == {0.01}, "without the first seed"


def test_equal_costs():
    sizes = {"depth": 2, "context": 64, "vocab": 500}
    anchor = model(MODELS["hyena"], dim=64, **sizes)
    for cost in (compute, memory):
        assert width(MODELS["hyena"], anchor, cost, 4) == 64
        wide = width(MODELS["paper flat"], anchor, cost, 4)
        near = [
            cost(model(MODELS["paper flat"], dim=dim, **sizes), 4) for dim in (wide - 8, wide + 8)
        ]
        assert near[0] < cost(anchor, 4) < near[1]
