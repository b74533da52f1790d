"""Capacity: its claims on rows made by hand."""

from dataclasses import asdict

from tests.experiments.rows_by_hand import SEEDS, kinds, solved
from toeplix.experiments import SCALES, capacity
from toeplix.experiments.engine import capacity_verdicts


def held(**levels):
    """Capacity at three lengths, each harder; frozen filters at the middle one."""
    rows = []
    for name in capacity.COMPARED:
        rows += solved(name, 0.98, part="equal width", context=1)
        for times, context in enumerate((2, 4, 8)):
            level = levels.get(name.replace(" ", "_"), 0.5) - 0.2 * times
            rows += solved(name, level, part="equal width", context=context)
    for name in capacity.FROZEN:
        level = levels.get(name.replace(" ", "_"), 0.1)
        rows += solved(name, level, part="equal width", context=4)
    return rows


def test_capacity_above_the_others():
    found = capacity.holds(held(paper_flat=0.9))
    assert [found[part].kind for part in ("C10a", "C10b", "C10c")] == ["holds", "holds", "fails"]
    assert found["C10c"].number == "0.667"
    assert found["C10d"].kind == "fails"
    for row in (cheap := held(paper_flat=0.9)):
        row["flops_per_step"] /= 1 + row["model"].startswith("paper")
    assert capacity.holds(cheap)["C10c"].kind == "holds"
    assert capacity.holds(held(paper_flat=0.6, hyena=0.9))["C10a"].kind == "fails"


def test_trained_filters_are_the_control_of_frozen_ones():
    """Each kind is that of its own; frozen filters are compared with each other without it."""
    rows = held(paper_flat=0.9, paper_4_heads=0.9, ones_4_heads=0.2)
    assert capacity.holds(rows)["C11a"].kind == "holds"
    kept = [row for row in rows if row["context"] > 1 or row["model"] != "paper flat"]
    weak = kept + solved("paper flat", 0.5, part="equal width", context=1)
    found = capacity.holds(weak)
    assert (found["C11a"].kind, found["C11b"].kind) == ("control not trained", "holds")
    assert found["C11c"].kind == "holds"
    assert "paper flat reaches an accuracy of 0.49" in found["C11a"].reason
    better = held(paper_flat=0.9, paper_4_heads=0.3, ones_4_heads=0.5)
    weak = [row for row in better if row["context"] > 1 or row["model"] != "paper flat"]
    weak += solved("paper flat", 0.5, part="equal width", context=1)
    assert capacity.holds(weak)["C11b"].kind == "fails", "4 heads have a control that learned"


def test_a_model_that_learns_no_length_is_no_control_of_capacity():
    rows = [row for row in held(paper_flat=0.9) if row["context"] > 1 or row["model"] != "hyena"]
    rows += solved("hyena", 0.9, part="equal width", context=1)
    found = capacity.holds(rows)
    assert found["C10a"].kind == "control not trained"
    assert "hyena reaches an accuracy of 0.89, below 0.95, at the shortest" in found["C10a"].reason
    assert found["C10b"].kind == "holds", "Mamba 2 is trained"


def test_the_text_of_capacity_says_where_accuracy_falls_below_the_target():
    said = capacity.holds(held(paper_flat=0.9, hyena=1.2))["C10a"].ours
    assert (
        "(lengths at which they fall below 95%: hyena 8, paper flat 2; minus paper 4 heads: 0.525)"
        in said
    )


def test_flops_are_compared_at_one_length():
    """The longest that both have, in whatever order rows were measured."""
    rows = held(paper_flat=0.9)
    for row in rows:
        row["flops_per_step"] = row["context"] * (3 if row["model"] == "hyena" else 2)
    for several in (rows, rows[::-1]):
        assert (
            "FLOPs of paper flat over those of hyena: 0.667" in capacity.holds(several)["C10c"].ours
        )


def test_the_better_model_is_chosen_on_batches_that_are_not_reported():
    """4 heads are better on the reported batches, flat on the others."""
    rows = held(paper_flat=0.7, paper_4_heads=0.9)
    assert capacity_verdicts.best_tmm(rows) == "paper 4 heads", "rows of the first protocol"
    for row in rows:
        row["tune_loss"] = 1.0 if row["model"] == "paper flat" else 2.0
    assert capacity_verdicts.best_tmm(rows) == "paper flat"
    assert "hyena minus paper flat" in capacity.holds(rows)["C10a"].ours


