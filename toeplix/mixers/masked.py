"""The Masked Mixer: a learned lower-triangular matrix of weights between positions.

    y[b, t, h, c] = sum over s <= t of weight[h, t, s] x[b, s, h, c] + bias[h, t]

Quadratic in time and memory. Positions from `context` on use the last row as a sliding window.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.mixers.filter_bank import FilterBank
from toeplix.mixers.ragged import Positions, RowState, each, picked, selected, times
from toeplix.ops import toeplitz_continued


class MaskedMixer(TokenMixer):
    FIELDS: ClassVar = ("heads",)

    def __init__(self, config: Model) -> None:
        super().__init__()
        flat, dim, context = config.heads == 0, config.dim, config.context
        self.heads = config.heads or 1
        self.weight = nn.Parameter(torch.empty(self.heads, context, context))
        self.bias = nn.Parameter(torch.empty(self.heads, context))
        self.project_in = nn.Identity() if flat else nn.Linear(dim, dim)
        self.project_out = nn.Identity() if flat else nn.Linear(dim, dim)

    def reset(self, init: str) -> None:
        """Initialise as a convolution's default (`paper`), or as decaying averages with small noise."""
        context = self.weight.shape[1]
        with torch.no_grad():
            if init == "paper":
                bound = 1 / math.sqrt(context)
                self.weight.uniform_(-bound, bound)
                self.bias.uniform_(-bound, bound)
            else:
                self.bias.zero_()
                self.weight.normal_(std=0.02)
                position = torch.arange(context, device=self.weight.device)
                lag = position[:, None] - position
                self.weight.add_(torch.exp(-lag.clamp(min=0) / 4.0))
            self.weight.tril_()

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self.extend(x, MaskedState())

    def start(self, bank: FilterBank) -> "MaskedState":
        return MaskedState()

    def extend(self, x: Float[Tensor, "b k d"], state: "MaskedState") -> Float[Tensor, "b k d"]:
        context, first = self.weight.shape[1], state.position
        new = self.project_in(x).unflatten(-1, (self.heads, -1))
        past = new[:, :0] if state.past is None else state.past
        whole = torch.cat([past, new], 1)
        mixed = self._mix(whole, past.shape[1], first)
        state.position = first + x.shape[1]
        state.past = whole[:, max(0, whole.shape[1] - context + 1) :]
        position = times(first, x.shape[1], context - 1, x.device)
        bias = self.bias[:, position].permute(1, 2, 0)[..., None]
        return self.project_out((mixed + bias).flatten(2))

    def _mix(self, whole: Tensor, seen: int, first: Positions) -> Float[Tensor, "b k h c"]:
        """Return the outputs after the first `seen` positions of `whole`, the receptive field."""
        if not isinstance(first, int):
            return self._mix_rows(whole, first)
        context, count = self.weight.shape[1], whole.shape[1] - seen
        near = max(
            0, min(count, context - first)
        )  # positions below the context, with their own row
        parts = []
        if near:  # nothing has been dropped yet: whole starts at position 0
            weight = self.weight[:, first : first + near, : first + near].tril(first)
            parts.append(torch.einsum("hts,bshc->bthc", weight, whole[:, : first + near]))
        if near < count:
            seen += near
            sliding = self.weight[:, -1].flip(-1)
            parts.append(toeplitz_continued(whole[:, seen:], sliding, whole[:, :seen]))
        return torch.cat(parts, 1)

    def _mix_rows(self, whole: Tensor, position: Tensor) -> Float[Tensor, "b 1 h c"]:
        """Return one output per row of a ragged batch; inputs before the first of a row are zero."""
        row = times(position, 1, self.weight.shape[1] - 1, whole.device)
        column = row - torch.arange(whole.shape[1], device=whole.device).flip(0)
        return torch.einsum("hbs,bshc->bhc", self.weight[:, row, column.clamp(min=0)], whole)[
            :, None
        ]

    @classmethod
    def parameter_count(cls, config: Model) -> int:
        projections = 2 * (config.dim**2 + config.dim) if config.heads else 0
        return projections + (config.heads or 1) * (config.context**2 + config.context)

    @classmethod
    def flops(cls, config: Model, time: int) -> float:
        projections = 4.0 * time * config.dim**2 if config.heads else 0.0
        return projections + 2.0 * time**2 * config.dim

    @classmethod
    def state_bytes(cls, config: Model, time: int) -> int:
        """The inputs that are still in the receptive field."""
        return 4 * min(time, config.context) * config.dim


class MaskedState(RowState):
    """The decoding state: projected inputs in the receptive field, and the number of positions so far."""

    def __init__(self) -> None:
        self.position: Positions = 0
        self.past: Tensor | None = None

    def begin_ragged(self, rows: int) -> None:
        assert self.past is not None
        self.position = each(self.position, rows, self.past.device)

    def append(self, other: "MaskedState") -> None:
        assert self.past is not None
        assert other.past is not None
        longest = max(self.past.shape[1], other.past.shape[1])
        pasts = [
            nn.functional.pad(past, (0, 0, 0, 0, longest - past.shape[1], 0))
            for past in (self.past, other.past)
        ]
        self.past = torch.cat(pasts)
        self.position = torch.cat([torch.as_tensor(p) for p in (self.position, other.position)])

    def select(self, rows: Int[Tensor, " r"]) -> None:
        assert self.past is not None
        self.past = selected(self.past, rows)
        self.position = picked(self.position, rows)
