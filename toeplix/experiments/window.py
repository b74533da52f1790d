"""Windowed attention (Figure S3): Toeplitz mixers against attention to the last l positions.

Windows are n/8, n/4 and n/2 (64, 128 and 256 of the paper's 512). The paper compares at equal compute,
with TMM twice as wide as attention: in the part "compute" every model has the width at which it needs the
FLOPs of windowed attention of n/2 at the scale's width, and this part decides. TMM has the same width in
the part of that name of `training`, whose runs are reused. At equal width all models are shown at scales
other than desk.

The published "l = n/2" was full causal attention: in its library a query sees its own bucket and the
whole bucket before it, which at l = n/2 is the whole context. The paper does not claim that TMM is better
than full attention (C2 says the opposite), so "llama" is shown and decides nothing.
"""

from toeplix.experiments.engine import curves, equal_cost, style, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, Settings, model
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best
from toeplix.experiments.engine.text_training import Pair, best_rate
from toeplix.experiments.engine.verdicts import decide, not_testable

CLAIMS, MEASURES_TIME = ("C3",), False
COST = (
    "25 minutes on two cores with --jobs 2, less after `training`; at scale desk, after `training`, "
    "30 new runs, 100 minutes"
)
FRACTIONS = (8, 4, 2)
WINDOWS = tuple(f"window n/{fraction}" for fraction in FRACTIONS)
PARTS = dict(zip(("C3a", "C3b", "C3c"), WINDOWS, strict=True))
TMM = ("paper flat", "paper 4 heads")
TOEPLITZ = ("toeplitz", *TMM)
COMPUTE = "compute"  # the part that decides
PAIRS = [Pair(name, other) for name in TMM for other in WINDOWS]


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    desk = scale.name == "desk"
    compared = _compared(scale)
    found = text_training.tuned(scale, compared, rows)
    if desk:
        found = [case for case in found if case.tuning_run and case.model in (*TMM, "llama")]
    for name in (*TMM, *WINDOWS, "llama"):
        own = {name: compared[name]}
        # windows have the scale's width here, so their learning rates are tuned in one part only
        near = None if desk and name in WINDOWS else {name: best_rate(rows, name, own[name], scale)}
        found += text_training.tuned(
            scale, own, rows, pairs=PAIRS, near=near, part=COMPUTE, dim=width(scale, own[name])
        )
    return found


def _compared(scale: Scale) -> dict[str, Settings]:
    found = {name: MODELS[name] for name in (*TOEPLITZ, "llama")}
    for name, fraction in zip(WINDOWS, FRACTIONS, strict=True):
        found[name] = MODELS["window"] | {"window": scale.context // fraction}
    return found


def width(scale: Scale, settings: Settings) -> int:
    """Return the width at which a model needs the FLOPs of the widest window at the scale's width."""
    sizes = {"depth": scale.depth, "context": scale.context, "vocab": scale.vocab}
    anchor = model(_compared(scale)[WINDOWS[-1]], dim=scale.dim, **sizes)
    return equal_cost.width(settings, anchor, equal_cost.compute, scale.batch)


measure = text_training.measure
table = curves.table


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    equal = at_best(rows, COMPUTE)
    part, title = (COMPUTE, "equal compute") if equal else ("", "equal width")
    drawing, axes = style.panels(2, 2, width=4.6, used=3 + bool(published))
    curves.draw(axes[0], rows, "steps", title=f"{title}, by steps", part=part)
    curves.draw(axes[1], rows, curves.TIME, title=f"{title}, by time", part=part)
    curves.ends(axes[2], at_best(rows, part), title="final losses", width=True)
    if published:
        curves.published(axes[3], published)
    text = (
        "True windows, and full attention: validation loss of each model at its best learning rate."
    )
    return curves.compose(drawing, text)


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    """Judge C3 by the loss after equal steps of equal compute."""
    best = curves.best_of(rows, TMM, COMPUTE)
    found = {}
    for part, other in PARTS.items():
        each = None if best is None else curves.compare(rows, best, other, COMPUTE)
        if each is not None:
            found[part] = [each]
    if len(found) == len(PARTS):
        return decide(found)
    if any(row["part"] == "" and row["model"] in WINDOWS for row in rows):
        reason = "models are measured at equal width; the paper compares at equal compute"
        gaps = {part: curves.compare(rows, TMM[0], other) for part, other in PARTS.items()}
        return {
            part: not_testable(reason, f"at equal width {gap}" if gap else reason)
            for part, gap in gaps.items()
        }
    return {}
