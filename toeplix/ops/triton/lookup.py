"""Lookup with recurrent filters on a GPU, in chunks with states: forward and backward.

    y[t] = sum over s <= t of w[t - s] (q[t] . k[s]) v[s]      w[l] = sum over j of weights[j] decays[j]^l

With g the gradient of y, the gradients are lookups too, over the same states:

    dq[t] = sum over s <= t of w[t - s] (g[t] . v[s]) k[s]        states S, transposed
    dk[s] = sum over t >= s of w[t - s] (v[s] . g[t]) q[t]        states A, transposed, in reverse
    dv[s] = sum over t >= s of w[t - s] (k[s] . q[t]) g[t]        states A, in reverse

S_n[j] are the sums before chunk n, A_n[j] their gradients. ops/lookup_autograd.py calls `forward` and
`backward`; lookup_kernels.py has the kernels. Nothing is added atomically: results are the same bit for
bit in every run.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import contraction, triton
from toeplix.ops.recurrent_filter import Filter, Matrices, power_gradients
from toeplix.ops.triton.recurrent import padded, state_precision

MAX_CHANNELS = 128  # of keys and of values: a program holds a whole row of either
MIN_CHUNK, MAX_CHUNK = 64, 512  # positions of a chunk
CORRELATION_PROGRAMS = 512  # that add up the gradients of the filters, at most


class Tile(NamedTuple):
    """Positions and value channels of one tile, and how a program runs."""

    block: int
    values: int
    num_warps: int
    num_stages: int


# Chosen such that no target spills registers (tests/ops/triton/test_recurrent_targets.py); their speed
# was not measured.
LARGE_TILE = Tile(64, 64, 4, 2)  # for half precision and up to 64 channels
SMALL_TILE = Tile(32, 32, 4, 2)
MAX_NARROW_KEYS = 64  # of a program with the warps of its tile that reads states


def run_options(tile: Tile, keys: int, transposed: bool = False) -> dict[str, int]:
    """Return how programs run that multiply rows of `keys` channels by states.

    States are transposed for the gradients of q and k, where values take the place of keys.
    """
    if transposed or keys > MAX_NARROW_KEYS:
        return {"num_warps": 8, "num_stages": 1}
    return {"num_warps": tile.num_warps, "num_stages": tile.num_stages}


def tile_of(dtype: torch.dtype, channels: int) -> Tile:
    """Return the tile for a dtype and a number of channels, of keys or of values, whichever are more."""
    return LARGE_TILE if dtype.itemsize == 2 and channels <= 64 else SMALL_TILE


def fits(q: Tensor, k: Tensor, v: Tensor, rank: int) -> bool:
    """Return whether the kernels compute lookups of these dtypes and sizes."""
    same = q.dtype == k.dtype == v.dtype and v.dtype in triton.DTYPES
    widths = 0 < q.shape[3] <= MAX_CHANNELS and 0 < v.shape[3] <= MAX_CHANNELS
    return same and widths and rank > 0 and q.numel() > 0


def supports(q: Tensor, k: Tensor, v: Tensor, rank: int) -> bool:
    """Return whether the kernels compute this lookup, where it is."""
    return fits(q, k, v, rank) and triton.supports(v)


class Gradients(NamedTuple):
    """The gradients of a lookup."""

    q: Float[Tensor, "b t h e"]
    k: Float[Tensor, "b t h e"]
    v: Float[Tensor, "b t h c"]
    weights: Float[Tensor, "h r"]
    decays: Float[Tensor, "h r"]
    state: Float[Tensor, "b r h e c"]


def chunk_length(keys: int, rank: int) -> int:
    """Return the positions of a chunk.

    The states of a chunk have rank * keys numbers per value channel; with as many positions they need the
    memory of the values, in float32.
    """
    return min(MAX_CHUNK, max(MIN_CHUNK, padded(rank * keys)))


def states_shape(q: Tensor, v: Tensor, rank: int) -> tuple[int, int, int, int, int, int]:
    """Return the shape of the states that `forward` returns: before every chunk, and after the last."""
    batch, time, heads, keys = q.shape
    chunks = -(-time // chunk_length(keys, rank))
    return (chunks + 1, batch, rank, heads, keys, v.shape[3])


class _Launch:
    """What the kernels of one lookup share: tables, sizes and constants."""

    def __init__(self, q: Tensor, v: Tensor, weights: Tensor, decays: Tensor) -> None:
        self.tile = tile_of(q.dtype, max(q.shape[3], v.shape[3]))
        self.batch, self.time, self.heads, self.keys = q.shape
        self.values, self.rank = v.shape[3], weights.shape[1]
        chunk = chunk_length(self.keys, self.rank)
        free = weights.new_empty(self.heads, 0, dtype=torch.float64)
        filters = Filter(free, weights.double(), decays.double().expand_as(weights))
        self.matrices = Matrices(filters, chunk, torch.float32)
        self.taps = filters.taps(chunk).float().contiguous()
        self.chunks = -(-self.time // chunk)
        self.shape = states_shape(q, v, self.rank)
        self.options = {
            "CHUNK": chunk,
            "BLOCK": self.tile.block,
            "PRECISION": state_precision(q),
            "num_warps": self.tile.num_warps,
            "num_stages": self.tile.num_stages,
            "enable_fp_fusion": True,
        }

    def states(
        self, k: Tensor, v: Tensor, begin: Tensor | None, *, reverse: bool
    ) -> Float[Tensor, "slots b r h e c"]:
        """Return the sums before every chunk and after the last; in reverse, their gradients."""
        from toeplix.ops.triton.chunk_scan import chunk_scan
        from toeplix.ops.triton.lookup_kernels import lookup_sums_kernel

        states = v.new_empty(self.shape, dtype=torch.float32)
        edge = states[-1 if reverse else 0]
        edge.zero_() if begin is None else edge.copy_(begin)
        table = self.matrices.spread if reverse else self.matrices.gather
        width = min(self.tile.values, padded(self.values))
        grid = (
            self.chunks * -(-self.values // width),
            self.heads * self.rank,
            self.batch,
        )
        lookup_sums_kernel[grid](
            k, v, table.contiguous(), states, self.time, self.batch, self.heads, self.keys,
            self.values, self.rank, *k.stride(), *v.stride(),
            KEYS=padded(self.keys), VALUES=width, REVERSE=reverse, **self.options,
        )  # fmt: skip
        chunk_scan(states, self.matrices, self.time, reverse=reverse)
        return states

    def outputs(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        states: Tensor,
        *,
        reverse: bool,
        transposed: bool = False,
    ) -> Tensor:
        """Return a lookup with states `(slots, b, r, h, channels of q, channels of v)`.

        `transposed`: they are `(slots, b, r, h, channels of v, channels of q)`.
        """
        from toeplix.ops.triton.lookup_kernels import lookup_outputs_kernel

        y = v.new_empty(v.shape)
        m, keys, values = self.matrices, q.shape[3], v.shape[3]
        states = states.transpose(4, 5) if transposed else states
        table = (m.gather if reverse else m.spread).contiguous()
        width = min(self.tile.values, padded(values))
        blocks = -(-self.time // self.tile.block)
        lookup_outputs_kernel[(blocks * -(-values // width), self.heads, self.batch)](
            q, k, v, self.taps, table, states, y, self.time, self.batch, self.heads, keys, values,
            self.rank, *states.stride()[4:], *q.stride(), *k.stride(), *v.stride(),
            KEYS=padded(keys), VALUES=width, REVERSE=reverse,
            **self.options | run_options(self.tile, keys, transposed),
        )  # fmt: skip
        return y

    def filter_gradients(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        before: Tensor,
        after: Tensor,
        need_decays: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of weights and decays; the latter is zero unless it is needed."""
        m, taps = self.matrices, self._tap_gradients(q, k, v, g)
        dweights, ddecays = (torch.zeros_like(part) for part in m.filters[1:])
        whole, rest = divmod(self.time, m.size)
        for first, chunks, size in ((0, whole, m.size), (whole, 1, rest)):
            if chunks == 0 or size == 0:
                continue
            spread = self._power_sums(q, g, before, first, chunks, 0)[..., :size]
            gather, kept = torch.zeros_like(spread), torch.zeros_like(dweights)
            if need_decays:
                gather = self._power_sums(k, v, after, first, chunks, 1)[..., :size]
                pair = (part.flatten(4) for part in (after[first + 1 :][:chunks], before[first:]))
                ends, begins = (part[:chunks] for part in pair)
                kept = torch.linalg.vecdot(ends, begins).double().sum((0, 1)).t()
            # taps are not divided by chunks: all of them are counted with the whole ones, or else once
            near = taps if first == 0 else torch.zeros_like(taps)
            found = power_gradients(m.filters, near[:, :size], spread, gather, kept)
            dweights += found[0]
            if need_decays:
                ddecays += found[1]
        return dweights, ddecays

    def _tap_gradients(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
        """Return the gradient of the taps at the lags within a chunk, `(h, chunk)`."""
        from toeplix.ops.triton.lookup_kernels import lookup_taps_kernel

        block, distances = self.tile.block, self.matrices.size // self.tile.block
        programs = self._programs(self.batch * self.chunks * distances)
        shape = (programs, self.heads, distances, block, block)
        partial = q.new_empty(shape, dtype=torch.float32)
        lookup_taps_kernel[(programs, distances, self.heads)](
            q, k, g, v, partial, self.time, self.chunks, self.heads, self.keys, self.values,
            self.batch, *q.stride(), *k.stride(), *g.stride(), *v.stride(),
            KEYS=padded(self.keys), VALUES=padded(self.values), **self.options,
        )  # fmt: skip
        sums = partial.sum(0, dtype=torch.float64).flatten(0, 1)
        # lags of a tile at distance d: d * block - (block - 1) .. d * block + (block - 1)
        lags = contraction.diagonal_sums(sums).unflatten(0, (self.heads, distances))
        found = lags.new_zeros(self.heads, self.matrices.size)
        for distance in range(distances):
            near = lags[:, distance, block - 1 :]
            found[:, distance * block : (distance + 1) * block] += near
            if distance:
                before = lags[:, distance, : block - 1]
                found[:, (distance - 1) * block + 1 : distance * block] += before
        return found

    def _power_sums(
        self, x: Tensor, z: Tensor, states: Tensor, first: int, chunks: int, later: int
    ) -> Float[Tensor, "h r chunk"]:
        """Return `(x_a S[j]) . z_a` by position in the chunk, summed over rows and chunks."""
        from toeplix.ops.triton.lookup_kernels import lookup_powers_kernel

        programs = self._programs(self.batch * chunks)
        shape = (programs, self.heads, self.rank, self.matrices.size)
        partial = x.new_empty(shape, dtype=torch.float32)
        grid = (programs, self.heads * self.rank, self.matrices.size // self.tile.block)
        lookup_powers_kernel[grid](
            x, z, states, partial, self.time, first, chunks, later, self.heads, self.keys,
            self.values, self.rank, self.batch, *x.stride(), *z.stride(),
            KEYS=padded(self.keys), VALUES=min(self.tile.values, padded(self.values)),
            **self.options | run_options(self.tile, self.keys),
        )  # fmt: skip
        return partial.sum(0, dtype=torch.float64)

    def _programs(self, items: int) -> int:
        return min(items, max(1, CORRELATION_PROGRAMS // (self.heads * self.rank)))


def forward(
    q: Float[Tensor, "b t h e"],
    k: Float[Tensor, "b t h e"],
    v: Float[Tensor, "b t h c"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, "h r"],
    state: Float[Tensor, "b r h e c"] | None = None,
) -> tuple[Float[Tensor, "b t h c"], Float[Tensor, "slots b r h e c"]]:
    """Return y in the dtype of v, and the states before every chunk and after the last.

    q, k and v have one dtype of `DTYPES` and any strides, and `supports` is true for them.
    """
    launch = _Launch(q, v, weights, decays)
    with torch.cuda.device_of(v):
        states = launch.states(k, v, state, reverse=False)
        return launch.outputs(q, k, v, states, reverse=False), states


def backward(
    g: Float[Tensor, "b t h c"],
    final: Float[Tensor, "b r h e c"] | None,
    q: Float[Tensor, "b t h e"],
    k: Float[Tensor, "b t h e"],
    v: Float[Tensor, "b t h c"],
    weights: Float[Tensor, "h r"],
    decays: Float[Tensor, "h r"],
    states: Float[Tensor, "slots b r h e c"],
    *,
    need_decays: bool = True,
) -> Gradients:
    """Return the gradients, from those of y (g) and of the last state (final); states are `forward`'s."""
    launch = _Launch(q, v, weights, decays)
    g = g.to(v.dtype)
    with torch.cuda.device_of(v):
        after = launch.states(q, g, final, reverse=True)
        dq = launch.outputs(g, v, k, states, reverse=False, transposed=True)
        dk = launch.outputs(v, g, q, after, reverse=True, transposed=True)
        dv = launch.outputs(k, q, g, after, reverse=True)
        found = launch.filter_gradients(q, k, v, g, states, after, need_decays)
    return Gradients(dq, dk, dv, *found, after[0].clone())
