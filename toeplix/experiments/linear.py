"""Linear attention (Figure S0): where and why the exponential feature map diverges.

The published linear Transformer takes exp of its keys without subtracting a maximum, and divides by a
running sum. The paper reports that it is unstable in bfloat16 and in TF32 alike; in both, and in float32,
exp overflows near 88. The largest key of a trained model shows how close its run was to overflow. The
baseline is the stable feature map (elu + 1, Katharopoulos et al. 2020), in float32. The exponential is
trained in float32 at its own best learning rate, and in float32 and bfloat16 at that of the baseline. In
bfloat16, matrix products are in half precision, and exp and the running sums in float32, as under
PyTorch's autocast on a GPU. At scale desk there is what decides the claim, with three seeds.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from toeplix.experiments.engine import corpora, curves, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import LINEAR, MODELS, Settings
from toeplix.experiments.engine.rows import Found, Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best, setting
from toeplix.experiments.engine.text_training import Pair
from toeplix.experiments.engine.verdicts import Comparison, counted, decide, untrained

CLAIMS, MEASURES_TIME = ("C7",), False
COST = "9 minutes on two cores with --jobs 2; at scale desk 45 minutes"
HALF = "bfloat16"  # part of the runs in this precision
OVERFLOW = 88.7  # exp of more is infinite in float32 and bfloat16
COMPARED: dict[str, Settings] = {
    "linear exp": LINEAR | {"feature_map": "exp"},
    "linear elu": LINEAR,
    "llama": MODELS["llama"],
    "paper flat": MODELS["paper flat"],
}
DECIDING = ("linear exp", "linear elu", "llama")
SIZES: dict[str, dict[str, Any]] = {"desk": {"max_seeds": 3}}


class LinearRow(TextRow, total=False):
    """A row of a run, with the largest key of the trained model if it has linear attention."""

    largest_key: float


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    here = replace(scale, **SIZES.get(scale.name, {}))
    wanted = {
        name: settings
        for name, settings in COMPARED.items()
        if scale.name != "desk" or name in DECIDING
    }
    found = text_training.tuned(here, wanted, rows, pairs=[Pair("linear exp", "llama")])
    # whether it diverges is judged at the rate that is best for the stable feature map
    limit = text_training.settled(rows, "linear elu", COMPARED["linear elu"], here).rate
    parts: dict[str, dict[str, Any]] = {"": {}, HALF: {"precision": "bfloat16"}}
    for part, recipe in parts.items() if limit is not None else ():
        make = partial(Case.of, here, "linear exp", COMPARED["linear exp"], lr=limit)
        found += [make(part=part, recipe=recipe, seed=seed) for seed in here.seeds]
    return list({json.dumps(vars(case), sort_keys=True): case for case in found}.values())


def measure(case: Case, work: Path) -> Found:
    found = text_training.measure(case, work)
    if case.settings.get("arch") == "linear" and not found["diverged"]:
        return {**found, "largest_key": largest_key(case, work, found["run"])}
    return found


def largest_key(case: Case, work: Path, run: str) -> float:
    """Return the largest key of a trained model on a batch of validation text."""
    import torch

    from toeplix.checkpoint import load
    from toeplix.mixers.linear import LinearMixer

    model = load(work / "runs" / run / "model").eval()
    largest = []

    def look(layer: Any, inputs: Any, output: Any) -> None:
        largest.append(float(output.chunk(3, -1)[1].max()))

    for module in model.modules():
        if isinstance(module, LinearMixer):
            module.project_in.register_forward_hook(look)
    tokens = (
        corpora.store(case, work).val.alternate(corpora.REPORT).tokens[: case.batch * case.context]
    )
    rows = torch.tensor(tokens.astype("int64")).view(-1, case.context)
    with torch.no_grad():
        model(rows)
    return max(largest)


table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    order = list(COMPARED)
    shown = [
        row if row["part"] != HALF else row | {"part": "", "model": f"{row['model']}, {HALF}"}
        for row in sorted(rows, key=lambda row: (order.index(row["model"]), row["part"]))
    ]
    half = f"Runs in {HALF} have the best learning rate of linear elu."
    more = [half] if any(row["part"] == HALF for row in rows) else []
    return curves.pair(shown, published, "linear attention", more=more)


def holds(rows: list[LinearRow]) -> dict[str, Verdict]:
    slow = curves.compare(rows, "linear exp", "llama", above=True)
    parts: dict[str, list[Comparison] | Verdict] = {"C7a": [slow] if slow else []}
    for name, part in (("C7b", ""), ("C7c", HALF)):
        if verdict := _stability(rows, part):
            parts[name] = verdict
    return decide(parts)


def _stability(rows: list[LinearRow], part: str) -> Verdict | None:
    """Judge whether exp diverges at the learning rate that is best for the stable map in float32.

    It does if most seeds diverge, and does not if none does. Beyond that rate, any model diverges at some
    rate, which says nothing about the feature map. Runs that only chose a learning rate do not count:
    they are short.
    """
    stable = at_best(rows).get("linear elu")
    if not stable:
        return None
    limit = stable[0]["lr"]
    mine = [
        row
        for row in rows
        if (row["part"], row["model"]) == (part, "linear exp")
        and row["lr"] == limit
        and not row.get("tuning_run")
        and setting(row) == setting(stable[0])
    ]
    if {row["seed"] for row in stable} - {row["seed"] for row in mine}:
        return None
    diverged = [row for row in mine if row["diverged"]]
    keys = [row["largest_key"] for row in mine if row.get("largest_key") is not None]
    near = f"; largest key {max(keys):.1f}, exp overflows at {OVERFLOW:.0f}" if keys else ""
    number = f"{len(diverged)} of {len(mine)} runs diverged"
    where = f"at learning rate {limit:g}, the best of the stable feature map"
    if not diverged and (why := curves.untrained("linear exp", mine)):
        return untrained(why, number, number + near)
    unstable = None if 0 < len(diverged) <= len(mine) / 2 else bool(diverged)
    said = {True: "more than half", None: "not more than half", False: "none"}[unstable]
    return counted(
        unstable, number, f"runs that diverge {where}: {said}", f"{number} {where}{near}"
    )
