"""Training efficiency (Figure 3a-c): validation loss by steps, FLOPs and time.

Parts: equal width; equal compute and equal memory in training (each model at the width at which its
counted cost equals that of Hyena at the scale's width); the published ratio of widths (TMM twice as wide
as Hyena and the Transformer and four times as wide as Mamba 2, for equal throughput on the authors'
machines); twice the context at the same number of tokens per step. Learning rates are tuned in every
part, around those of equal width. Mamba 2 has no width of equal memory: without its CUDA kernels it runs
a scan in PyTorch, whose memory is not that of the kernels.

"hyena" is this library's: 9 filter features (`controls` compares it with the paper's and its authors').
At scale desk the Masked Mixer has this library's initialisation, with which it learns better.

The part "rates" has the paper's models at their best learning rate and at both neighbours among those
tried, with all seeds: the range of the losses says how much the learning rate matters. Its runs have the
steps of runs that choose a learning rate, which at scale desk are a fifth of the others.
"""

import math
import statistics
from dataclasses import replace

from toeplix.experiments.engine import (
    curves,
    equal_cost,
    intervals,
    style,
    text_training,
    tuning,
)
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, Settings, model
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import (
    Case,
    TextRow,
    at_best,
    fullest,
    setting,
)
from toeplix.experiments.engine.text_training import Pair, best_rate, rates_tried
from toeplix.experiments.engine.thresholds import SIMILAR_LOSS, SMALL_RANGE
from toeplix.experiments.engine.verdicts import Comparison, decide

CLAIMS, MEASURES_TIME = ("C1", "C2", "C8"), False
COST = "50 minutes on two shared cores with --jobs 2; at scale desk 145 runs, 3 hours"
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
NOT_COMPARABLE = {("mamba2", "memory")}  # see above
RATES_PART = "rates"
NEIGHBOURS = 3  # learning rates of this part: the best and its neighbours
RATES_MODELS = ("paper flat", "paper 4 heads", "hyena", "llama")
# At scale desk: the comparisons of C1d, C2 and C8. The other parts of C1 are decided by `frontier`, C3 by
# `window`. The cost is estimated in docs/scaling.md.
DESK_FULL_RUNS = ("toeplitz", "hybrid", "hyena", "llama")  # at equal width; described, not decided
DESK_MODELS = (*DESK_FULL_RUNS, "paper flat", "paper 4 heads", "masked")
# a control should be at its best: the Masked Mixer is, unlike TMM, with embeddings of 0.02 (docs/log.md)
DESK_SETTINGS = {"masked": MODELS["masked"] | {"init": "scaled"}}
DESK_PARTS = {"compute": ("paper flat", "paper 4 heads", "hyena", "masked", "llama")}
PAIRS = [Pair(name, other, SIMILAR_LOSS) for name in TMM for other in ("hyena", "mamba2")]
PAIRS += [Pair(name, other, -SIMILAR_LOSS) for name in TMM for other in ("llama", "masked")]


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    desk = scale.name == "desk"
    compared = dict(MODELS)
    if desk:
        compared = {name: DESK_SETTINGS.get(name, MODELS[name]) for name in DESK_MODELS}
    found = text_training.tuned(scale, compared, rows)
    if desk:
        found = [case for case in found if case.tuning_run or case.model in DESK_FULL_RUNS]
    for name, settings in compared.items():
        near = {name: best_rate(rows, name, settings, scale)}
        for part, sizes in parts(scale, name, settings).items():
            own = {name: settings}
            pairs = PAIRS if part in COSTS else ()
            seeds = tuning.seeds(scale, desk)  # at scale desk these models decide claims
            found += text_training.tuned(
                replace(scale, seeds=seeds), own, rows, pairs=pairs, near=near, part=part, **sizes
            )
    found += _rate_cases(scale, rows)
    return sorted(found, key=_place) if desk else found


