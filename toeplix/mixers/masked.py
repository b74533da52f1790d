"""The Masked Mixer: every position weighs all earlier ones freely, by a lower-triangular matrix.

    y[b, t, h, c] = sum over s <= t of weight[h, t, s] x[b, s, h, c] + bias[h, t]

Quadratic in time and memory. Positions from `context` on use the last row as a sliding window.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.ops import toeplitz_windowed


class MaskedMixer(TokenMixer):
    def __init__(self, config: Model) -> None:
        super().__init__()
        flat, dim, context = config.heads == 0, config.dim, config.context
        self.heads = config.heads or 1
        self.weight = nn.Parameter(torch.empty(self.heads, context, context))
        self.bias = nn.Parameter(torch.empty(self.heads, context))
        self.project_in = nn.Identity() if flat else nn.Linear(dim, dim)
        self.project_out = nn.Identity() if flat else nn.Linear(dim, dim)

    def reset(self, init: str) -> None:
        """The paper's is a convolution's default; ours averages the past, a little noise added."""
        context = self.weight.shape[1]
        with torch.no_grad():
            if init == "paper":
                bound = 1 / math.sqrt(context)
                self.weight.uniform_(-bound, bound)
                self.bias.uniform_(-bound, bound)
            else:
                self.bias.zero_()
                self.weight.normal_(std=0.02)
                lag = torch.arange(context)[:, None] - torch.arange(context)
                self.weight.add_(torch.exp(-lag.clamp(min=0) / 4.0))
            self.weight.tril_()

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self._rows(x, 0)

    def start(self, batch: int) -> dict[str, Tensor | int]:
        return {"position": 0}

    def extend(self, x: Float[Tensor, "b k d"], state: dict[str, Tensor | int]) -> Tensor:
        past, position = state.get("past"), int(state["position"])
        whole = x if past is None else torch.cat([past, x], 1)  # type: ignore[list-item]
        seen = whole.shape[1] - x.shape[1]
        state["position"] = position + x.shape[1]
        state["past"] = whole[:, max(0, whole.shape[1] - self.weight.shape[1] + 1) :]
        return self._rows(whole, seen, position - seen)

    def _rows(self, x: Tensor, first: int, dropped: int = 0) -> Tensor:
        """Outputs from position `first` of x on, x starting at time `dropped`."""
        context = self.weight.shape[1]
        y = self.project_in(x).unflatten(-1, (self.heads, -1))
        time = y.shape[1]
        near = min(time, context - dropped) if dropped == 0 else 0
        parts = []
        if near > first:
            weight = self.weight[:, first:near, :near].tril(first)
            parts.append(torch.einsum("hts,bshc->bthc", weight, y[:, :near]))
        if time > max(near, first):
            last_row = self.weight[:, -1].flip(-1)
            parts.append(toeplitz_windowed(y, last_row)[:, max(near, first) :])
        position = torch.arange(first, time, device=x.device) + dropped
        bias = self.bias[:, position.clamp(max=context - 1)].t()[:, :, None]
        return self.project_out((torch.cat(parts, 1) + bias).flatten(2))
