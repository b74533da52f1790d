"""Sliding-window attention with rotary positions: the mixer that hybrids are compared with.

    q, k, v = W_in x                 per head h, with rotary embeddings on q and k
    y[t] = sum over t - window < s <= t of softmax(q[t] . k[s] / sqrt(c)) v[s]
    out = W_out concat_h y

Rotary embeddings make a score depend on t - s only, so a row may start at any position: keys and values
are kept before rotation and rotated by their distance from the end of what is computed. Whole sequences
are computed in block rows of `window` positions, so time and memory grow linearly with the length.
"""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer, check_heads
from toeplix.mixers.filter_bank import FilterBank
from toeplix.mixers.ragged import RowState, selected
from toeplix.mixers.static_state import replaced

ROTARY_BASE = 10000.0  # as in Llama


class AttentionMixer(TokenMixer):
    FIELDS: ClassVar = ("heads", "window")

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.heads, self.window = config.attention_heads, config.window
        self.project_in = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.project_out = nn.Linear(config.dim, config.dim, bias=False)

    def reset(self, init: str) -> None:
        """Do nothing: linear layers are initialised by the model."""

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self._attend(self.project_in(x), x.shape[1])

    def start(self, bank: FilterBank) -> "AttentionState":
        return AttentionState()

    def extend(self, x: Float[Tensor, "b k d"], state: "AttentionState") -> Float[Tensor, "b k d"]:
        new = self.project_in(x)
        if state.recent is None:
            state.begin(new, self.window - 1)
        assert state.recent is not None
        assert state.empty is not None
        wide = torch.cat([state.recent, new], 1)
        y = self._attend(wide, x.shape[1], state.empty)
        state.recent = replaced(state.recent, wide[:, wide.shape[1] - self.window + 1 :])
        state.empty = replaced(state.empty, (state.empty - x.shape[1]).clamp(min=0))
        return y

    def _attend(
        self,
        wide: Float[Tensor, "b s three_d"],
        count: int,
        empty: Int[Tensor, " b"] | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Return the outputs of the last `count` positions; the first `empty` positions do not exist."""
        length = wide.shape[1]
        parts = wide.unflatten(-1, (3, self.heads, -1)).transpose(1, 3)  # b h 3 s c
        rows = []
        for first in range(length - count, length, self.window):
            last = min(length, first + self.window)
            start = max(0, first - self.window + 1)
            q, k, v = parts[:, :, :, start:last].unbind(2)
            q, k = _rotated(q[:, :, first - start :], first - start), _rotated(k, 0)
            mask = self._mask(start, first, last, wide.device, empty)
            rows.append(scaled_dot_product_attention(q, k, v, attn_mask=mask))
        return self.project_out(torch.cat(rows, 2).transpose(1, 2).flatten(2))

    def _mask(
        self, start: int, first: int, last: int, device: torch.device, empty: Tensor | None
    ) -> Bool[Tensor, "#b 1 t s"]:
        query = torch.arange(first, last, device=device)[:, None]
        key = torch.arange(start, last, device=device)
        seen = ((key <= query) & (key > query - self.window))[None, None]
        if empty is None:
            return seen
        return seen & (key >= empty.to(device)[:, None, None, None])

    @classmethod
    def check(cls, config: Model) -> None:
        check_heads(config.dim, config.attention_heads)
        if config.dim // config.attention_heads % 2:
            raise ValueError(
                f"dim={config.dim} gives each of heads={config.attention_heads} an odd number of "
                "channels: rotary embeddings need an even one"
            )

    @classmethod
    def parameter_count(cls, config: Model) -> int:
        return 4 * config.dim**2

    @classmethod
    def flops(cls, config: Model, time: int) -> float:
        """Projections, and the scores of the pairs of positions that are seen."""
        outside = max(0, time - config.window)
        pairs = time * (time + 1) / 2 - outside * (outside + 1) / 2
        return 8.0 * time * config.dim**2 + 4.0 * config.dim * pairs

    @classmethod
    def state_bytes(cls, config: Model, time: int) -> int:
        """Queries, keys and values of the last window - 1 positions, before rotation."""
        return 4 * 3 * (config.window - 1) * config.dim


class AttentionState(RowState):
    """The projections of the last window - 1 positions, and how many of them precede the sequence."""

    def __init__(self) -> None:
        self.recent: Float[Tensor, "b w three_d"] | None = None
        self.empty: Int[Tensor, " b"] | None = None

    def begin(self, like: Tensor, count: int) -> None:
        self.recent = like.new_zeros(like.shape[0], count, like.shape[2])
        self.empty = torch.full((like.shape[0],), count, device=like.device)

    def begin_ragged(self, rows: int) -> None:
        """Do nothing: every row says how many of its positions precede its sequence."""

    def append(self, other: "AttentionState") -> None:
        assert self.recent is not None
        assert other.recent is not None
        assert self.empty is not None
        assert other.empty is not None
        self.recent = torch.cat([self.recent, other.recent])
        self.empty = torch.cat([self.empty, other.empty])

    def select(self, rows: Int[Tensor, " r"]) -> None:
        assert self.recent is not None
        assert self.empty is not None
        self.recent, self.empty = selected(self.recent, rows), selected(self.empty, rows)


def _rotated(x: Float[Tensor, "b h t c"], first: int) -> Float[Tensor, "b h t c"]:
    """Return x with rotary embeddings of the positions `first, first + 1, ...`."""
    time, half = x.shape[2], x.shape[3] // 2
    scale = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angle = torch.arange(first, first + time, device=x.device)[:, None] * ROTARY_BASE**-scale
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