def _place(case: Case) -> int:
    """Return a case's place in the order of runs: what decides claims comes before what describes."""
    if case.part == RATES_PART:
        return 2
    return 0 if case.tuning_run else 1 if case.part in COSTS else 3


def _rate_cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    """Return the paper's models at their best learning rate and at its neighbours, with all seeds.

    The neighbours are among the rates that were tried, so that the first seed is trained already.
    """
    found = []
    for name in RATES_MODELS if len(scale.rates) > 1 else ():
        settings = MODELS[name]
        rate = best_rate(rows, name, settings, scale)
        if rate is None:
            continue
        tried = sorted(tuning.rates(scale.rates, rates_tried(rows, name, scale)))
        # at an edge, which a grid may keep, the rates next to it
        place = max(0, min(tried.index(rate) - 1, len(tried) - NEIGHBOURS))
        for lr in tried[place : place + NEIGHBOURS]:
            for seed in tuning.seeds(scale, scale.all_seeds):
                case = Case.of(scale, name, settings, part=RATES_PART, lr=lr, seed=seed)
                if scale.tuning != 1:
                    case = text_training.shortened(case, scale.tuning)
                found.append(case)
    return found


def parts(scale: Scale, name: str, settings: Settings) -> dict[str, dict[str, int]]:
    """Return the sizes that differ from the scale's, by part."""
    common = {"depth": scale.depth, "context": scale.context, "vocab": scale.vocab}
    anchor = model(MODELS[ANCHOR], dim=scale.dim, **common)
    found: dict[str, dict[str, int]] = {}
    if scale.name == "desk":
        return {
            part: {"dim": equal_cost.width(settings, anchor, COSTS[part], scale.batch)}
            for part, names in DESK_PARTS.items()
            if name in names
        }
    if name in EQUAL_COST_MODELS:
        for part, cost in COSTS.items():
            if (name, part) in NOT_COMPARABLE:
                continue
            found[part] = {"dim": equal_cost.width(settings, anchor, cost, scale.batch)}
    if name in PUBLISHED:
        found["published ratio"] = {"dim": int(scale.dim * PUBLISHED[name])}
    if name in DOUBLE_CONTEXT_MODELS:
        found["double context"] = {"context": scale.context * 2, "batch": max(1, scale.batch // 2)}
    return found


measure = text_training.measure


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    """Plot curves of the part with most models, and the final losses of the others and of equal cost."""
    models = {part: len(at_best(rows, part)) for part in ("", *COSTS)}
    main = max(models, key=lambda part: models[part])
    known = [part for part in (*COSTS, "") if models[part] and (part or main)]
    used = len(curves.AXES) + len(known) + bool(published)
    drawing, axes = style.panels(3, 2, width=3.9, used=used)
    for place, along in zip(axes, curves.AXES, strict=False):
        title = f"equal {main or 'width'}, by {along.partition(' (')[0]}"
        curves.draw(place, rows, along, title=title, part=main)
    for place, part in zip(axes[3:], known, strict=False):
        title = f"equal {part or 'width'}, final losses"
        curves.ends(place, at_best(rows, part), title=title, width=True)
    if published:
        curves.published(axes[-1], published)
    return curves.compose(drawing)


def table(rows: list[TextRow]) -> Table:
    """Return final losses by part, and the range of losses over learning rates."""
    lines = list(curves.table([row for row in rows if row["part"] != RATES_PART]))
    ranges = {name: intervals.mean(found) for name, found in rate_ranges(rows).items()}
    for line in lines:
        if line["model"] in ranges and line.get("part", "equal width") == "equal width":
            line["range over learning rates"] = str(ranges[line["model"]])
    return lines


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    found = decide({"C1d": _against(rows, (ANCHOR,), SIMILAR_LOSS, above=False)})
    # no number of seeds shows that a loss is not below another one, so there is a margin
    found |= decide(
        {
            part: _against(rows, (other,), -SIMILAR_LOSS, above=True)
            for part, other in (("C2a", "llama"), ("C2b", "masked"))
        }
    )
    known = rate_ranges(rows)
    ranges = [
        Comparison(
            name=f"{name}, {_tried(rows, name)}",
            interval=intervals.mean(known[name]),
            bound=SMALL_RANGE,
            unit="nats",
            control=curves.untrained(name, _best_of_rates(rows, name)),
        )
        for name in RATES_MODELS
        if name in known
    ]
    return found | decide({"C8": ranges if len(ranges) == len(RATES_MODELS) else []})


def _best_of_rates(rows: list[TextRow], name: str) -> list[TextRow]:
    """Return the rows of a model in the part "rates" at the learning rate with the lowest mean loss."""
    by_rate: dict[float, list[TextRow]] = {}
    for row in _rate_rows(rows):
        if row["model"] == name:
            by_rate.setdefault(row["lr"], []).append(row)
    return min(by_rate.values(), key=lambda group: statistics.fmean(map(tuning.level, group)))


def _tried(rows: list[TextRow], name: str) -> str:
    """Return over which learning rates a model's range is, and after how many steps, as text."""
    mine = [row for row in rows if row["part"] == RATES_PART and row["model"] == name]
    rates = [row["lr"] for row in mine]
    factor = max(rates) / min(rates)
    return f"learning rates up to a factor of {factor:.2g} apart, {mine[0]['steps']} steps"


def _against(
    rows: list[TextRow], others: tuple[str, ...], bound: float, *, above: bool
) -> list[Comparison]:
    """Compare the better of the paper's two TMMs (flat, 4 heads) with other models at equal cost."""
    found = []
    measured = {row["part"] for row in rows}
    for part in (part for part in COSTS if part in measured):
        best = curves.best_of(rows, TMM, part)
        for other in others:
            if (other, part) in NOT_COMPARABLE:
                continue
            if best is None:
                return []
            name = f"{best} minus {other}, {_costs(rows, part, best, other)}"
            each = curves.compare(rows, best, other, part, bound=bound, above=above, name=name)
            if each is None:
                return []
            found.append(each)
    return found


def _costs(rows: list[TextRow], part: str, first: str, second: str) -> str:
    """Return what is equal as text: only nearly, as widths are multiples of 8."""
    groups = at_best(rows, part)
    if not (groups.get(first) and groups.get(second)):
        return f"equal {part}"
    here, there = groups[first][0], groups[second][0]
    if part == "memory":
        return f"with {here['training_bytes'] / there['training_bytes']:.2f} times the memory"
    return f"with {here['flops_per_step'] / there['flops_per_step']:.2f} times the FLOPs"


def rate_ranges(rows: list[TextRow]) -> dict[str, list[float]]:
    """Return, by seed, the range of losses over a model's best learning rate and its neighbours.

    A run that diverged counts with the loss of a model that knows nothing, ln(vocab). A model is left out
    until it has three learning rates, the same for all seeds, and as many seeds as any.
    """
    grid: dict[str, dict[int, dict[float, float]]] = {}
    for row in _rate_rows(rows):
        loss = math.log(row["vocab"]) if row["loss"] is None else row["loss"]
        grid.setdefault(row["model"], {}).setdefault(row["seed"], {})[row["lr"]] = loss
    most = max(map(len, grid.values()), default=0)
    return {
        name: [max(by_rate.values()) - min(by_rate.values()) for by_rate in seeds.values()]
        for name, seeds in grid.items()
        if len(seeds) == most
        and len({tuple(sorted(by_rate)) for by_rate in seeds.values()}) == 1
        and all(len(by_rate) >= NEIGHBOURS for by_rate in seeds.values())
    }


def _rate_rows(rows: list[TextRow]) -> list[TextRow]:
    """Return the rows of the part "rates" of one setting, that with most models and rows."""
    return fullest([row for row in rows if row["part"] == RATES_PART], setting)
