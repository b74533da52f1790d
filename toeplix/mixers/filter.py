"""One causal Toeplitz layer of a model: a filter for each head and a bias for each position.

    y[b, t, h, c] = sum over i < k, s <= t of kernel[h, i, t-s] x[b, s, h, c + i - (k-1)] + bias[h, t]

With k kernels each channel reads its k - 1 lower neighbours too (channels below 0 count as zero). Beyond
`context` positions a filter is a sliding window and the bias stays at its last value.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.ops import Decoder, decoder, toeplitz_continued, toeplitz_windowed


class Filter(nn.Module):
    """`kernel` (h, k, n) and `bias` (h, n)."""

    def __init__(self, heads: int, context: int, kernels: int = 1, frozen: bool = False) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(heads, kernels, context), requires_grad=not frozen)
        self.bias = nn.Parameter(torch.empty(heads, context), requires_grad=not frozen)

    def reset(self, kind: str) -> None:
        """Start as `kaiming` noise, as `ones`, or as `decay`: falling within 1/2 to 16 positions."""
        heads, _, context = self.kernel.shape
        with torch.no_grad():
            self.bias.zero_()
            if kind == "kaiming":
                self.kernel.normal_(std=math.sqrt(2 / context))
            elif kind == "ones":
                self.kernel.fill_(1.0)
            else:
                lag = torch.arange(context, dtype=torch.float32)
                shortest, longest = (1.0, 1.0) if heads == 1 else (-1.0, 4.0)
                reach = 2.0 ** torch.linspace(shortest, longest, heads)
                curve = torch.exp(-lag / reach[:, None])
                curve = curve / curve.norm(dim=1, keepdim=True)
                self.kernel.zero_()
                self.kernel[:, -1] = curve

    def forward(self, x: Float[Tensor, "b t h c"]) -> Float[Tensor, "b t h c"]:
        y = toeplitz_windowed(self._neighbours(x), self.kernel.flatten(0, 1))
        return self._sum(y) + self._bias(0, x.shape[1]).to(x.dtype)

    def _neighbours(self, x: Tensor) -> Tensor:
        """Every kernel's view of the channels, as heads: `(b, t, h k, c)`."""
        kernels, channels = self.kernel.shape[1], x.shape[-1]
        if kernels == 1:
            return x
        padded = nn.functional.pad(x, (kernels - 1, 0))
        return torch.stack([padded[..., i : i + channels] for i in range(kernels)], 3).flatten(2, 3)

    def _sum(self, y: Tensor) -> Tensor:
        heads, kernels = self.kernel.shape[:2]
        return y if kernels == 1 else y.unflatten(2, (heads, kernels)).sum(3)

    def _bias(self, first: int, last: int) -> Float[Tensor, "t h 1"]:
        context = self.bias.shape[1]
        if last <= context:
            return self.bias[:, first:last].t()[:, :, None]
        time = torch.arange(first, last, device=self.bias.device).clamp(max=context - 1)
        return self.bias[:, time].t()[:, :, None]

    def extend(self, x: Float[Tensor, "b k h c"], state: "FilterState") -> Tensor:
        first, last = state.position, state.position + x.shape[1]
        y = state.extend(self._neighbours(x), self.kernel.flatten(0, 1))
        return self._sum(y) + self._bias(first, last).to(x.dtype)


class FilterState:
    """A history while the past arrives in chunks; a decoder from the first single step on."""

    def __init__(self) -> None:
        self.position = 0
        self._history: Tensor | None = None
        self._decoder: Decoder | None = None

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Go on with these rows of the batch, in this order."""
        if self._decoder is not None:
            self._decoder.select(rows)
        elif self._history is not None:
            self._history = self._history.index_select(0, rows.to(self._history.device))

    def extend(self, x: Float[Tensor, "b k h c"], kernel: Float[Tensor, "h n"]) -> Tensor:
        self.position += x.shape[1]
        if self._history is None and self._decoder is None:
            self._history = x[:, :0]
        if self._decoder is None and x.shape[1] == 1 and self._history is not None:
            self._decoder = decoder(kernel, self._history)
            self._history = None
        if self._decoder is not None:
            return torch.stack([self._decoder.step(part) for part in x.unbind(1)], 1)
        assert self._history is not None
        y = toeplitz_continued(x, kernel, self._history)
        reach = kernel.shape[1] - 1
        kept = torch.cat([self._history, x], 1)
        self._history = kept[:, max(0, kept.shape[1] - reach) :]
        return y
