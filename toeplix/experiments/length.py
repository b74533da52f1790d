"""Beyond the trained length: validation loss by position, up to 64 times the context.

Models are trained on packed documents of the context's length and read validation text of up to 64 times
as many tokens in one sequence. Recurrent filters are defined at every lag, free filters and those of
Hyena are sliding windows of the context, and Llama meets distances that it was not trained on. The text
is the reported half of the validation documents, one after the other, with their boundary tokens. At
scale desk, runs that only choose a learning rate do not read it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NotRequired

import numpy as np
import torch
from torch.nn import functional as F

from toeplix.experiments.engine import (
    corpora,
    curves,
    intervals,
    style,
    text_rows,
    text_runs,
    text_training,
)
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import FREE, MODELS, Settings
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import TextRow, at_best
from toeplix.model import LanguageModel

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "half an hour on two cores with --jobs 2"
COMPARED: dict[str, Settings] = {
    "free": FREE,
    "recurrent": {"arch": "toeplitz", "filter": "recurrent"},
    **{name: MODELS[name] for name in ("hybrid", "hyena", "llama")},
}
CHUNK = 2048  # positions that are read at once
SIZES: dict[str, dict[str, Any]] = {
    "paper": {"context": 512},
    "desk": {"context": 512, "batch": 4},
    "laptop": {
        "context": 512, "batch": 4, "steps": 300, "rates": (4e-3, 8e-3, 1.6e-2), "max_seeds": 3,
        "timing": 0.0,
    },
    "smoke": {},
}  # fmt: skip
MULTIPLES = {"paper": 64, "desk": 64, "laptop": 64, "smoke": 4}
TEXTS = 2  # long sequences


@dataclass(frozen=True, kw_only=True)
class Case(text_rows.Case):
    """A training run, and the length of the sequences that are read after it."""

    longest: int = 0


class LengthRow(TextRow):
    """Fields of a `Case` and its measurements."""

    by_position: NotRequired[list[list[float]]]  # last position of a range, mean loss in it


class LengthFound(text_rows.TextFound):
    """The measurements of a training run, and the loss by position."""

    by_position: list[list[float]]


def cases(scale: Scale, rows: list[LengthRow]) -> list[Case]:
    here = replace(scale, **SIZES[scale.name])
    known = text_training.tuned(here, COMPARED, rows)
    longest = MULTIPLES[scale.name] * here.context
    return [Case(**(vars(case) | {"longest": longest})) for case in known]


def measure(case: Case, work: Path) -> LengthFound:
    from toeplix.checkpoint import load

    found = text_training.measure(case, work)
    run = text_runs.run_of(case, work)
    if found["diverged"] or case.tuning_run:
        return {**found, "by_position": []}
    model = load(text_runs.directory(run, work) / "model")
    store = corpora.store(case, work)
    tokens = store.val.alternate(corpora.REPORT).tokens.astype(np.int64)
    count = max(1, min(TEXTS, (len(tokens) - 1) // case.longest))
    losses = [
        position_losses(model, torch.from_numpy(tokens[first * case.longest :][: case.longest + 1]))
        for first in range(count)
    ]
    shortest = min(map(len, losses))
    mean = torch.stack([each[:shortest] for each in losses]).mean(0)
    return {**found, "by_position": ranges(mean, case.context)}


@torch.no_grad()
def position_losses(model: LanguageModel, tokens: torch.Tensor) -> torch.Tensor:
    """Return the loss at every position of one sequence, in nats, read in chunks."""
    state, losses = model.start(), []
    inputs, labels = tokens[None, :-1], tokens[None, 1:]
    for part, wanted in zip(inputs.split(CHUNK, 1), labels.split(CHUNK, 1), strict=True):
        features, state = model.advance(part, state)
        losses.append(F.cross_entropy(model.logits(features)[0], wanted[0], reduction="none"))
    return torch.cat(losses)


def ranges(losses: torch.Tensor, context: int) -> list[list[float]]:
    """Return the mean loss up to the context, and in each doubling of the length beyond it.

    >>> ranges(torch.tensor([1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 5.0, 5.0]), 2)
    [[2, 1.0], [4, 3.0], [8, 5.0]]
    """
    found, first, last = [], 0, context
    while first < len(losses):
        end = min(last, len(losses))
        found.append([end, round(float(losses[first:end].mean()), 4)])
        first, last = last, 2 * last
    return found


def table(rows: list[LengthRow]) -> Table:
    """Return final losses, and the loss in every range of positions."""
    groups: Any = at_best(rows)
    pairs = zip(curves.table(rows), groups.values(), strict=True)
    return [
        line | {f"to {end}": str(mean) for end, mean in _by_position(group).items()}
        for line, group in pairs
    ]


def _by_position(group: list[LengthRow]) -> dict[int, intervals.Interval]:
    """Return the mean loss over seeds in each range of positions, by the end of the range."""
    known = [
        {int(end): loss for end, loss in found}
        for row in group
        if (found := row.get("by_position"))
    ]
    shared = sorted(set.intersection(*map(set, known))) if known else []
    return {end: intervals.mean([each[end] for each in known]) for end in shared}


def figure(rows: list[LengthRow], published: list[Row]) -> Figure:
    drawing, (axes,) = style.panels(width=5.4, height=3.2)
    groups: Any = at_best(rows)
    looks = style.looks(groups)
    ends: set[int] = set()
    for name, group in groups.items():
        by_position = _by_position(group)
        places, means = list(by_position), list(by_position.values())
        ends |= set(places)
        axes.plot(places, [mean.value for mean in means], label=name, markersize=4, **looks[name])
        if all(mean.dof >= style.MIN_SEEDS - 1 for mean in means):
            low, high = ([mean.low for mean in means], [mean.high for mean in means])
            axes.fill_between(places, low, high, color=looks[name]["color"], alpha=0.15, lw=0)
    style.plain_ticks(axes, ends)
    style.level(axes, rows[0]["context"], "trained length", vertical=True)
    style.finish(axes, x="position, end of a range", y=curves.LOSS)
    caption = "Validation loss by position in a text, each model at its best learning rate."
    return curves.compose(drawing, caption)


def holds(rows: list[LengthRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about longer sequences."""
    return {}
