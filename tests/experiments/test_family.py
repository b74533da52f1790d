"""Which runs the experiments on the model family ask for: `family` on text, `lookup` on recall."""

import math
from dataclasses import asdict, replace

from toeplix.experiments import SCALES, family, lookup

LAPTOP = replace(SCALES["laptop"], data="openstax@1")
BEST = 1.6e-2  # learning rate with the lowest loss in rows made here


def key(case):
    return str(sorted(asdict(case).items()))


def trained(times):
    """All cases of `family`, measured round by round; `times` gives a row its relative time."""
    rows = {}
    while True:
        new = [case for case in family.cases(LAPTOP, list(rows.values())) if key(case) not in rows]
        if not new:
            return list(rows.values())
        for case in new:
            loss = 4 + abs(math.log(case.lr / BEST))
            found = {"loss": loss, "tune_loss": loss, "flops_per_step": 1e9, "diverged": None}
            rows[key(case)] = asdict(case) | found | {"relative_time": times(case)}


def test_a_comparison_that_three_seeds_do_not_decide_gets_six():
    rows = trained(lambda case: 1.0)
    part = "openstax, equal steps"

    def seeds(name):
        mine = (row for row in rows if row["model"] == name and row["part"] == part)
        return {row["seed"] for row in mine if row["lr"] == BEST}

    assert seeds("hybrid") == seeds("hyena") == set(range(6))
    assert seeds("llama") == set(LAPTOP.seeds), "it is compared with nothing there"


def test_times_of_further_seeds_do_not_change_the_steps_of_equal_time():
    """They are measured with some noise, and other steps would ask for all runs of the part again."""
    rows = trained(lambda case: (2.0 if case.model == "hyena" else 1.0) + 0.3 * case.seed)
    part = [row for row in rows if row["part"] == "openstax, equal time"]
    assert {row["steps"] for row in part if row["model"] == "hyena"} == {170}
    assert {row["steps"] for row in part if row["model"] == "hybrid"} == {300}


def test_every_setting_of_recall_is_tuned():
    """The best learning rate of eight pairs may learn nothing of 32."""
    cases = lookup.cases(LAPTOP, [])
    settings = {}
    for case in cases:
        if case.part == "pairs" and case.seed == 0:
            sizes = case.model, case.dim, case.options["pairs"]
            settings.setdefault(sizes, set()).add(case.lr)
    assert all(rates == set(lookup.RATES) for rates in settings.values())
    pairs = {many for name, dim, many in settings if (name, dim) == ("lookup", 64)}
    assert pairs == set(lookup.PAIRS)
    keyed = {name for name, _, many in settings if "keys" in name and many == lookup.PAIRS[-1]}
    assert keyed == {f"lookup, {keys} keys" for keys in lookup.KEYS if keys != lookup.DEFAULT_KEYS}
    assert {name for name, *_ in settings} >= {"hyena", "llama", "mamba2", "lookup 1 of 2"}
    assert ("llama", 32, lookup.MIDDLE) in settings, "half the width"
    others = [case for case in cases if case.part == "pairs" and case.options["pairs"] != 8]
    assert {case.seed for case in others} == {LAPTOP.seeds[0]}
