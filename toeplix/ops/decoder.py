"""Decoding: one position at a time, with a state.

    y[t] = sum over lags l < min(t + 1, n) of kernel[l] * x[t - l]

Two decoders with one interface and equal results:

    History   keeps the inputs and reads them all at every step         O(n) per step
    Online    keeps what is already known of future outputs             O(log^2 n) per step, amortised

`decoder(...)` takes the one that is faster for the number of positions in reach.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops.checks import check_kernel, check_sequence
from toeplix.ops.paths import working_dtype


class Decoder(ABC):
    """The state of a causal Toeplitz product between two positions.

    The h filters of the kernel may belong to several layers. Their inputs of one position then
    arrive one after the other (`emit`), before all move on together (`advance`); with one
    layer, `step` does both.
    """

    def __init__(self, kernel: Tensor, past: Tensor, horizon: int | None) -> None:
        check_kernel(kernel)
        check_past(kernel, past)
        if horizon is not None and horizon < 1:
            raise ValueError(f"horizon={horizon} must be at least 1, or None for no end")
        self.batch, _, self.heads, self.channels = past.shape
        self.dtype = past.dtype
        self.kernel = kernel.detach().to(working_dtype(past))
        self.horizon = horizon
        self.position = 0

    @torch.no_grad()
    def step(self, x: Float[Tensor, "b h c"]) -> Float[Tensor, "b h c"]:
        """The output at the next position, and the state moves on."""
        y = self.emit(x)
        self.advance()
        return y

    @torch.no_grad()
    def emit(self, x: Float[Tensor, "b f c"], first: int = 0) -> Float[Tensor, "b f c"]:
        """The output of the heads `first, first + 1, ...` at the present position."""
        if x.ndim != 3 or x.shape[0] != self.batch or x.shape[2] != self.channels:
            raise ValueError(
                f"x must be (b={self.batch}, h, c={self.channels}), got {tuple(x.shape)}"
            )
        if not 0 <= first <= first + x.shape[1] <= self.heads:
            raise ValueError(
                f"x has heads {first} .. {first + x.shape[1] - 1}, the kernel 0 .. {self.heads - 1}"
            )
        if self.horizon is not None and self.position >= self.horizon:
            raise ValueError(
                f"position {self.position} is past the horizon of {self.horizon} positions: "
                "begin with a larger horizon, or None"
            )
        heads = slice(first, first + x.shape[1])
        columns = x.transpose(0, 1).reshape(x.shape[1], 1, -1).to(self.kernel.dtype)
        y = self._emit(columns, heads)
        return y.view(x.shape[1], self.batch, self.channels).transpose(0, 1).to(x.dtype)

    @torch.no_grad()
    def advance(self) -> None:
        """Close the present position."""
        self._advance()
        self.position += 1

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Memory of the state, without the kernel."""

    @abstractmethod
    def _emit(self, u: Float[Tensor, "f 1 columns"], heads: slice) -> Float[Tensor, "f 1 columns"]:
        """Outputs for these inputs (columns: b times c), which are remembered."""

    @abstractmethod
    def _advance(self) -> None: ...


def check_past(kernel: Tensor, past: Tensor) -> None:
    """The past may be empty; it still tells batch, channels, dtype and device."""
    if isinstance(past, Tensor) and past.ndim == 4 and past.shape[1] == 0:
        past = past.new_empty(past.shape[0], 1, *past.shape[2:])
    check_sequence("past", past)
    if past.shape[2] != kernel.shape[0]:
        raise ValueError(
            f"past has {past.shape[2]} heads and kernel {kernel.shape[0]}: they must agree"
        )
    if past.device != kernel.device:
        raise ValueError(
            f"past is on {past.device} and kernel on {kernel.device}: move one of them"
        )
