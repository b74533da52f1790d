"""Claims about ablations of the paper's model and linear attention, on rows made by hand."""

import json

import pytest

from tests.experiments.rows_by_hand import learned
from toeplix.experiments import frozen, linear, variants
from toeplix.experiments.engine.scale import SCALES


def test_one_layer_and_two():
    rows = [*learned("flat", 4.0), *learned("two layers", 4.2)]
    rows += [*learned("4 heads", 3.9), *learned("two layers, 4 heads", 4.0)]
    assert variants.holds(rows)["C4"].kind == "holds"
    assert "C5b" not in variants.holds(rows)


def test_one_layer_is_the_control_of_two():
    """Two layers may be worse than a bigram model because they train worse: that is the claim."""
    rows = [*learned("flat", 4.0), *learned("two layers", 4.9)]
    rows += [*learned("4 heads", 3.9), *learned("two layers, 4 heads", 4.9)]
    for row in rows:
        row["bigram_loss"] = 4.8
    assert variants.holds(rows)["C4"].kind == "holds"
    for row in rows:
        row["bigram_loss"] = 3.0
    assert variants.holds(rows)["C4"].kind == "control not trained"


def test_variants_at_the_desk_are_those_of_the_claims():
    names = {case.model for case in variants.cases(SCALES["desk"], [])}
    assert names == {name for pair in variants.PAIRS for name in pair[:2]}


def test_ablations_share_runs():
    """The same model has another name in each experiment, and one run."""
    desk = SCALES["desk"]
    here, there = (
        {json.dumps(vars(case) | {"model": ""}, sort_keys=True) for case in each.cases(desk, [])}
        for each in (variants, frozen)
    )
    assert len(here & there) == 2 * len(desk.rates), "the flat model and that with 4 heads"


def test_linear_attention_at_the_desk_is_without_the_toeplitz_model():
    found = linear.cases(SCALES["desk"], [])
    assert {(case.model, case.part) for case in found} == {(name, "") for name in linear.DECIDING}


def test_heads_help_up_to_four():
    rows = learned("flat", 4.5, early=5.0)
    for number, loss in zip(variants.NUMBERS, (4.5, 4.3, 4.1, 4.2, 4.4), strict=True):
        rows += learned(f"{number} heads", loss, early=5.1)
        rows += learned(f"{number} kernels", loss) if number > 1 else []
    found = variants.holds(rows)
    assert {part: each.kind for part, each in found.items()} == dict.fromkeys(
        ["C5a", "C5b", "C5c", "C5d", "C5e"], "holds"
    )
    worse = [row for row in rows if row["model"] != "4 kernels"] + learned("4 kernels", 5.0)
    assert variants.holds(worse)["C5c"].kind == "fails"
    assert variants.holds(worse)["C5a"].kind == "holds"
    soon = [row for row in rows if row["model"] != "4 heads"] + learned("4 heads", 4.1, early=4.2)
    assert variants.holds(soon)["C5e"].kind == "fails", "ahead from the start"


@pytest.mark.parametrize(("heads", "answer"), [(4.6, "holds"), (5.9, "fails"), (5.0, "undecided")])
def test_frozen_filters(heads, answer):
    """The paper: frozen with heads is below frozen flat, whatever freezing costs each of them."""
    rows = [*learned("paper flat", 4.5), *learned("frozen flat", 5.0)]
    rows += [*learned("paper 4 heads", 4.5), *learned("frozen 4 heads", heads)]
    rows += [*learned("ones flat", 5.2), *learned("ones 4 heads", 4.7)]
    assert frozen.holds(rows)["C6a"].kind == "holds"
    assert frozen.holds(rows)["C6b"].kind == answer


