"""Training efficiency (Figure 3a-c): who learns most per step, token, operation and second.

Parts: equal width; equal compute and equal memory in training (every model as wide as costs what Hyena
does at the scale's width, by counting); the published ratio of widths (TMM twice as wide as Hyena and
Transformer and four times Mamba 2, for equal throughput on the authors' machines); a doubled context at
as many tokens a step. Learning rates are tuned at equal width and kept in the other parts.
"""

from typing import Any

from toeplix.experiments.engine import curves, equal_cost, intervals, style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, model
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.text_training import Case, at_best, best_rate

CLAIMS, ALONE = ("C1", "C2", "C8"), False
COST = "50 minutes on two shared cores with --jobs 2"
ANCHOR = "hyena"
COSTS: dict[str, equal_cost.Cost] = {"compute": equal_cost.compute, "memory": equal_cost.memory}
COSTLY = ("toeplitz", "paper flat", "paper 4 heads", "masked", "hyena", "mamba2", "llama")
FEWER = ("toeplitz", "paper flat", "hyena", "llama")  # where all models would take too long
PUBLISHED = {
    "paper flat": 2,
    "paper 4 heads": 2,
    "hyena": 1,
    "llama": 1,
    "mamba2": 0.5,
}  # of widths
TMM = ("paper flat", "paper 4 heads")
SIMILAR = 0.02  # nats per token within which losses are called similar


def cases(scale: Scale, rows: list[Row]) -> list[Case]:
    found = text_training.tuned(scale, MODELS, rows)
    for name, settings in MODELS.items():
        rate = best_rate(rows, name, settings, scale)
        if rate is None:
            continue
        for part, sizes in parts(scale, name, settings).items():
            for seed in scale.seeds:
                found.append(Case.of(scale, name, settings, part=part, lr=rate, seed=seed, **sizes))
    return found


def parts(scale: Scale, name: str, settings: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Sizes that differ from the scale's, by part."""
    common = {"depth": scale.depth, "context": scale.context, "vocab": scale.vocab}
    anchor = model(MODELS[ANCHOR], dim=scale.dim, **common)
    found: dict[str, dict[str, int]] = {}
    if name in COSTLY:
        for part, cost in COSTS.items():
            found[part] = {"dim": equal_cost.width(settings, anchor, cost, scale.batch)}
    if name in PUBLISHED:
        found["published ratio"] = {"dim": int(scale.dim * PUBLISHED[name])}
    if name in FEWER:
        found["double context"] = {"context": scale.context * 2, "batch": max(1, scale.batch // 2)}
    return found


measure = text_training.measure


def figure(rows: list[Row], published: list[Row]) -> Any:
    drawing = style.canvas(3, 2)
    axes = drawing.subplots(2, 3)
    for place, along in zip(axes[0], curves.AXES, strict=True):
        curves.draw(place, rows, along, title="equal width")
    for place, part in zip(axes[1], COSTS, strict=False):
        curves.ends(place, at_best(rows, part), title=f"equal {part}", width=True)
    curves.published(axes[1][2], published)
    return drawing


table = curves.table


def holds(rows: list[Row]) -> dict[str, Verdict]:
    found = {}
    if verdict := _against(rows, ("hyena", "mamba2"), lower=True):
        found["C1"] = verdict
    if verdict := _against(rows, ("llama", "masked"), lower=False):
        found["C2"] = verdict
    if spread := rate_spread(rows):
        words = ", ".join(f"{name} {value:.2f}" for name, value in spread.items())
        found["C8"] = Verdict(
            holds=max(spread.values()) < 0.1,
            ours=f"highest minus lowest loss over rates a factor of {_factor(rows):.0f} apart: {words}",
        )
    return found


def _against(rows: list[Row], others: tuple[str, ...], *, lower: bool) -> Verdict | None:
    """The paper's TMM, the better of flat and headed, beside others; and ours for comparison."""
    answers, words = [], []
    for part in COSTS:
        for other in others:
            gaps = {name: curves.gap(rows, name, other, part) for name in (*TMM, "toeplitz")}
            known = {name: gap for name, gap in gaps.items() if gap is not None}
            if len(known) < len(gaps):
                return None
            gap = min((known[name] for name in TMM), key=lambda each: each.value)
            answers.append(intervals.below(gap, SIMILAR) if lower else intervals.below(gap.flipped))
            words.append(
                f"equal {part}, TMM minus {other}: {gap} (our default: {known['toeplitz']})"
            )
    return Verdict(holds=intervals.every(*answers), ours="; ".join(words))


def rate_spread(rows: list[Row]) -> dict[str, float]:
    """Highest minus lowest loss over the grid of learning rates, first seed, of each model."""
    first = min((row["seed"] for row in rows), default=0)
    grid: dict[str, dict[float, float]] = {}
    for row in rows:
        if not row["part"] and row["seed"] == first and row["loss"] is not None:
            grid.setdefault(row["model"], {})[row["lr"]] = row["loss"]
    return {
        name: max(found.values()) - min(found.values())
        for name, found in grid.items()
        if len(found) > 1
    }


def _factor(rows: list[Row]) -> float:
    rates = {row["lr"] for row in rows}
    return max(rates) / min(rates)
