"""A causal Toeplitz layer with its decoding state: one filter per head and one bias per position.

    y[b, t, h, c] = sum over i < k, s <= t of kernel[h, i, t-s] x[b, s, h, c + i - (k-1)] + bias[h, t]

With k kernels each channel also reads its k - 1 lower neighbours (channels below 0 are zero). Beyond
`context` positions a filter is a sliding window and the bias keeps its last value.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from toeplix.mixers.filter_bank import FilterBank, FilterState
from toeplix.mixers.ragged import Positions, times
from toeplix.ops.sequence_parallel import WHOLE, SequenceLayout


class Filter(nn.Module):
    """A layer of causal filters with parameters `kernel` (h, k, n) and `bias` (h, n)."""

    layout: SequenceLayout = WHOLE

    def __init__(self, heads: int, context: int, kernels: int = 1, frozen: bool = False) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(heads, kernels, context), requires_grad=not frozen)
        self.bias = nn.Parameter(torch.empty(heads, context), requires_grad=not frozen)

    def reset(self, kind: str) -> None:
        """Initialise as `kaiming` noise, as `ones`, or as `decay` over 1/2 to 16 positions."""
        heads, _, context = self.kernel.shape
        with torch.no_grad():
            self.bias.zero_()
            if kind == "kaiming":
                self.kernel.normal_(std=math.sqrt(2 / context))
            elif kind == "ones":
                self.kernel.fill_(1.0)
            else:
                self.kernel.zero_()
                self.kernel[:, -1] = decaying(heads, context, self.kernel.device)

    def start(self, bank: FilterBank) -> FilterState:
        return bank.join()

    def forward(self, x: Float[Tensor, "b t h c"]) -> Float[Tensor, "b t h c"]:
        time = x.shape[1]
        return self.product(x) + self._bias(self.layout.first(time), time).to(x.dtype)

    def product(self, x: Float[Tensor, "b t h c"]) -> Float[Tensor, "b t h c"]:
        """Return the product without the bias, which is linear in x."""
        return self._sum(self.layout.windowed(self._neighbours(x), self.kernel.flatten(0, 1)))

    def _neighbours(self, x: Tensor) -> Tensor:
        """Return the shifted channels that each kernel reads, as heads: `(b, t, h k, c)`."""
        kernels, channels = self.kernel.shape[1], x.shape[-1]
        if kernels == 1:
            return x
        padded = nn.functional.pad(x, (kernels - 1, 0))
        return torch.stack([padded[..., i : i + channels] for i in range(kernels)], 3).flatten(2, 3)

    def _sum(self, y: Tensor) -> Tensor:
        heads, kernels = self.kernel.shape[:2]
        return y if kernels == 1 else y.unflatten(2, (heads, kernels)).sum(3)

    def _bias(self, first: Positions, count: int) -> Float[Tensor, "#b t h 1"]:
        context = self.bias.shape[1]
        if isinstance(first, int) and first + count <= context:
            return self.bias[:, first : first + count].t()[None, :, :, None]
        position = times(first, count, context - 1, self.bias.device)
        return self.bias[:, position].permute(1, 2, 0)[..., None]

    def extend(self, x: Float[Tensor, "b k h c"], state: "FilterState") -> Tensor:
        first = state.position
        y = state.extend(self._neighbours(x), self.kernel.flatten(0, 1))
        return self._sum(y) + self._bias(first, x.shape[1]).to(x.dtype)


def decaying(heads: int, taps: int, device: torch.device | None = None) -> Float[Tensor, "h taps"]:
    """Return filters of norm 1 that decay over 2 positions, or with several heads over 1/2 to 16."""
    lag = torch.arange(taps, dtype=torch.float32, device=device)
    shortest, longest = (1.0, 1.0) if heads == 1 else (-1.0, 4.0)
    reach = 2.0 ** torch.linspace(shortest, longest, heads, device=device)
    curve = torch.exp(-lag / reach[:, None])
    return curve / curve.norm(dim=1, keepdim=True)
