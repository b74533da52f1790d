"""Linear attention (Figure S0): where and why the exponential feature map diverges.

The published linear Transformer takes exp of its keys without subtracting a maximum and divides by a
running sum: in float32 it trains at small rates, and ends where keys grow. Beside it the stable form
(elu + 1, Katharopoulos et al. 2020), in float32 and in bfloat16 as on the authors' machines.
"""

from typing import Any

from toeplix.experiments import curves, learning
from toeplix.experiments.claims import Verdict
from toeplix.experiments.learning import Case
from toeplix.experiments.models import MODELS
from toeplix.experiments.rows import Row
from toeplix.experiments.scale import Scale

CLAIMS, ALONE = ("C7",), False
COST = "8 minutes on two cores with --jobs 2"
COMPARED: dict[str, dict[str, Any]] = {
    "linear exp": {"arch": "linear", "feature": "exp", "activation": "gelu"},
    "linear elu": {"arch": "linear", "feature": "elu", "activation": "gelu"},
    "llama": MODELS["llama"],
    "paper flat": MODELS["paper flat"],
}


def cases(scale: Scale, rows: list[Row]) -> list[Case]:
    found = learning.tuned(scale, COMPARED, rows)
    hot = 10 * max(scale.rates or (5e-4,))  # where it breaks, if not before
    for name in ("linear exp", "linear elu"):
        for seed in scale.seeds:
            settings = COMPARED[name]
            found.append(
                Case.of(scale, name, settings, lr=hot, seed=seed, part="ten times the rate")
            )
    return found


measure = learning.measure
table = curves.table


def figure(rows: list[Row], published: list[Row]) -> Any:
    return curves.pair(rows, published, "linear attention")


def holds(rows: list[Row]) -> dict[str, Verdict]:
    slow = curves.gap(rows, "linear exp", "llama")
    exps = [row for row in rows if row["model"] == "linear exp"]
    hot = [row for row in exps if row["part"]]
    if slow is None or not hot:
        return {}
    gone = [row for row in exps if row["diverged"]]
    calm = [row for row in gone if not row["part"]]
    words = (
        f"exp minus full attention: {slow}; diverged in {len(calm)} of {len(exps) - len(hot)} runs of "
        f"the grid, and in {len(gone) - len(calm)} of {len(hot)} at ten times its highest rate"
    )
    slower = slow.low > 0
    return {
        "C7": Verdict(holds=bool(calm) and slower if calm or slow.high < 0 else None, ours=words)
    }
