"""Recurrent filters, which have a rational symbol.

    w[l] = free[l] (l < short) + sum over j < r of weights[j] decays[j]^l       at every lag l >= 0
    a(u) = sum over l of w[l] u^l                                               u = exp(-i theta)
         = F(u) + sum over j of weights[j] / (1 - decays[j] u)

F has the coefficients `free`. The poles 1 / decays[j] lie outside of the circle for decays below 1. Then
the filter is summable, and has an index and lags like a filter of n taps (rational_indices,
rational_lags).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

GEOMETRIC_START = 1 / 256  # of the distance from the circle to the nearest pole, in radians


@dataclass(frozen=True, kw_only=True, eq=False)
class RationalFilter:
    """One recurrent filter; parameters are kept in float64, into which every real dtype converts exactly.

    >>> half = torch.tensor([0.5])
    >>> RationalFilter(free=torch.ones(2), weights=torch.ones(1), decays=half).taps(4).tolist()
    [2.0, 1.5, 0.25, 0.125]
    """

    free: Float[Tensor, " short"]
    weights: Float[Tensor, " r"]
    decays: Float[Tensor, " r"]
    name: str = "filter"  # in errors

    def __post_init__(self) -> None:
        for field in ("free", "weights", "decays"):
            value = getattr(self, field)
            if value.ndim != 1 or not value.is_floating_point():
                raise ValueError(
                    f"{field} of {self.name} must be real numbers of one filter, (short,) or (r,), "
                    f"got {value.dtype} of {tuple(value.shape)}"
                )
            value = value.detach().to("cpu", torch.float64)
            bad = ~value.isfinite()
            if bad.any():
                place = int(bad.nonzero()[0])
                raise ValueError(f"{self.name} has {value[place].item()} in {field}[{place}]")
            object.__setattr__(self, field, value)
        if self.weights.shape != self.decays.shape:
            raise ValueError(
                f"{self.name} has {len(self.weights)} weights and {len(self.decays)} decays: "
                "there must be one weight for each decay"
            )
        outside = (self.decays < 0) | (self.decays > 1)
        if outside.any():
            raise ValueError(
                f"{self.name} has the decay {self.decays[outside][0].item()}: "
                "decays must be in [0, 1]"
            )
        if not any(self.merged().values()) and not self.free[1:].any():
            raise ValueError(f"{self.name} is zero at every tap: it has no index")

    def merged(self) -> dict[float, float]:
        """Return the total weight of each decay, largest decay first; free[0] is part of decay 0.

        Sums are rounded once, so that they are 0 only where they are exactly 0.
        """
        groups: dict[float, list[float]] = {0.0: self.free[:1].tolist()}
        for decay, weight in zip(self.decays.tolist(), self.weights.tolist(), strict=True):
            groups.setdefault(decay, []).append(weight)
        return {decay: math.fsum(groups[decay]) for decay in sorted(groups, reverse=True)}

    @property
    def summable(self) -> bool:
        """Whether the taps have a finite sum: no decay of 1 with a weight, which never decays."""
        return self.merged().get(1.0, 0.0) == 0

    def taps(self, count: int) -> Float[Tensor, " count"]:
        """Return the taps at the lags 0 ... count - 1."""
        lag = torch.arange(count, dtype=torch.float64)
        taps = (self.weights[:, None] * self.decays[:, None] ** lag).sum(0)
        short = min(count, len(self.free))
        taps[:short] += self.free[:short]
        return taps

    def symbol(self, angles: Float[Tensor, " p"]) -> Complex[Tensor, " p"]:
        """Return the symbol at the angles theta; infinite at 0 if a decay is 1."""
        angles = angles.double()[:, None]
        lag = torch.arange(len(self.free), dtype=torch.float64)
        taps = torch.polar(torch.ones(()).double(), -angles * lag) @ self.free.to(torch.complex128)
        # 1 - rho exp(-i theta) without the cancellation at small angles
        real = (1 - self.decays) + 2 * self.decays * (angles / 2).sin() ** 2
        return taps + (self.weights / torch.complex(real, self.decays * angles.sin())).sum(1)

    def angles(self, points: int) -> Float[Tensor, " p"]:
        """Return about `points` angles from 0 to pi, half of them equally spaced.

        The other half lies in geometric progression towards 0, where the symbol moves by its own size
        within the distance 1 - rho of the pole from the circle.
        """
        gap = float((1 - self.decays[self.decays < 1]).min()) if (self.decays < 1).any() else 1.0
        even = torch.linspace(0, math.pi, max(2, points - points // 2), dtype=torch.float64)
        start = math.log(gap * GEOMETRIC_START)
        dense = torch.linspace(start, math.log(math.pi), points // 2 + 1, dtype=torch.float64)
        return torch.cat([even, dense[:-1].exp()]).sort().values
