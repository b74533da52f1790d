"""The frontier (Figure 3): loss against FLOPs, time and tokens, every model at its best width.

Three budgets of FLOPs, each four times the one before. A model of any width gets as many steps as the
budget affords, so that all models of a budget cost the same. Width and learning rate are searched for
together (`engine/size_search.py`), for every model and budget, on the tuning half of the validation
documents with the first seed. The search of a budget starts from the rate of the budget before and the
next width, and ends where no neighbouring width or rate is better, nor a wider model at a lower rate, nor
a narrower one at a higher rate. The best is repeated with the other seeds; if one of them diverges, it is
given up for the next best. The claim is decided at the largest budget; models have more seeds, at all
budgets, where the first ones leave a part of the claim undecided.
Times are relative to the paper's flat model (`text_training`), and medians over all runs of a model and
width; at equal time, losses are interpolated in log time between budgets. Mamba 2 is not compared at
equal time: without its CUDA kernels it runs a scan in PyTorch. Scale desk leaves out the model with free
filters and gate, which was the default before the hybrid.
"""

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from toeplix.architectures import forward_flops
from toeplix.experiments.engine import (
    curves,
    intervals,
    style,
    text_rows,
    text_training,
    tuning,
)
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.frontier_rows import (
    COMPARED,
    COSTS,
    OTHERS,
    RIVALS,
    TMM,
    Frontier,
    FrontierRow,
    at_a_look,
    at_equal_time,
    best_tmm,
    edge,
    exponent,
    frontier,
    minus,
    minus_at_equal_time,
    point_levels,
    point_of,
    setting,
    tried_beside,
    width_edge,
    with_seeds,
    with_shared_times,
)
from toeplix.experiments.engine.models import MODELS, model, published_rate
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.size_search import Point, next_width, search
from toeplix.experiments.engine.style import Axes, Figure
from toeplix.experiments.engine.text_rows import losses
from toeplix.experiments.engine.thresholds import SIMILAR_LOSS
from toeplix.experiments.engine.verdicts import Comparison, decide

Cost = Callable[[FrontierRow], float]
Looks = Mapping[str, Mapping[str, Any]]
CLAIMS, MEASURES_TIME = ("C1",), False
COST = "10 minutes on two cores with --jobs 2; at scale desk 3 hours"
REFERENCE = RIVALS["C1a"]  # the model to which the table compares all others
WARMUP = 0.2  # fraction of the steps: attention needs it (`controls`)


class Sizes(NamedTuple):
    """Budgets in FLOPs, the widths that may be tried, and fields that differ from the scale's."""

    budgets: tuple[float, ...]
    widths: tuple[int, ...]
    first: int  # the width at which the search begins
    other: dict[str, Any]
    without: tuple[str, ...] = ()  # models that are left out


# a step of width 64 at scale desk has about 3e9 FLOPs, and one core computes about 40e9 in a second
LADDER = (16, 24, 32, 48, 64, 96, 128, 192, 256)
SIZES = {
    "paper": Sizes((1e18, 4e18, 1.6e19), (128, 256, 512, 1024, 2048), 256, {}),
    "desk": Sizes(
        (2e11, 8e11, 3.2e12),
        LADDER,
        48,
        {"eval_sequences": 256, "timing": 6.0},
        without=("toeplitz",),
    ),
    "laptop": Sizes((2e10, 8e10, 3.2e11), LADDER, 32, {"batch": 4, "timing": 1.0, "max_seeds": 3}),
    "smoke": Sizes((4e6, 1.6e7, 6.4e7), (16,), 16, {}),
}


@dataclass(frozen=True, kw_only=True)
class Case(text_rows.Case):
    """A training run of a budget."""

    budget: float = 0.0


def cases(scale: Scale, rows: list[FrontierRow]) -> list[Case]:
    sizes = SIZES[scale.name]
    here = replace(scale, **sizes.other)
    like = Case.of(here, "", {}, lr=0.0, seed=here.seeds[0])
    rows = [row for row in rows if setting({**vars(like), **row}) == setting(vars(like))]
    more = _undecided(here, rows)
    # those that decide the claim come first: an interrupted run should have decided something
    deciding = (*TMM, *OTHERS)
    order = (*deciding, *(name for name in COMPARED if name not in (*deciding, *sizes.without)))
    return [case for name in order for case in _of_model(scale, rows, name, name in more)]


