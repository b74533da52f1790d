"""Causal linear attention: computed in chunks for whole sequences and as a recurrence for decode steps.

    y_t = q_t S_t / (q_t z_t)       S_t = sum over s <= t of k_s^T v_s       z_t = sum over s <= t of k_s

Two feature maps: `elu` (elu + 1, stable) and `exp`, the paper's (softmax of the query, exp of the key,
the normaliser clamped at 1e-3), whose keys grow without bound.
"""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer, check_heads
from toeplix.mixers.filter_bank import FilterBank
from toeplix.mixers.ragged import RowState, selected
from toeplix.mixers.static_state import writable
from toeplix.ops.paths import full_precision
from toeplix.ops.sequence_parallel import WHOLE, SequenceLayout, scan_numbers

CHUNK = 64
MIN_NORMALISER = {"elu": 1e-6, "exp": 1e-3}  # minimum of the normaliser, by feature map


class LinearMixer(TokenMixer):
    FIELDS: ClassVar = ("heads", "feature_map")
    INITIALISATION: ClassVar = {"scaled": "output", "paper": "pytorch"}

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.heads = config.attention_heads
        self.feature = config.feature_map
        self.project_in = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.project_out = nn.Linear(config.dim, config.dim)

    def reset(self, init: str) -> None:
        """Do nothing: linear layers are initialised by the model."""

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self._mix(x, LinearState(), self.layout)

    def start(self, bank: FilterBank) -> "LinearState":
        return LinearState()

    def extend(self, x: Float[Tensor, "b k d"], state: "LinearState") -> Float[Tensor, "b k d"]:
        return self._mix(x, state, WHOLE)

    def _mix(self, x: Tensor, state: "LinearState", layout: SequenceLayout) -> Tensor:
        parts = self.project_in(x).unflatten(-1, (3, self.heads, -1))
        # sums over thousands of positions need at least float32
        with full_precision(x.device):
            parts = parts.to(torch.promote_types(x.dtype, torch.float32))
            q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
            q, k = self._features(q, k)
            v = nn.functional.pad(v, (0, 1), value=1.0)  # the last column sums the normaliser
            sums = []
            for first in range(0, x.shape[1], CHUNK):
                span = slice(first, first + CHUNK)
                sums.append(state.advance(q[:, :, span], k[:, :, span], v[:, :, span]))
            total = torch.cat(sums, 2)
            assert state.sums is not None
            before = layout.scan(state.sums, state.sums.new_ones(()), x.shape[1])
            if before is not None:
                total = total + q @ before
            y = total[..., :-1] / total[..., -1:].clamp(min=MIN_NORMALISER[self.feature])
        return self.project_out(y.transpose(1, 2).flatten(2).to(x.dtype))

    def _features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.feature == "elu":
            return nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        return q.softmax(-1) * q.shape[-1] ** -0.5, k.exp()

    @classmethod
    def check(cls, config: Model) -> None:
        check_heads(config.dim, config.attention_heads)

    @classmethod
    def parameter_count(cls, config: Model) -> int:
        return 4 * config.dim**2 + config.dim

    @classmethod
    def flops(cls, config: Model, time: int) -> float:
        """Projections, and the recurrence: every position writes and reads a matrix per head."""
        size = config.dim // config.attention_heads
        recurrence = config.attention_heads * 2.0 * time * size * (size + 1) * 2
        return 8.0 * time * config.dim**2 + recurrence

    @classmethod
    def exchanged_numbers(cls, config: Model, time: int, processes: int) -> float:
        return scan_numbers(cls.state_bytes(config, time) // 4, processes)

    @classmethod
    def state_bytes(cls, config: Model, time: int) -> int:
        return 4 * config.dim * (config.dim // config.attention_heads + 1)


class LinearState(RowState):
    """The decoding state `S`, with `z` as its last column: `(b, h, e, e + 1)`."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None

    def advance(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the outputs of a chunk and add it to the sums.

        Positions within the chunk contribute by a masked product, earlier ones through the sums.
        """
        inside = (q @ k.transpose(-1, -2)).tril() @ v
        if self.sums is None:
            self.sums = torch.zeros_like(k[..., :1, :].transpose(-1, -2) @ v[..., :1, :])
        y = inside + q @ self.sums
        added = k.transpose(-1, -2) @ v
        self.sums = self.sums.add_(added) if writable(self.sums) else self.sums + added
        return y

    def begin_ragged(self, rows: int) -> None:
        """Do nothing: the sums do not depend on positions."""

    def append(self, other: "LinearState") -> None:
        assert self.sums is not None
        assert other.sums is not None
        self.sums = torch.cat([self.sums, other.sums])

    def select(self, rows: Int[Tensor, " r"]) -> None:
        assert self.sums is not None
        self.sums = selected(self.sums, rows)
