"""Hyena of order 2: data-dependent gates around a long convolution with implicit filters.

    (x0, x1, v) = short_convolution(W_in u)          three taps, depthwise
    y = W_out (x0 * (filter * (x1 v) + skip x1 v))    one filter per channel

    filter[c, t] = exp(-t |delta_c|) network(features of t)[c]

The paper's baseline has 3 filter features with sines of frequency 1, so that its filters depend on little
more than t; the original authors' language models use 33 features and frequency 14. Beyond `context`
positions filters are sliding windows.
"""

import functools
import math
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.mixers.filter_bank import FilterBank
from toeplix.mixers.ragged import RowState, selected
from toeplix.mixers.short_convolution import short_convolution
from toeplix.mixers.static_state import replaced
from toeplix.ops.flops import product_flops
from toeplix.ops.paths import full_precision
from toeplix.ops.sequence_parallel import before_numbers, columns_numbers

SHORT = 3  # taps of the short convolution
SLOWEST, FASTEST, FLOOR = (
    1.5,
    0.3,
    1e-2,
)  # filters decay to FLOOR within these fractions of the context


class Sine(nn.Module):
    """`sin(frequency * x)`, with frequencies shared by all layers of one filter network."""

    def __init__(self, frequency: nn.Parameter) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.frequency * x)