def _of_model(scale: Scale, rows: list[FrontierRow], name: str, undecided: bool) -> list[Case]:
    """Return the cases of one model; those of a budget follow from the rows of the budget before."""
    sizes = SIZES[scale.name]
    here = replace(scale, **sizes.other)
    grid = here.rates or (published_rate(MODELS[name]),)
    start = Point(sizes.first, sorted(grid)[len(grid) // 2])
    mine = [row for row in rows if row["model"] == name]
    # what is measured stays a case of the experiment
    runs = {(row["budget"], point_of(row), row["seed"]): None for row in mine}
    for budget in sizes.budgets:
        levels = point_levels((row for row in mine if row["budget"] == budget), here.seeds[0])
        best, needed = search(sizes.widths, grid, start, levels)
        runs |= {(budget, point, here.seeds[0]): None for point in needed}
        if best is None:
            break
        runs |= {(budget, best, seed): None for seed in tuning.seeds(here, undecided)}
        # four times the FLOPs are twice the weights and twice the tokens: about the next width
        start = Point(next_width(sizes.widths, best.width), best.rate)
    return [_case(here, name, budget, *point, seed) for budget, point, seed in runs]


@functools.lru_cache(maxsize=1024)
def _forward_flops(name: str, dim: int, depth: int, context: int, vocab: int, batch: int) -> float:
    """Return the FLOPs of a forward pass; those of some architectures are counted on built models."""
    config = model(MODELS[name], dim=dim, depth=depth, context=context, vocab=vocab)
    return forward_flops(config, context, batch)


def _case(scale: Scale, name: str, budget: float, width: int, rate: float, seed: int) -> Case:
    """Return a run with as many steps as the budget affords."""
    forward = _forward_flops(name, width, scale.depth, scale.context, scale.vocab, scale.batch)
    steps = max(2, round(budget / (3 * forward)))
    return Case.of(
        scale,
        name,
        MODELS[name],
        dim=width,
        steps=steps,
        warmup=max(1, round(WARMUP * steps)),
        lr=rate,
        seed=seed,
        budget=budget,
        part=f"{budget:.2g} FLOPs",
    )


measure = text_training.measure


def _undecided(scale: Scale, rows: list[FrontierRow]) -> set[str]:
    """Return the models of the parts of the claim that the scale's seeds leave undecided."""
    best = with_seeds(frontier(rows), scale.seeds)
    open_parts = [part for part, said in _judged(best).items() if said.kind == "undecided"]
    tmm = best_tmm(best, SIZES[scale.name].budgets[-1])
    return {name for part in open_parts for name in (tmm, RIVALS[part]) if name is not None}


def figure(rows: list[FrontierRow], published: list[Row]) -> Figure:
    drawing, axes = style.panels(3, height=3.0)
    best, rows = frontier(rows), with_shared_times(rows)
    looks = style.looks(dict.fromkeys([*best, *(row["model"] for row in rows)]))
    for place, (label, cost) in zip(axes, COSTS.items(), strict=True):
        _lines(place, best, cost, looks)
        _all_runs(place, rows, cost, looks)
        style.log_ticks(place)
        _names(place, best, cost, looks)
        style.finish(place, x=label, y=curves.LOSS, title=f"by {label.partition(' (')[0]}")
    text = (
        "Loss of each model at its best width and learning rate, for every budget of FLOPs whose search "
        "has ended; the width is written beside each model's largest. Pale dots are the other widths and "
        "rates that were tried. A loss with an arrow lies above the panel."
    )
    return style.compose(drawing, f"{text} {style.INTERVALS}")


def _lines(axes: Axes, best: Frontier, cost: Cost, looks: Looks) -> None:
    for name, budgets in best.items():
        known = {
            statistics.fmean(map(cost, group)): group for group in budgets.values() if losses(group)
        }
        means = [intervals.mean(list(losses(group).values())) for group in known.values()]
        values = [each.value for each in means]
        own: dict[str, Any] = {
            "markersize": 4.5,
            "linewidth": 1.2,
            "elinewidth": 0.9,
            **looks[name],
        }
        axes.errorbar(list(known), values, yerr=curves.bars(means), label=name, **own)
    most = max(map(len, best.values()), default=0)
    full = [name for name, budgets in best.items() if len(budgets) == most]
    shown = [_mean(group) for name in full for group in best[name].values() if losses(group)]
    if shown:
        margin = 0.08 * (max(shown) - min(shown)) + 1e-3
        axes.set_ylim(min(shown) - margin, max(shown) + margin)


def _mean(group: Sequence[FrontierRow]) -> float:
    return statistics.fmean(losses(group).values())


def _names(axes: Axes, best: Frontier, cost: Cost, looks: Looks) -> None:
    """Write the width beside each model's largest budget, and the losses that lie above the panel."""
    top = axes.get_ylim()[1]
    inside = []
    for name, budgets in best.items():
        known = [group for group in budgets.values() if losses(group)]
        for group in known:
            point = statistics.fmean(map(cost, group)), _mean(group)
            if point[1] > top:
                how: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (6, -9)}
                how["color"] = looks[name]["color"]
                text = f"{point[1]:.2f} \N{UPWARDS ARROW}"
                style.word(axes, (point[0], 1.0), text, **how)
            elif group is known[-1]:
                inside.append((point, str(group[0]["dim"]), looks[name]["color"]))
    style.names(axes, inside)


def _all_runs(axes: Axes, rows: list[FrontierRow], cost: Cost, looks: Looks) -> None:
    """Plot what else was tried, as far as it lies within the range of the frontier.

    Right of it there is room for the names of the last points.
    """
    bottom, top = axes.get_ylim()
    for row in rows:
        if row["loss"] is not None and row["loss"] < top:
            dot: dict[str, Any] = {
                "color": looks[row["model"]]["color"],
                "alpha": 0.25,
                "markersize": 2,
            }
            axes.plot(cost(row), row["loss"], ".", **dot)
    axes.set_ylim(bottom, top)
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * (right / left) ** 0.08)


