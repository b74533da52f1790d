"""Training efficiency (Figure 3a-c): validation loss by steps, FLOPs and time.

Parts: equal width; equal compute and equal memory in training (each model at the width at which its
counted cost equals that of Hyena at the scale's width); the published ratio of widths (TMM twice as wide
as Hyena and the Transformer and four times as wide as Mamba 2, for equal throughput on the authors'
machines); twice the context at the same number of tokens per step. Learning rates are tuned at equal
width and kept in the other parts.
"""

from toeplix.experiments.engine import curves, equal_cost, intervals, style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, Settings, model
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_training import Case, TextRow, at_best, best_rate

CLAIMS, MEASURES_TIME = ("C1", "C2", "C8"), False
COST = "50 minutes on two shared cores with --jobs 2"
ANCHOR = "hyena"
COSTS: dict[str, equal_cost.Cost] = {"compute": equal_cost.compute, "memory": equal_cost.memory}
EQUAL_COST_MODELS = (
    "toeplitz",
    "paper flat",
    "paper 4 heads",
    "masked",
    "hyena",
    "mamba2",
    "llama",
)
DOUBLE_CONTEXT_MODELS = ("toeplitz", "paper flat", "hyena", "llama")  # all would take too long
PUBLISHED = {
    "paper flat": 2,
    "paper 4 heads": 2,
    "hyena": 1,
    "llama": 1,
    "mamba2": 0.5,
}  # multiples of the scale's width
TMM = ("paper flat", "paper 4 heads")
SIMILAR_LOSS = 0.02  # difference in nats per token up to which losses count as similar


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    found = text_training.tuned(scale, MODELS, rows)
    for name, settings in MODELS.items():
        rate = best_rate(rows, name, settings, scale)
        if rate is None:
            continue
        for part, sizes in parts(scale, name, settings).items():
            for seed in scale.seeds:
                found.append(Case.of(scale, name, settings, part=part, lr=rate, seed=seed, **sizes))
    return found


def parts(scale: Scale, name: str, settings: Settings) -> dict[str, dict[str, int]]:
    """Return the sizes that differ from the scale's, by part."""
    common = {"depth": scale.depth, "context": scale.context, "vocab": scale.vocab}
    anchor = model(MODELS[ANCHOR], dim=scale.dim, **common)
    found: dict[str, dict[str, int]] = {}
    if name in EQUAL_COST_MODELS:
        for part, cost in COSTS.items():
            found[part] = {"dim": equal_cost.width(settings, anchor, cost, scale.batch)}
    if name in PUBLISHED:
        found["published ratio"] = {"dim": int(scale.dim * PUBLISHED[name])}
    if name in DOUBLE_CONTEXT_MODELS:
        found["double context"] = {"context": scale.context * 2, "batch": max(1, scale.batch // 2)}
    return found


measure = text_training.measure


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    drawing = style.canvas(3, 2)
    axes = drawing.subplots(2, 3)
    for place, along in zip(axes[0], curves.AXES, strict=True):
        curves.draw(place, rows, along, title="equal width")
    for place, part in zip(axes[1], COSTS, strict=False):
        curves.ends(place, at_best(rows, part), title=f"equal {part}", width=True)
    curves.published(axes[1][2], published)
    return drawing


table = curves.table


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    found = {}
    if verdict := _against(rows, ("hyena", "mamba2"), lower=True):
        found["C1"] = verdict
    if verdict := _against(rows, ("llama", "masked"), lower=False):
        found["C2"] = verdict
    if spread := rate_spread(rows):
        words = ", ".join(f"{name} {value:.2f}" for name, value in spread.items())
        found["C8"] = Verdict(
            holds=max(spread.values()) < 0.1,
            ours=f"highest minus lowest loss over learning rates a factor of {_factor(rows):.0f} apart: "
            f"{words}",
        )
    return found


def _against(rows: list[TextRow], others: tuple[str, ...], *, lower: bool) -> Verdict | None:
    """Compare the better of the paper's two TMMs (flat, 4 heads), and our default, with other models."""
    answers, words = [], []
    for part in COSTS:
        for other in others:
            gaps = {name: curves.gap(rows, name, other, part) for name in (*TMM, "toeplitz")}
            known = {name: gap for name, gap in gaps.items() if gap is not None}
            if len(known) < len(gaps):
                return None
            gap = min((known[name] for name in TMM), key=lambda each: each.value)
            answers.append(
                intervals.below(gap, SIMILAR_LOSS) if lower else intervals.below(gap.flipped)
            )
            words.append(
                f"equal {part}, TMM minus {other}: {gap} (our default: {known['toeplitz']})"
            )
    return Verdict(holds=intervals.every(*answers), ours="; ".join(words))


def rate_spread(rows: list[TextRow]) -> dict[str, float]:
    """Return the highest minus the lowest loss over the grid of learning rates, per model, first seed."""
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


def _factor(rows: list[TextRow]) -> float:
    rates = {row["lr"] for row in rows}
    return max(rates) / min(rates)
