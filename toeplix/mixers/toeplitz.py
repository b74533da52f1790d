"""The Toeplitz mixer: flat, multi-head, multi-kernel, two-layer, frozen, gated. A variant is a value.

flat          y = filter(x), one filter for all channels, no projections
h heads       y = W_out concat_h filter_h(W_in,h x)
k kernels     a filter reads k neighbouring channels
two layers    filter, nonlinearity, filter
gate          y * (W_gate x): data times data, the filters stay independent of the data
"""

from collections.abc import Iterable

from jaxtyping import Float
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer
from toeplix.mixers.channel import ACTIVATIONS
from toeplix.mixers.filter import Filter, FilterBank, FilterState


class ToeplitzMixer(TokenMixer):
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
