"""The Toeplitz mixer: flat, grouped, multi-head, multi-kernel, two-layer, frozen, gated.

Fields of `Model` select a variant:

flat          y = filter(x), one filter for all channels, no projections
g groups      one filter for each share of the channels, no projections
h heads       y = W_out concat_h filter_h(W_in,h x)
k kernels     a filter reads k neighbouring channels
two layers    filter, nonlinearity, filter
gate          y * (W_gate x), a product of two functions of the input; filters do not depend on the input

A filter is free (filter.py: one weight for every lag) or recurrent (recurrent.py: a few taps and decays).
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer, check_heads
from toeplix.mixers.channel import ACTIVATIONS
from toeplix.mixers.filter import Filter
from toeplix.mixers.filter_bank import FilterBank
from toeplix.mixers.recurrent import RecurrentFilter
from toeplix.ops.flops import product_flops, recurrent_flops
from toeplix.ops.sequence_parallel import (
    SequenceLayout,
    before_numbers,
    columns_numbers,
    scan_numbers,
)


class ToeplitzMixer(TokenMixer):
    FIELDS: ClassVar = (
        "embedding_norm",
        "heads",
        "groups",
        "filter",
        "free_taps",
        "decays",
        "kernels",
        "sequential",
        "frozen",
        "filter_init",
        "gate",
        "gate_bias",
    )
    INITIALISATION: ClassVar = {"scaled": "scaled", "paper": "kaiming"}

    def __init__(self, config: Model) -> None:
        super().__init__()
        flat, dim = config.heads == 0, config.dim
        self.heads = self.filter_heads(config)
        self.start_as = {"no": config.filter_init, "random": "kaiming", "ones": "ones"}[
            config.frozen
        ]
        self.project_in = nn.Identity() if flat else nn.Linear(dim, dim)
        self.project_out = nn.Identity() if flat else nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim) if config.gate else None
        self.gate_bias = config.gate_bias
        self.filters: Iterable[Filter | RecurrentFilter] = nn.ModuleList(  # type: ignore[assignment]
            FILTERS[config.filter](config, self.heads) for _ in range(config.sequential)
        )
        self.between = nn.Sequential(ACTIVATIONS[config.activation](), nn.Dropout(config.dropout))

    def reset(self, init: str) -> None:
        for layer in self.filters:
            layer.reset(self.start_as)
        if self.gate is not None:
            nn.init.constant_(self.gate.bias, self.gate_bias)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self._mix(x, [None for _ in self.filters])

    def divide(self, layout: SequenceLayout) -> None:
        for layer in self.filters:
            layer.layout = layout

    def start(self, bank: FilterBank) -> list[Any]:
        return [layer.start(bank) for layer in self.filters]

    def extend(self, x: Float[Tensor, "b k d"], state: list[Any]) -> Tensor:
        return self._mix(x, state)

    def _mix(self, x: Tensor, states: list[Any]) -> Tensor:
        y = self.project_in(x).unflatten(-1, (self.heads, -1))
        for index, (layer, state) in enumerate(zip(self.filters, states, strict=True)):
            y = self.between(y) if index else y
            y = layer(y) if state is None else layer.extend(y, state)
        y = y.flatten(2)
        if self.gate is not None:
            y = y * self.gate(x)
        return self.project_out(y)

    @classmethod
    def check(cls, config: Model) -> None:
        check_heads(config.dim, config.heads)
        check_heads(config.dim, config.groups, "groups")
        if config.heads and config.groups > 1:
            raise ValueError(
                f"groups={config.groups} divide the channels of a flat mixer: with heads="
                f"{config.heads}, which have a filter each, leave groups out"
            )
        if not config.gate and config.gate_bias != Model.gate_bias:
            raise ValueError(
                f"gate_bias={config.gate_bias} has no effect without a gate: leave it out"
            )
        if config.filter == "recurrent":
            cls._check_recurrent(config)
        elif (config.free_taps, config.decays) != (Model.free_taps, Model.decays):
            raise ValueError(
                f"free_taps={config.free_taps} and decays={config.decays} are those of recurrent "
                "filters: choose filter='recurrent', or leave them out"
            )

    @staticmethod
    def _check_recurrent(config: Model) -> None:
        for name, only in {"kernels": 1, "frozen": "no", "filter_init": "decay"}.items():
            if (value := getattr(config, name)) != only:
                raise ValueError(f"{name}={value!r} is for filter='free': leave it out")

    @classmethod
    def parameter_count(cls, config: Model) -> int:
        linear = config.dim**2 + config.dim
        free = (config.kernels + 1) * config.context
        numbers = free if config.filter == "free" else config.free_taps + config.decays
        filters = config.sequential * cls.filter_heads(config) * numbers
        return filters + (2 * linear if config.heads else 0) + (linear if config.gate else 0)

    @classmethod
    def buffer_count(cls, config: Model) -> int:
        """The decays of every recurrent filter layer."""
        return config.sequential * config.decays if config.filter == "recurrent" else 0

    @classmethod
    def flops(cls, config: Model, time: int) -> float:
        heads, linear = cls.filter_heads(config), 2.0 * time * config.dim**2
        if config.filter == "recurrent":
            product = recurrent_flops(time, config.dim, config.free_taps, config.decays)
        else:
            product = product_flops(time, heads * config.kernels, config.dim // heads)
        projections = 2 * linear if config.heads else 0.0
        return projections + config.sequential * product + (linear if config.gate else 0.0)

    @classmethod
    def state_bytes(cls, config: Model, time: int) -> int:
        """Two rings of the context for every free filter (ops/decoding/online.py), else a constant."""
        if config.filter == "recurrent":
            return 4 * config.sequential * (config.free_taps + config.decays) * config.dim
        span = min(time, config.context)
        return 4 * 2 * config.sequential * config.kernels * span * config.dim

    @classmethod
    def saved_activations(cls, config: Model) -> int | None:
        """Heads keep the inputs of the filters and of the output projection, a gate both factors.

        Frozen filters keep nothing of their own. Recurrent filters keep sums as well, so many by length.
        """
        if (
            config.filter == "recurrent"
            or config.sequential > 1
            or config.kernels > 1
            or config.dropout
        ):
            return None
        kept = (2 if config.heads else 0) + (2 if config.gate else 0)
        return kept - (config.frozen != "no" and (config.heads > 0 or not config.gate))

    @classmethod
    def exchanged_numbers(cls, config: Model, time: int, processes: int) -> float:
        """Inputs and outputs of free filters; the states of recurrent ones at the borders."""
        if config.filter == "free":
            columns = 2 * config.kernels * config.dim
            return config.sequential * columns_numbers(time, columns, processes)
        recent = before_numbers(time, max(0, config.free_taps - 1), config.dim, processes)
        return config.sequential * (recent + scan_numbers(config.decays * config.dim, processes))

    @classmethod
    def filter_heads(cls, config: Model) -> int:
        return config.heads or config.groups

    @classmethod
    def operator_precision(cls, config: Model, precision: str) -> str:
        """The projection of heads gives half precision; flat filters read the norm, which is float32."""
        return precision if config.heads else "float32"


FILTERS: dict[str, Callable[[Model, int], nn.Module]] = {
    "free": lambda config, heads: Filter(
        heads, config.context, config.kernels, config.frozen != "no"
    ),
    "recurrent": lambda config, heads: RecurrentFilter(
        heads, config.context, config.free_taps, config.decays
    ),
}
