"""Linear attention (Figure S0): where and why the exponential feature map diverges.

The published linear Transformer takes exp of its keys without subtracting a maximum, and divides by a
running sum. Here sums are kept in float32, where exp overflows at 88. In the half precision of the
authors' runs it overflows at 11.1, so the largest key of a trained model shows how close that run was to
overflow. The baseline is the stable feature map (elu + 1, Katharopoulos et al. 2020). Both are also
trained at ten times the highest learning rate of the grid.
"""

from pathlib import Path
from typing import Any

from toeplix.experiments.engine import curves, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import LINEAR, MODELS, Settings
from toeplix.experiments.engine.rows import Found, Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_training import Case, TextRow

CLAIMS, MEASURES_TIME = ("C7",), False
COST = "9 minutes on two cores with --jobs 2"
COMPARED: dict[str, Settings] = {
    "linear exp": LINEAR | {"feature_map": "exp"},
    "linear elu": LINEAR,
    "llama": MODELS["llama"],
    "paper flat": MODELS["paper flat"],
}


class LinearRow(TextRow, total=False):
    """A row of a run, with the largest key of the trained model if it has linear attention."""

    largest_key: float


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    found = text_training.tuned(scale, COMPARED, rows)
    high_rate = 10 * max(scale.rates or (5e-4,))  # high enough to diverge
    for name in ("linear exp", "linear elu"):
        for seed in scale.seeds:
            settings = COMPARED[name]
            found.append(
                Case.of(scale, name, settings, lr=high_rate, seed=seed, part="ten times the rate")
            )
    return found


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
    tokens = text_training.corpus(case, work).val.tokens[: case.batch * case.context]
    rows = torch.tensor(tokens.astype("int64")).view(-1, case.context)
    with torch.no_grad():
        model(rows)
    return max(largest)


table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    return curves.pair(rows, published, "linear attention")


def holds(rows: list[LinearRow]) -> dict[str, Verdict]:
    slow = curves.gap(rows, "linear exp", "llama")
    exps = [row for row in rows if row["model"] == "linear exp"]
    high_rate = [row for row in exps if row["part"]]
    if slow is None or not high_rate:
        return {}
    diverged = [row for row in exps if row["diverged"]]
    diverged_in_grid = [row for row in diverged if not row["part"]]
    words = (
        f"exp minus full attention: {slow}; diverged in {len(diverged_in_grid)} of "
        f"{len(exps) - len(high_rate)} runs of the grid, and in "
        f"{len(diverged) - len(diverged_in_grid)} of {len(high_rate)} at ten times its highest learning "
        "rate"
    )
    keys = [row["largest_key"] for row in exps if row.get("largest_key") is not None]
    words += (
        f"; largest key {max(keys):.1f} (exp overflows at 11.1 in half precision)" if keys else ""
    )
    slower = slow.low > 0
    return {
        "C7": Verdict(
            holds=bool(diverged_in_grid) and slower if diverged_in_grid or slow.high < 0 else None,
            ours=words,
        )
    }