def test_frozen_noise_decides_and_the_trained_model_is_its_control():
    """The paper's frozen language models have Kaiming noise, whatever ones do."""
    rows = [*learned("paper flat", 4.5), *learned("frozen flat", 5.2)]
    rows += [*learned("paper 4 heads", 4.5), *learned("frozen 4 heads", 5.0)]
    ones = [*learned("ones flat", 5.2), *learned("ones 4 heads", 6.0)]
    assert frozen.holds(rows + ones)["C6b"].kind == "holds"
    assert "ones" not in frozen.holds(rows + ones)["C6b"].ours
    assert frozen.holds(rows)["C6b"].kind == "holds"
    for row in rows:
        row["bigram_loss"] = 5.0
    assert frozen.holds(rows)["C6b"].kind == "holds", "frozen filters may be worse than bigrams"
    for row in rows:
        row["bigram_loss"] = 4.0
    assert "paper flat" in frozen.holds(rows)["C6b"].reason


def test_a_diverged_seed_is_not_left_out():
    """The mean of the others would be too good, of the control and of the other model."""
    rows = [*learned("paper flat", 4.5), *learned("frozen flat", 5.2)]
    rows += [*learned("paper 4 heads", 4.5), *learned("frozen 4 heads", 5.0)]
    for place in (1, 4):
        lost = [*rows]
        lost[place] = rows[place] | {"loss": None, "diverged": "the loss is nan"}
        found = frozen.holds(lost)["C6a"]
        assert found.kind == "control not trained"
        assert found.reason == f"1 of 3 runs of {rows[place]['model']} diverged"


def test_linear_attention_diverges_or_not():
    stable = learned("linear elu", 5.1, lr=0.02)
    slow = [*learned("linear exp", 5.0), *learned("llama", 4.5), *stable]
    broken = learned("linear exp", 0.0, lr=0.02, diverged="the loss is nan")
    assert linear.holds(slow + broken)["C7b"].kind == "holds"
    short = [row | {"tuning_run": True} for row in broken]
    assert "C7b" not in linear.holds(slow + short), "not trained at the rate of the stable map"
    slow += learned("linear exp", 5.2, lr=0.02)
    found = linear.holds(slow + short)
    assert found["C7a"].kind == "holds"
    assert found["C7b"].kind == "fails"
    assert found["C7b"].number == "0 of 3 runs diverged"
    some = [*slow[:-1], slow[-1] | {"diverged": "the loss is nan", "loss": None}]
    assert linear.holds(some)["C7b"].kind == "undecided", "one of three"
    assert "C7b" not in linear.holds(slow[:-1]), "a seed is missing"
    assert "C7c" not in found, "nothing is known of bfloat16"
    elsewhere = [row | {"data": "other"} for row in broken]
    assert linear.holds(slow + elsewhere)["C7b"].kind == "fails", "of another text"
    forced = learned("linear exp", 0.0, lr=0.2, diverged="the loss is nan")
    assert linear.holds(slow + forced)["C7b"].kind == "fails", "any model diverges somewhere"
    half = [row | {"part": linear.HALF} for row in broken]
    assert linear.holds(slow + half)["C7c"].kind == "holds", "the limit is that of float32"
    fast = [*learned("linear exp", 4.0), *learned("llama", 4.5), *stable]
    assert linear.holds(fast)["C7a"].kind == "fails"


def test_the_exponential_is_trained_at_the_rate_of_the_stable_map():
    desk, rows = SCALES["desk"], []
    for _ in range(5):
        for case in linear.cases(desk, rows):
            best = 0.016 if case.model == "linear elu" else 0.006
            loss = 4.0 + abs(case.lr - best)
            row = vars(case) | {"loss": loss, "tune_loss": loss, "diverged": None}
            rows += [row] if row not in rows else []
    found = [case for case in linear.cases(desk, rows) if case.model == "linear exp"]
    full = {(case.part, case.lr, case.seed) for case in found if not case.tuning_run}
    assert full == {
        *((part, 0.016, seed) for part in ("", linear.HALF) for seed in range(3)),
        *(("", 0.006, seed) for seed in range(3)),
        ("", 0.002, 0),  # whether longer training prefers a lower rate
    }
