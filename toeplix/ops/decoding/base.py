"""Decoding one position at a time, with a decoding state.

    y[t] = sum over lags l < min(t + 1, n) of kernel[l] * x[t - l]

Two decoders with one interface and equal results:

    History   keeps the inputs and reads them all at every step         O(n) per step
    Online    keeps partial sums of later outputs                       O(log^2 n) per step, amortised

`decoder(...)` selects the faster one by the size of the receptive field.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.ops.checks import check_horizon, check_kernel, check_past, check_rows
from toeplix.ops.paths import full_precision, working_dtype


class Decoder(ABC):
    """The decoding state of a causal Toeplitz product.

    The h filters of the kernel may belong to several layers. Their inputs at one position then arrive
    one after the other (`emit`), before all advance to the next position together (`advance`); with one
    layer, `step` does both.
    """

    # a state may be used outside the inference mode in which it was made, and needs no gradients
    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(
        self,
        kernel: Float[Tensor, "h n"],
        past: Float[Tensor, "b p h c"],
        horizon: int | None = None,
    ) -> None:
        check_kernel(kernel)
        check_past(kernel, past)
        check_horizon(horizon)
        self.batch, _, self.heads, self.channels = past.shape
        self.dtype = past.dtype
        self.kernel = kernel.detach().to(
            working_dtype(past), copy=True
        )  # training may change the original
        self.horizon = horizon
        self.position = 0
        self._emitted: set[int] = set()
        self._device = past.device.type
        self._may_autocast = torch.amp.is_autocast_available(self._device)
        with full_precision(past.device):
            self._begin(past.detach().to(self.kernel.dtype))

    @torch.no_grad()
    def step(self, x: Float[Tensor, "b h c"]) -> Float[Tensor, "b h c"]:
        """Return the output at the next position and advance the state."""
        y = self.emit(x)
        self.advance()
        return y

    @torch.no_grad()
    def emit(self, x: Float[Tensor, "b f c"], first: int = 0) -> Float[Tensor, "b f c"]:
        """Return the output of the heads `first, first + 1, ...` at the current position."""
        self._check(x, first)
        heads = slice(first, first + x.shape[1])
        self._emitted.update(range(first, first + x.shape[1]))
        width = self.batch * self.channels
        by_head = x if x.shape[1] == 1 else x.transpose(0, 1)
        columns = by_head.reshape(x.shape[1], 1, width).to(self.kernel.dtype)
        if self._autocast():
            with full_precision(x.device):
                y = self._emit(columns, heads)
        else:  # to enter a context that does nothing takes a tenth of a step
            y = self._emit(columns, heads)
        if x.shape[1] == 1:
            return y.view(x.shape).to(x.dtype)
        return y.view(x.shape[1], self.batch, self.channels).transpose(0, 1).to(x.dtype)

    @torch.no_grad()
    def advance(self) -> None:
        """Advance to the next position, once every head has had its input."""
        if len(self._emitted) < self.heads:
            missing = sorted(set(range(self.heads)) - self._emitted)
            raise ValueError(f"heads {missing} have had no input at position {self.position}")
        self._emitted.clear()
        self._advance()
        self.position += 1

    @torch.inference_mode(False)
    @torch.no_grad()
    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep these rows of the batch, in this order; a row may occur several times (beam search).

        Numbers on the CPU are checked, and cost an accelerator no wait.
        """
        if self._emitted:
            raise ValueError(f"position {self.position} is open: advance before selecting rows")
        rows = check_rows(rows, self.batch)
        self._select(rows)
        self.batch = len(rows)

    def _autocast(self) -> bool:
        return self._may_autocast and torch.is_autocast_enabled(self._device)

    def _columns(self, rows: Int[Tensor, " r"]) -> Int[Tensor, " columns"]:
        """Where the state has these rows, as an index on its device."""
        channels = torch.arange(self.channels, device=rows.device)
        columns = (rows[:, None] * self.channels + channels).flatten()
        return columns.to(self.kernel.device, non_blocking=True)

    def _check(self, x: Tensor, first: int) -> None:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"x must be a tensor (b, h, c) of a floating dtype, got {kind}")
        if x.ndim != 3 or x.shape[0] != self.batch or x.shape[2] != self.channels:
            raise ValueError(
                f"x must be (b={self.batch}, h, c={self.channels}), got {tuple(x.shape)}"
            )
        if not 0 <= first <= first + x.shape[1] <= self.heads:
            raise ValueError(
                f"x has heads {first} .. {first + x.shape[1] - 1}, the kernel 0 .. {self.heads - 1}"
            )
        if again := self._emitted.intersection(range(first, first + x.shape[1])):
            raise ValueError(f"heads {sorted(again)} have had their input at this position")
        if self.horizon is not None and self.position >= self.horizon:
            raise ValueError(
                f"position {self.position} is past the horizon of {self.horizon} positions: "
                "begin with a larger horizon, or None"
            )

    @abstractmethod
    def _begin(self, past: Float[Tensor, "b p h c"]) -> None:
        """Initialise the state after the earlier inputs `past`, which have the working dtype."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Bytes of the state, without the kernel."""

    @abstractmethod
    def _select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep these rows of the state, which has their `_columns`."""

    @abstractmethod
    def _emit(self, u: Float[Tensor, "f 1 columns"], heads: slice) -> Float[Tensor, "f 1 columns"]:
        """Return the outputs for these inputs (columns: b times c) and store the inputs."""

    @abstractmethod
    def _advance(self) -> None: ...


def moved_rows(rows: Int[Tensor, " r"]) -> Int[Tensor, " moved"]:
    """Return the places whose row changes when these rows are kept in this order."""
    return (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