def test_capacity_at_the_desk_is_that_of_the_models_that_decide_claims():
    """Noise, other models and other parts are left out, and Mamba 2 has fewer seeds and lengths."""
    desk = SCALES["desk"]
    assert {4 * times for times in capacity.FROZEN_MULTIPLES["desk"]} == {8, 16}
    assert {2 * times for times in capacity.FROZEN_MULTIPLES["laptop"]} == {8, 16}
    found, before = {}, -1
    while len(found) > before:
        before = len(found)
        for case in capacity.cases(desk, list(found.values())):
            effort = {"solved": None, "tune_solved": None, "tune_loss": abs(case.lr - 4e-3)}
            numbers = {"accuracy": 0.5, "area": 0.5, "loss": 1.0, "flops_per_step": 1.0}
            found[case.digest] = asdict(case) | effort | numbers
    rows = found.values()
    assert {row["model"] for row in rows} == set(capacity.DECIDING)
    assert {row["part"] for row in rows} == {"equal width"}
    for name in capacity.DECIDING:
        slow = name == "mamba2"
        for length in (4, 16) if slow else (8, 16):
            mine = [row for row in rows if (row["model"], row["context"]) == (name, length)]
            assert {row["seed"] for row in mine} == set(range(3 if slow else 6)), (name, length)
            assert len({row["lr"] for row in mine}) > 2, "rates are tuned at each length"
        assert slow == (8 not in {row["context"] for row in rows if row["model"] == name})
    assert "over lengths 4, 8, 16, hyena" in capacity.holds(list(rows))["C10a"].ours
    assert "over lengths 4, 16, mamba2" in capacity.holds(list(rows))["C10b"].ours


def test_lengths_grow_until_a_model_breaks():
    rows = held(paper_4_heads=1.4, paper_flat=0.9)  # 1.0 and 0.5 at the last
    rows = [row for row in rows if row["context"] > 1]
    assert capacity.lengths(rows, "paper flat", 2, SEEDS) == [2, 4, 8]
    assert capacity.lengths(rows, "paper 4 heads", 2, SEEDS) == [2, 4, 8, 16]
    assert capacity.breaks(rows, "paper 4 heads") == "above 8"
    rows += solved("paper 4 heads", 0.2, part="equal width", context=16)
    assert capacity.lengths(rows, "paper 4 heads", 2, SEEDS) == [2, 4, 8, 16]
    assert capacity.breaks(rows, "paper 4 heads") == "16"
    # a length that the others were not asked changes nothing between them
    compared = (*capacity.TMM, "hyena")
    assert capacity_verdicts.shared_lengths(rows, *compared) == {2, 4, 8}


def test_lengths_grow_when_all_seeds_are_measured():
    rows = solved("hyena", 0.99, part="equal width", context=8, seeds=(0,))
    assert capacity.lengths(rows, "hyena", 2, SEEDS) == [2, 4, 8]
    assert capacity.lengths(rows, "hyena", 2, (0,)) == [2, 4, 8, 16]
    for context in (8, 16, 32, 64, 128, 256):
        rows += solved("hyena", 0.99, part="equal width", context=context)
    assert max(capacity.lengths(rows, "hyena", 2, SEEDS)) == 2 * capacity.MAX_LENGTH_MULTIPLE


def test_capacity_needs_trained_filters_and_heads_help_frozen_ones():
    helped = {"frozen_4_heads": 0.2, "ones_4_heads": 0.2}
    free = {"paper_flat": 0.9, "paper_4_heads": 0.9}
    found = kinds(capacity.holds(held(**free, **helped)))
    assert [found[part] for part in ("C11a", "C11b", "C11c")] == ["holds"] * 3
    flat = kinds(capacity.holds(held(**free, **helped, ones_flat=1.0)))
    assert (flat["C11a"], flat["C11b"]) == ("fails", "holds")
    worse = capacity.holds(held(**free, frozen_4_heads=0.2, ones_4_heads=0.0))
    assert worse["C11c"].kind == "fails"


def test_frozen_ones_decide_capacity():
    """The paper's frozen autoencoders have filters of ones, whatever noise does."""
    free = {"paper_flat": 0.9, "paper_4_heads": 0.9, "ones_4_heads": 0.2}
    rows = held(**free, frozen_flat=0.8, frozen_4_heads=0.0)
    found = capacity.holds(rows)
    assert [found[part].kind for part in ("C11a", "C11b", "C11c")] == ["holds"] * 3
    assert "frozen" not in found["C11a"].ours + found["C11b"].ours + found["C11c"].ours
    ones = [row for row in rows if not row["model"].startswith("frozen")]
    assert capacity.holds(ones)["C11a"].kind == "holds", "noise need not be measured"


def test_a_ceiling_compares_nothing():
    names = (*capacity.TMM, *capacity.FROZEN)
    ceiling = {name.replace(" ", "_"): 1.02 for name in capacity.FROZEN}
    ceiling |= {name.replace(" ", "_"): 1.22 for name in capacity.TMM}
    rows = [row for row in held(**ceiling) if row["model"] in names and row["context"] == 4]
    assert kinds(capacity.holds(rows)) == dict.fromkeys(
        ["C11a", "C11b", "C11c"], "not testable here"
    )


def test_where_capacity_breaks():
    rows = [row for row in held(hyena=1.2, llama=1.4) if row["context"] > 1]
    assert capacity.breaks(rows, "masked") == "2"
    assert capacity.breaks(rows, "hyena") == "8"
    assert capacity.breaks(rows, "llama") == "above 8"
    assert {line["breaks at"] for line in capacity.table(rows) if line["model"] == "hyena"} == {"8"}
    assert capacity.holds([]) == {}
    gap = [row for row in rows if row["context"] != 4]
    assert capacity.breaks(gap, "hyena") == "between 2 and 8"