def table(rows: list[FrontierRow]) -> Table:
    """Return the best width, learning rate and loss of every model and budget.

    The line of a model's largest budget also has the difference from Hyena at equal time (and which), and
    the exponent with which the loss falls.
    """
    found, best = [], frontier(rows)
    for name, budgets in best.items():
        at_time = minus_at_equal_time(best, name, REFERENCE)
        for budget, group in budgets.items():
            row = group[0]
            tried = tried_beside(rows, group)
            values = list(losses(group).values())
            found.append(
                {
                    "model": name,
                    "FLOPs": f"{budget:.2g}",
                    "width": row["dim"],
                    "width, among those tried": width_edge(rows, group),
                    "widths and rates tried": len(tried),
                    "diverged": sum(level == math.inf for level in tried.values()) or "",
                    "parameters": f"{row['parameters']:,}",
                    "tokens per parameter": f"{text_rows.tokens_per_parameter(row):.1f}",
                    "time": f"{statistics.fmean(map(COSTS[curves.TIME], group)):,.0f}",
                    "learning rate": f"{row['lr']:g}",
                    "learning rate, among those tried": edge(rows, group),
                    "seeds": len(group),
                    "loss": str(intervals.mean(values)) if values else "diverged",
                    f"minus {REFERENCE}": minus(best, name, REFERENCE, budget),
                    f"minus {REFERENCE} at equal time": at_time if budget == max(budgets) else "",
                    "exponent of FLOPs": exponent(budgets) if budget == max(budgets) else "",
                }
            )
    return found


def holds(rows: list[FrontierRow]) -> dict[str, Verdict]:
    return _judged(at_a_look(frontier(rows)))


def _judged(best: Frontier) -> dict[str, Verdict]:
    """Judge the claim at the largest budget of a scale; the others decide nothing before it is there."""
    budgets = tuple(sorted({budget for several in best.values() for budget in several}))
    needed = (*TMM, *OTHERS)  # others are shown and decide nothing
    planned = budgets in {sizes.budgets for sizes in SIZES.values()}
    if not planned or any(set(best.get(name, {})) != set(budgets) for name in needed):
        return {}
    last = {name: best[name][budgets[-1]] for name in needed}
    tmm = best_tmm(best, budgets[-1])
    if tmm is None or not all(losses(group) for group in last.values()):
        return {}
    parts: dict[str, list[Comparison]] = {}
    for part in ("C1a", "C1b"):
        other = RIVALS[part]
        here, there = losses(last[tmm]), losses(last[other])
        if not set(here) & set(there):
            return {}
        difference = intervals.difference(here, there)
        name = f"{budgets[-1]:.2g} FLOPs, {tmm} minus {other}"
        parts[part] = [_compared(name, difference, [last[tmm]], [last[other]])]
    other = RIVALS["C1c"]
    if (found := at_equal_time(best, tmm, other)) is not None:
        time, difference = found
        name = f"time of {time:,.0f} steps of flat TMM, {tmm} minus {other}"
        every = (list(best[each].values()) for each in (tmm, other))
        parts["C1c"] = [_compared(name, difference, *every)]
    return decide(parts)


def _compared(
    name: str,
    difference: intervals.Interval,
    here: Sequence[Sequence[FrontierRow]],
    there: Sequence[Sequence[FrontierRow]],
) -> Comparison:
    """Return a comparison of two models by their runs of some budgets; no run may have diverged."""
    reasons = [curves.some_diverged(runs[0]["model"], runs) for runs in (*here, *there)]
    reasons.append(curves.untrained(there[-1][0]["model"], there[-1]))
    return Comparison(
        name=name,
        interval=difference,
        bound=SIMILAR_LOSS,
        unit="nats",
        control=next(filter(None, reasons), ""),
    )
