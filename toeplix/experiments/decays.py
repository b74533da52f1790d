"""Which recurrent filters: fixed decays, learned decays, or damped cosines.

Flat gated models whose filters have a short free part and a slow part of the same decoding state, r
numbers per channel:

    fixed decays      sum over j < r of a_j rho_j^l, with time constants on a logarithmic grid
    learned decays    the same; the r time constants are parameters that start on the grid
    damped cosines    sum over j < r/2 of (a_j cos(f_j l) + b_j sin(f_j l)) rho_j^l; time constants and
                      frequencies f_j are learned

The library has the first. The other two are filters of this module alone, which stand in for the
library's while a case is measured. Damped cosines are multiplied as free filters, so their time is not
that of a recurrence.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.experiments.engine import curves, style, text_rows, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import Settings
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import Case, TextRow, at_best
from toeplix.experiments.engine.text_training import Pair
from toeplix.experiments.family import RECURRENT, SIZES
from toeplix.mixers.filter_bank import Coefficients
from toeplix.mixers.recurrent import RecurrentFilter, amplitudes
from toeplix.mixers.toeplitz import FILTERS
from toeplix.ops import toeplitz

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "20 minutes on two cores with --jobs 2"
FIXED = "fixed decays"


class LearnedDecays(RecurrentFilter):
    """Recurrent filters whose time constants are parameters, as logarithms."""

    def __init__(self, heads: int, context: int, free_taps: int, decays: int) -> None:
        super().__init__(heads, context, free_taps, decays)
        self.log_constants = nn.Parameter(torch.empty(decays))

    def reset(self, kind: str) -> None:
        super().reset(kind)
        with torch.no_grad():
            self.log_constants.copy_(log_constants(self.decays))

    def coefficients(self) -> Coefficients:
        decays = torch.exp(-torch.exp(-self.log_constants))
        return self.free, amplitudes(self.weights, decays), decays


class DampedCosines(RecurrentFilter):
    """Filters of half as many complex decays: `weights` holds the factors of cosines, then of sines."""

    def __init__(self, heads: int, context: int, free_taps: int, decays: int) -> None:
        super().__init__(heads, context, free_taps, decays)
        self.log_constants = nn.Parameter(torch.empty(decays // 2))
        self.frequencies = nn.Parameter(torch.empty(decays // 2))

    def reset(self, kind: str) -> None:
        """Start with every second decay of the grid, and periods of two to eight time constants."""
        super().reset(kind)
        with torch.no_grad():
            self.log_constants.copy_(log_constants(self.decays[::2][: len(self.log_constants)]))
            periods = torch.linspace(2.0, 8.0, len(self.frequencies), device=self.decays.device)
            self.frequencies.copy_(2 * math.pi / periods * torch.exp(-self.log_constants))

    def forward(self, x: Float[Tensor, "b t h c"]) -> Float[Tensor, "b t h c"]:
        return toeplitz(x, self.taps(x.shape[1]))

    def taps(self, count: int) -> Float[Tensor, "h count"]:
        """Return the filters at lags 0 to `count - 1`; each damped wave has norm 1 as a decay."""
        lag = torch.arange(count, device=self.free.device)
        rate = torch.exp(-self.log_constants)[:, None]
        norm = (1 - torch.exp(-2 * rate)).sqrt()
        angle = self.frequencies[:, None] * lag
        waves = torch.cat([torch.cos(angle), torch.sin(angle)])
        damped = waves * (norm * torch.exp(-rate * lag)).repeat(2, 1)
        short = min(count, self.free.shape[1])
        near = nn.functional.pad(self.free[:, :short], (0, count - short))
        return near + self.weights @ damped


def log_constants(decays: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
    """Return the logarithms of the time constants of decays."""
    return -torch.log(-torch.log(decays.double())).float()


VARIANTS: dict[str, Callable[..., RecurrentFilter]] = {
    FIXED: RecurrentFilter,
    "learned decays": LearnedDecays,
    "damped cosines": DampedCosines,
}
COMPARED: dict[str, Settings] = dict.fromkeys(VARIANTS, RECURRENT)
PAIRS = tuple(Pair(name, FIXED, decides=False) for name in VARIANTS if name != FIXED)


@contextmanager
def standing_in(variant: str) -> Iterator[None]:
    """Build recurrent filters as this variant while the block runs."""
    before, kind = FILTERS["recurrent"], VARIANTS[variant]

    def build(config: Model, heads: int) -> nn.Module:
        return kind(heads, config.context, config.free_taps, config.decays)

    FILTERS["recurrent"] = build
    try:
        yield
    finally:
        FILTERS["recurrent"] = before


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    here = replace(scale, **SIZES[scale.name])
    return text_training.tuned(here, COMPARED, rows, pairs=PAIRS)


def measure(case: Case, work: Path) -> text_rows.TextFound:
    with standing_in(case.model):
        name = "" if case.model == FIXED else case.model.replace(" ", "-")
        return text_training.measure(case, work, variant=name)


def table(rows: list[TextRow]) -> Table:
    """Return final losses, and the difference to fixed decays."""
    lines: list[dict[str, Any]] = curves.table(rows)
    for line in lines:
        gap = curves.gap(rows, str(line["model"]), FIXED)
        line[f"minus {FIXED}"] = str(gap) if line["model"] != FIXED and gap else ""
    return lines


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    drawing, axes = style.panels(2, width=4.2)
    curves.draw(axes[0], rows, "steps", title="during training")
    curves.ends(axes[1], at_best(rows), title="at the end")
    return curves.compose(drawing)


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about recurrent filters."""
    return {}
