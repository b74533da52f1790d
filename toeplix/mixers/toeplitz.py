"""The Toeplitz mixer: flat, multi-head, multi-kernel, two-layer, frozen, gated. Fields select a variant.

flat          y = filter(x), one filter for all channels, no projections
h heads       y = W_out concat_h filter_h(W_in,h x)
k kernels     a filter reads k neighbouring channels
two layers    filter, nonlinearity, filter
gate          y * (W_gate x), a product of two functions of the input; filters do not depend on the input
"""

from collections.abc import Iterable
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.mixers.channel import ACTIVATIONS
from toeplix.mixers.filter import Filter, FilterBank, FilterState
from toeplix.ops.flops import product_flops


class ToeplitzMixer(TokenMixer):
    FIELDS: ClassVar = ("heads", "kernels", "sequential", "frozen", "filter_init", "gate")
    INITIALISATION: ClassVar = {"scaled": "scaled", "paper": "kaiming"}

    def __init__(self, config: Model) -> None:
        super().__init__()
        flat, dim = config.heads == 0, config.dim
        self.heads = config.heads or 1
        self.start_as = {"no": config.filter_init, "random": "kaiming", "ones": "ones"}[
            config.frozen
        ]
        self.project_in = nn.Identity() if flat else nn.Linear(dim, dim)
        self.project_out = nn.Identity() if flat else nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim) if config.gate else None
        frozen = config.frozen != "no"
        self.filters: Iterable[Filter] = nn.ModuleList(  # type: ignore[assignment]
            Filter(self.heads, config.context, config.kernels, frozen)
            for _ in range(config.sequential)
        )
        self.between = nn.Sequential(ACTIVATIONS[config.activation](), nn.Dropout(config.dropout))

    def reset(self, init: str) -> None:
        for layer in self.filters:
            layer.reset(self.start_as)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self._mix(x, [None for _ in self.filters])

    def start(self, bank: FilterBank) -> list[FilterState]:
        return [bank.join() for _ in self.filters]

    def extend(self, x: Float[Tensor, "b k d"], state: list[FilterState]) -> Tensor:
        return self._mix(x, state)

    def _mix(self, x: Tensor, states: list[FilterState] | list[None]) -> Tensor:
        y = self.project_in(x).unflatten(-1, (self.heads, -1))
        for index, (layer, state) in enumerate(zip(self.filters, states, strict=True)):
            y = self.between(y) if index else y
            y = layer(y) if state is None else layer.extend(y, state)
        y = y.flatten(2)
        if self.gate is not None:
            y = y * self.gate(x)
        return self.project_out(y)

    @classmethod
    def parameter_count(cls, config: Model) -> int:
        linear = config.dim**2 + config.dim
        heads = cls.filter_heads(config)
        filters = config.sequential * heads * (config.kernels + 1) * config.context
        return filters + (2 * linear if config.heads else 0) + (linear if config.gate else 0)

    @classmethod
    def flops(cls, config: Model, time: int) -> float:
        heads, linear = cls.filter_heads(config), 2.0 * time * config.dim**2
        product = product_flops(time, heads * config.kernels, config.dim // heads)
        projections = 2 * linear if config.heads else 0.0
        return projections + config.sequential * product + (linear if config.gate else 0.0)

    @classmethod
    def state_bytes(cls, config: Model, time: int) -> int:
        """Two rings of the context for every filter: see ops/decoding/online.py."""
        span = min(time, config.context)
        return 4 * 2 * config.sequential * config.kernels * span * config.dim

    @classmethod
    def saved_activations(cls, config: Model) -> int | None:
        """Heads keep the inputs of the filters and of the output projection, a gate both factors.

        Frozen filters keep nothing of their own.
        """
        if config.sequential > 1 or config.kernels > 1 or config.dropout:
            return None
        kept = (2 if config.heads else 0) + (2 if config.gate else 0)
        return kept - (config.frozen != "no" and (config.heads > 0 or not config.gate))

    @classmethod
    def filter_heads(cls, config: Model) -> int:
        return config.heads or 1
