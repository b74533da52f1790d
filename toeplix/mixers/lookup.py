"""Lookup: linear attention under a learned Toeplitz mask, behind a short depthwise convolution.

    q, k, v = short(W_in x)                  a few taps per channel: aligns the key s - 1 with the value s
    y[t] = norm( sum over s <= t of w_h[t - s] (q[t] . k[s]) v[s] )         per head h
    out = W_out concat_h y

Queries and keys have `keys` channels and length 1; the norm divides every head by its root mean square.
Filters are free (one tap per lag up to the context, a sliding window beyond it) or recurrent (r decays on
a logarithmic grid, defined at every lag). With w = 1 this is linear attention, with one decay RetNet,
with one key channel a gated Toeplitz product as in Hyena.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.config import Model
from toeplix.mixers.base import TokenMixer, check_heads
from toeplix.mixers.filter_bank import FilterBank
from toeplix.mixers.key_values import KeyValues
from toeplix.mixers.ragged import RowState, selected
from toeplix.mixers.recurrent import amplitudes, decay_grid, full_precision_buffer
from toeplix.mixers.short_convolution import short_convolution
from toeplix.mixers.static_state import replaced, writable
from toeplix.ops import recurrent_kernel, toeplitz_lookup, toeplitz_lookup_recurrent
from toeplix.ops.lookup import lookup_continued, lookup_recurrent_whole, lookup_step
from toeplix.ops.paths import full_precision
from toeplix.ops.sequence_parallel import WHOLE, before_numbers, columns_numbers, scan_numbers

MIN_SQUARE = 1e-6  # added to the squared lengths of queries and keys
# added to the mean square of a head. Early positions read few keys, and rounding would decide the sign
# of a sum of almost nothing that the norm makes large.
MIN_MEAN_SQUARE = 1e-2
# initial standard deviation of the newest tap of keys, beside 1 for the tap before it. Without it the
# first key of a document is 0, and many pairs are learned at low learning rates only (docs/log.md).
KEY_NOISE = 0.1


class LookupMixer(TokenMixer):
    FIELDS: ClassVar = ("embedding_norm", "heads", "keys", "short_conv", "filter", "decays")

    decays: Tensor

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.heads, self.keys = config.attention_heads, config.keys
        self.channels, self.taps = config.dim // self.heads, config.short_conv
        wide = _wide(config)
        self.project_in = nn.Linear(config.dim, wide)
        self.short = (
            nn.Conv1d(wide, wide, self.taps, groups=wide, bias=False)
            if self.taps > 1
            else nn.Identity()
        )
        self.project_out = nn.Linear(config.dim, config.dim)
        self.recurrent = config.filter == "recurrent"
        if self.recurrent:
            self.weights = nn.Parameter(torch.empty(self.heads, config.decays))
            self.register_buffer("decays", decay_grid(config.decays, config.context))
        else:
            self.kernel = nn.Parameter(torch.empty(self.heads, config.context))

    def reset(self, init: str) -> None:
        """Start as linear attention that retrieves what followed earlier occurrences of a token.

        Filters are the slowest decay, or constant, and 1 at lag 0. The short convolution starts by
        shifting keys by one position (up to noise), and not queries and values: a query is compared with
        the token before each value. From random taps this shift is learned late, or not at all.
        """
        with torch.no_grad():
            if isinstance(self.short, nn.Conv1d):
                keys, values = self.heads * self.keys, self.heads * self.channels
                q, k, v = self.short.weight.zero_().split((keys, keys, values))
                for taps, position in ((q, -1), (k, -2), (v, -1)):
                    taps[..., position].fill_(1)
                k[..., -1].normal_(0, KEY_NOISE)
            if self.recurrent:
                self.weights.zero_()
                self.weights[:, -1] = (1 - self.decays[-1].double().square()).rsqrt()
            else:
                self.kernel.fill_(1.0)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return self._mixed(x, self._lookup if self.layout is WHOLE else self._divided, None)

    def start(self, bank: FilterBank) -> "LookupState":
        return LookupState()

    def extend(self, x: Float[Tensor, "b k d"], state: "LookupState") -> Float[Tensor, "b k d"]:
        continued = self._continue_recurrent if self.recurrent else self._continue_free
        return self._mixed(x, partial(continued, state=state), state)

    def _mixed(
        self, x: Tensor, lookup: Callable[[Tensor, Tensor, Tensor], Tensor], state: Any
    ) -> Float[Tensor, "b k d"]:
        wide = self.project_in(x)
        with full_precision(x.device):
            q, k, v = self._parts(self._short(wide, state))
            y = lookup(q, k, v)
            y = nn.functional.rms_norm(y, y.shape[-1:], eps=MIN_MEAN_SQUARE)
        return self.project_out(y.flatten(2).to(x.dtype))

    def _lookup(self, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "b t h c"]:
        if self.recurrent:
            return lookup_recurrent_whole(q, k, v, self._amplitudes(v), self.decays)
        return toeplitz_lookup(q, k, v, self.kernel)

    def _divided(self, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "b t h c"]:
        """Return the lookup of this process's part of sequences that several processes divide."""
        if not self.recurrent:
            parts = torch.cat([q, k, v], -1)
            return self.layout.columns(self._look_up, parts, self.kernel, by_channel=False)
        weights = self._amplitudes(v)
        y, sums = toeplitz_lookup_recurrent(q, k, v, weights, self.decays)
        before = self.layout.scan(sums, self.decays[:, None, None, None], q.shape[1])
        # the lookup is linear in the sums before it
        return y if before is None else y + lookup_continued(q, before, weights, self.decays)

    def _look_up(self, parts: Tensor, kernel: Tensor) -> Tensor:
        q, k, v = parts.split((self.keys, self.keys, self.channels), -1)
        return toeplitz_lookup(q, k, v, kernel)

    def _short(
        self, wide: Float[Tensor, "b k w"], state: "LookupState | None"
    ) -> Float[Tensor, "b k w"]:
        """Convolve in at least float32; a state keeps the last inputs."""
        before = self.taps - 1
        wide = wide.to(torch.promote_types(wide.dtype, torch.float32))
        if before == 0:
            return wide
        if state is not None and state.recent is not None:
            recent = state.recent
        else:
            recent = (self.layout if state is None else WHOLE).before(wide, before)
        wide = torch.cat([recent, wide], 1)
        if state is not None:
            state.recent = replaced(state.recent, wide[:, -before:])
        assert isinstance(self.short, nn.Conv1d)
        return short_convolution(wide, self.short.weight.to(wide.dtype))

    def _parts(self, wide: Float[Tensor, "b k w"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values; queries and keys have length 1."""
        both, v = wide.split((2 * self.heads * self.keys, self.heads * self.channels), -1)
        q, k = _unit(both.unflatten(-1, (2, self.heads, self.keys))).unbind(2)
        return q, k, v.unflatten(-1, (self.heads, self.channels))

    def queries_keys_values(self, x: Float[Tensor, "b t d"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k (b, t, h, e) and v (b, t, h, c) of whole sequences."""
        return self._parts(self._short(self.project_in(x), None))

    def filter_taps(self, time: int) -> Float[Tensor, "h time"]:
        """Return the filters at the lags `0 .. time - 1`; free ones are zero beyond their taps."""
        if self.recurrent:
            none = self.weights[:, :0]
            return recurrent_kernel(none, amplitudes(self.weights, self.decays), self.decays, time)
        taps = self.kernel[:, :time]
        return nn.functional.pad(taps, (0, time - taps.shape[1]))

    def _amplitudes(self, like: Tensor) -> Float[Tensor, "h r"]:
        return amplitudes(self.weights.to(like.dtype), self.decays)

    def _continue_recurrent(
        self, q: Tensor, k: Tensor, v: Tensor, state: "LookupState"
    ) -> Float[Tensor, "b k h c"]:
        if q.shape[1] == 1 and state.sums is not None and not torch.is_grad_enabled():
            if state.weights is None:
                state.weights = self._amplitudes(v)
            if not writable(state.sums):
                state.sums = state.sums.clone()
            one = (q[:, 0], k[:, 0], v[:, 0])
            return lookup_step(*one, state.weights, self.decays, state.sums)[:, None]
        weights, state.weights = self._amplitudes(v), None
        y, state.sums = toeplitz_lookup_recurrent(q, k, v, weights, self.decays, state=state.sums)
        return y

    def _continue_free(
        self, q: Tensor, k: Tensor, v: Tensor, state: "LookupState"
    ) -> Float[Tensor, "b k h c"]:
        if state.past is None:
            state.past = KeyValues(self.kernel.shape[1], k.device)
        return toeplitz_lookup(q, *state.past.extend(k, v), self.kernel)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LookupMixer":
        """Keep decays in float32, as half precision rounds those near 1 to 1."""
        decays = self.decays if self.recurrent else None
        super()._apply(fn, recurse)
        if decays is not None:
            self.decays = full_precision_buffer(decays, self.decays)
        return self

    @classmethod
    def check(cls, config: Model) -> None:
        check_heads(config.dim, config.attention_heads)
        if config.filter == "free" and config.decays != Model.decays:
            raise ValueError(
                f"decays={config.decays} are those of recurrent filters: choose filter='recurrent', "
                "or leave them out"
            )

    @classmethod
    def parameter_count(cls, config: Model) -> int:
        dim, wide, heads = config.dim, _wide(config), config.attention_heads
        short = wide * config.short_conv if config.short_conv > 1 else 0
        taps = config.decays if config.filter == "recurrent" else config.context
        return (dim + 1) * wide + short + heads * taps + dim**2 + dim

    @classmethod
    def buffer_count(cls, config: Model) -> int:
        return config.decays if config.filter == "recurrent" else 0

    @classmethod
    def flops(cls, config: Model, time: int) -> float:
        """Projections, the short convolution, and the lookup in its cheaper form.

        A pair of positions takes e + c multiply-adds in every head; with recurrent filters a position
        writes to and reads from r matrices of e x c.
        """
        dim, wide = config.dim, _wide(config)
        short = 2.0 * time * wide * config.short_conv if config.short_conv > 1 else 0.0
        reach = min(time, config.context) if config.filter == "free" else time
        pairs = time * reach - reach * (reach - 1) / 2
        lookup = 2.0 * pairs * (config.attention_heads * config.keys + dim)
        if config.filter == "recurrent":
            lookup = min(lookup, 4.0 * time * config.decays * config.keys * dim)
        return 2.0 * time * dim * (wide + dim) + short + lookup

    @classmethod
    def state_bytes(cls, config: Model, time: int) -> int:
        recent = (config.short_conv - 1) * _wide(config)
        if config.filter == "recurrent":
            return 4 * (recent + config.decays * config.keys * config.dim)
        size = config.attention_heads * config.keys + config.dim
        return 4 * (recent + min(time, config.context) * size)

    @classmethod
    def exchanged_numbers(cls, config: Model, time: int, processes: int) -> float:
        """Inputs of the short convolution, and sums; free filters: queries, keys, values, outputs."""
        short = before_numbers(time, config.short_conv - 1, _wide(config), processes)
        if config.filter == "recurrent":
            return short + scan_numbers(config.decays * config.keys * config.dim, processes)
        return short + columns_numbers(time, _wide(config) + config.dim, processes)

    @classmethod
    def filter_heads(cls, config: Model) -> int:
        return config.attention_heads

    @classmethod
    def operator_precision(cls, config: Model, precision: str) -> str:
        """Queries, keys and values are convolved and normalised in float32."""
        return "float32"


def _wide(config: Model) -> int:
    """Return the channels of queries, keys and values together."""
    return 2 * config.attention_heads * config.keys + config.dim


def _unit(x: Float[Tensor, "*n e"]) -> Float[Tensor, "*n e"]:
    return x * (x.square().sum(-1, keepdim=True) + MIN_SQUARE).rsqrt()


class LookupState(RowState):
    """The last inputs of the short convolution, and the sums or the keys and values in the window.

    Filters are invariant to shifts in time, so no position is kept, and a row joins with what it has.
    """

    def __init__(self) -> None:
        self.recent: Tensor | None = None
        self.sums: Tensor | None = None
        self.weights: Tensor | None = (
            None  # amplitudes of the filters while single positions follow
        )
        self.past: KeyValues | None = None

    def begin_ragged(self, rows: int) -> None:
        """Do nothing: nothing depends on positions."""

    def append(self, other: "LookupState") -> None:
        if self.recent is not None and other.recent is not None:
            self.recent = torch.cat([self.recent, other.recent])
        if self.sums is not None and other.sums is not None:
            self.sums = _joined(self.sums, other.sums)
        if self.past is not None and other.past is not None:
            self.past.append(other.past)

    def select(self, rows: Int[Tensor, " r"]) -> None:
        if self.recent is not None:
            self.recent = selected(self.recent, rows)
        if self.sums is not None:
            self.sums = selected(self.sums.transpose(1, 2), rows).transpose(1, 2)
        if self.past is not None:
            self.past.select(rows)


def _joined(one: Float[Tensor, "b r h e c"], other: Float[Tensor, "n r h e c"]) -> Tensor:
    """Return the rows of both, in the memory layout of a decode step, (b, h, r, e, c)."""
    return torch.cat([one.transpose(1, 2), other.transpose(1, 2)]).transpose(1, 2)