class ImplicitFilter(nn.Module):
    """Filters `(channels, n)` computed from the position by a small network."""

    decay: Tensor
    time: Tensor

    def __init__(self, config: Model) -> None:
        super().__init__()
        context, width, bands = (
            config.context,
            config.filter_hidden,
            (config.filter_features - 1) // 2,
        )
        wave = 2 * math.pi * torch.arange(context) / context
        # transformers makes linspace ignore `with torch.device(...)`, arange not
        linspace = functools.partial(torch.linspace, device=wave.device)
        time = linspace(0, 1, context)
        angle = wave[:, None] * linspace(1e-4, max(bands - 1, 1e-4), bands)
        self.waves = nn.Parameter(torch.cat([time[:, None], angle.cos(), -angle.sin()], 1))
        frequency = nn.Parameter(torch.full((width,), config.filter_frequency))
        layers: list[nn.Module] = []
        for size in (config.filter_features, width, width):
            layers += [nn.Linear(size, width), Sine(frequency)]
        self.network = nn.Sequential(*layers, nn.Linear(width, config.dim, bias=False))
        steepness = linspace(math.log(FLOOR) / SLOWEST, math.log(FLOOR) / FASTEST, config.dim)
        self.register_buffer("time", time)
        self.register_buffer("decay", steepness.abs())

    def forward(self, taps: int) -> Float[Tensor, "d taps"]:
        with full_precision(self.decay.device):
            window = torch.exp(-self.decay[:, None] * self.time[:taps])
            return self.network(self.waves[:taps]).t() * window

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "ImplicitFilter":
        """Move with the model but stay in float32: half precision is too inaccurate for large angles."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype.itemsize >= 4 else tensor.to(moved.device)

        return super()._apply(move, recurse)


class HyenaMixer(TokenMixer):
    FIELDS: ClassVar = ("filter_hidden", "filter_features", "filter_frequency")
    INITIALISATION: ClassVar = {"scaled": "output", "paper": "pytorch"}

    def __init__(self, config: Model) -> None:
        super().__init__()
        dim = config.dim
        self.context = config.context
        self.project_in = nn.Linear(dim, 3 * dim)
        self.short = nn.Conv1d(3 * dim, 3 * dim, SHORT, groups=3 * dim)
        self.filter = ImplicitFilter(config)
        self.skip = nn.Parameter(torch.empty(dim))
        self.project_out = nn.Linear(dim, dim)

    def reset(self, init: str) -> None:
        """Initialise the filter network as PyTorch does, to which its sine frequencies are tuned."""
        for layer in self.filter.network:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        with torch.no_grad():
            self.skip.normal_()

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        inputs = self.project_in(x)
        gate, value = self._gates(torch.cat([self.layout.before(inputs, SHORT - 1), inputs], 1))
        taps = min(self.layout.length(x.shape[1]), self.context)
        long = self.layout.windowed(value[..., None], self.filter(taps))
        return self.project_out(gate * (long[..., 0] + self.skip * value))

    def _gates(self, wide: Float[Tensor, "b padded three_d"]) -> tuple[Tensor, Tensor]:
        mixed = short_convolution(wide, self.short.weight, self.short.bias)
        gate, other, value = mixed.chunk(3, -1)
        return gate, other * value

    def start(self, bank: FilterBank) -> "HyenaState":
        return HyenaState(bank)

    def extend(self, x: Float[Tensor, "b k d"], state: "HyenaState") -> Float[Tensor, "b k d"]:
        wide = self.project_in(x)
        if state.recent is None or state.kernel is None:
            state.recent = wide.new_zeros(x.shape[0], SHORT - 1, wide.shape[2])
            state.kernel = self.filter(self.context)
        wide = torch.cat([state.recent, wide], 1)
        state.recent = replaced(state.recent, wide[:, 1 - SHORT :])
        gate, value = self._gates(wide)
        long = state.long.extend(value[..., None], state.kernel)
        return self.project_out(gate * (long[..., 0] + self.skip * value))

    @classmethod
    def check(cls, config: Model) -> None:
        if config.filter_features < 3 or config.filter_features % 2 == 0:
            raise ValueError(
                f"filter_features={config.filter_features} must be odd and at least 3: "
                "the time, and pairs of waves"
            )

    @classmethod
    def parameter_count(cls, config: Model) -> int:
        dim, width, features = config.dim, config.filter_hidden, config.filter_features
        projections = 3 * (dim**2 + dim) + dim**2 + dim
        short, skip = 3 * dim * (SHORT + 1), dim
        # three layers with biases, the last without, one shared vector of frequencies
        network = (features + 1) * width + 2 * (width + 1) * width + width * dim + width
        return projections + short + skip + config.context * features + network

    @classmethod
    def buffer_count(cls, config: Model) -> int:
        """The time axis, and a decay per channel."""
        return config.context + config.dim

    @classmethod
    def flops(cls, config: Model, time: int) -> float:
        dim = config.dim
        short = 2.0 * time * 3 * dim * SHORT
        return 8.0 * time * dim**2 + short + product_flops(time, dim, 1)

    @classmethod
    def shared_flops(cls, config: Model, time: int) -> float:
        """The network that computes the filters."""
        width = config.filter_hidden
        return 2.0 * time * (config.filter_features * width + 2 * width**2 + width * config.dim)

    @classmethod
    def state_bytes(cls, config: Model, time: int) -> int:
        """Two rings of the context, and the last inputs of the short convolution."""
        return 4 * (2 * min(time, config.context) * config.dim + (SHORT - 1) * 3 * config.dim)

    @classmethod
    def exchanged_numbers(cls, config: Model, time: int, processes: int) -> float:
        """Inputs and outputs of the filters, and the inputs of the short convolution at borders."""
        short = before_numbers(time, SHORT - 1, 3 * config.dim, processes)
        return short + columns_numbers(time, 2 * config.dim, processes)

    @classmethod
    def filter_heads(cls, config: Model) -> int:
        return config.dim


class HyenaState(RowState):
    """The decoding state: last inputs of the short convolution, long filters, and their state."""

    def __init__(self, bank: FilterBank) -> None:
        self.recent: Tensor | None = None
        self.kernel: Tensor | None = None
        self.long = bank.join()

    def begin_ragged(self, rows: int) -> None:
        self.long.begin_ragged(rows)

    def append(self, other: "HyenaState") -> None:
        assert self.recent is not None
        assert other.recent is not None
        self.recent = torch.cat([self.recent, other.recent])
        self.long.append(other.long)

    def select(self, rows: Int[Tensor, " r"]) -> None:
        assert self.recent is not None
        self.recent = selected(self.recent, rows)
        self.long.select(rows)
