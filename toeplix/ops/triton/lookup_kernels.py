"""Triton kernels of lookup with recurrent filters (lookup.py launches them).

Time is divided into chunks of CHUNK positions, and a chunk into blocks of BLOCK positions. For every
chunk n with queries q_a, keys k_s and values v_s, and the states S_n[j] (key by value channels):

    lookup_sums_kernel      U_n[j] = sum over s of decays[j]^(size - 1 - s) k_s v_s^T
    lookup_outputs_kernel   y_a    = sum over j of weights[j] decays[j]^(a + 1) q_a S_n[j]
                                     + sum over s <= a of w[a - s] (q_a . k_s) v_s

and for the gradient of the filter, summed over rows and chunks:

    lookup_taps_kernel      (q_a . k_s) (g_a . v_s)        for blocks of equal distance
    lookup_powers_kernel    (x_a S[j]) . z_a               by position a of the chunk, for every decay j

chunk_scan.py computes the states between the first two. In reverse the two tables of powers are
exchanged and lags are negated: the gradients of queries, keys and values are lookups (see lookup.py).
Products accumulate in float32, and states are float32. Scores in float16 could overflow; they stay in
float32, and their products use TF32.
"""

from typing import no_type_check

import triton
import triton.language as tl

from toeplix.ops.triton.dot import dot


@triton.jit
@no_type_check
def rows_of(x, head, row, position, time, width, x_b, x_t, x_h, x_c, WIDTH: tl.constexpr):
    """Load positions (down) by channels (across) of one head and row; zeros where there is nothing."""
    channel = tl.arange(0, WIDTH)
    x += head * x_h + row * x_b + position.to(tl.int64)[:, None] * x_t
    x += channel.to(tl.int64)[None, :] * x_c
    mask = (position < time)[:, None] & (channel < width)[None, :]
    return tl.load(x, mask=mask, other=0.0)


@triton.jit
@no_type_check
def ranged(x):
    """Return x in a dtype with the range of float32."""
    return x.to(tl.float32) if x.dtype == tl.float16 else x


@triton.jit
@no_type_check
def lookup_sums_kernel(
    k, v, table, states, time, batch, heads, keys, values, rank,
    k_b, k_t, k_h, k_c, v_b, v_t, v_h, v_c,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
    REVERSE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write what a chunk adds to a state into the slot after it (in reverse: before it)."""
    tiles = tl.cdiv(values, VALUES)
    chunk, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    head, j = (tl.program_id(1) // rank).to(tl.int64), tl.program_id(1) % rank
    row = tl.program_id(2).to(tl.int64)
    size = tl.minimum(CHUNK, time - chunk * CHUNK)
    # forward powers end at the last position of a chunk, those of the reverse begin at its first
    shift = 0 if REVERSE else CHUNK - size
    v += tile.to(tl.int64) * VALUES * v_c
    total = tl.zeros([KEYS, VALUES], tl.float32)
    for first in range(0, size, BLOCK):
        a = first + tl.arange(0, BLOCK)
        power = tl.load(table + (head * rank + j) * CHUNK + a + shift, mask=a < size, other=0.0)
        position = chunk * CHUNK + a
        left = rows_of(k, head, row, position, time, keys, k_b, k_t, k_h, k_c, KEYS)
        right = ranged(
            rows_of(
                v, head, row, position, time, values - tile * VALUES, v_b, v_t, v_h, v_c, VALUES
            )
        )
        left = (left.to(tl.float32) * power[:, None]).to(right.dtype)
        total = dot(tl.trans(left), right, total, PRECISION)
    slot = chunk if REVERSE else chunk + 1
    e, c = tl.arange(0, KEYS), tile * VALUES + tl.arange(0, VALUES)
    states += (((slot.to(tl.int64) * batch + row) * rank + j) * heads + head) * keys * values
    mask = (e < keys)[:, None] & (c < values)[None, :]
    tl.store(states + e[:, None] * values + c[None, :], total, mask=mask)


@triton.jit
@no_type_check
def lookup_outputs_kernel(
    q, k, v, taps, table, states, y, time, batch, heads, keys, values, rank, state_e, state_c,
    q_b, q_t, q_h, q_c, k_b, k_t, k_h, k_c, v_b, v_t, v_h, v_c,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
    REVERSE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write a block of positions of y, which is contiguous. Strides may transpose the states."""
    tiles = tl.cdiv(values, VALUES)
    block, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    head, row = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    chunk = block * BLOCK // CHUNK
    size = tl.minimum(CHUNK, time - chunk * CHUNK)
    position = block * BLOCK + tl.arange(0, BLOCK)
    a = position - chunk * CHUNK
    shift = CHUNK - size if REVERSE else 0
    v += tile.to(tl.int64) * VALUES * v_c
    width = values - tile * VALUES
    query = rows_of(q, head, row, position, time, keys, q_b, q_t, q_h, q_c, KEYS)
    e, c = tl.arange(0, KEYS), tl.arange(0, VALUES)
    slot = chunk + 1 if REVERSE else chunk
    states += ((slot.to(tl.int64) * batch + row) * rank * heads + head) * keys * values
    states += e[:, None] * state_e + (tile * VALUES + c)[None, :] * state_c
    known = (e < keys)[:, None] & (c < width)[None, :]
    total = tl.zeros([BLOCK, VALUES], tl.float32)
    for j in range(rank):
        power = tl.load(table + (head * rank + j) * CHUNK + a + shift, mask=a < size, other=0.0)
        sums = tl.load(states, mask=known, other=0.0)
        scaled = query.to(tl.float32) * power[:, None]
        total = tl.dot(scaled, sums, total, input_precision=PRECISION)
        states += tl.cast(heads, tl.int64) * keys * values
    if REVERSE:
        begin, end = block, tl.cdiv(chunk * CHUNK + size, BLOCK)
    else:
        begin, end = chunk * (CHUNK // BLOCK), block + 1
    for other in range(begin, end):
        there = other * BLOCK + tl.arange(0, BLOCK)
        key = rows_of(k, head, row, there, time, keys, k_b, k_t, k_h, k_c, KEYS)
        value = ranged(rows_of(v, head, row, there, time, width, v_b, v_t, v_h, v_c, VALUES))
        lag = position[:, None] - there[None, :]
        lag = -lag if REVERSE else lag
        weight = tl.load(taps + head * CHUNK + lag, mask=lag >= 0, other=0.0)
        scores = dot(query, tl.trans(key), tl.zeros([BLOCK, BLOCK], tl.float32), PRECISION)
        scores = (scores * weight).to(value.dtype)
        total = dot(scores, value, total, PRECISION)
    y += ((row * time + position.to(tl.int64)) * heads + head)[:, None] * values
    mask = (position < time)[:, None] & (c < width)[None, :]
    tl.store(y + (tile * VALUES + c)[None, :], total.to(y.dtype.element_ty), mask=mask)


@triton.jit
@no_type_check
def lookup_taps_kernel(
    q, k, g, v, partial, time, chunks, heads, keys, values, rows,
    q_b, q_t, q_h, q_c, k_b, k_t, k_h, k_c, g_b, g_t, g_h, g_c, v_b, v_t, v_h, v_c,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add `(q k^T) (g v^T)`, elementwise, over pairs of blocks of one chunk with the same distance."""
    program, distance = tl.program_id(0), tl.program_id(1)
    head = tl.program_id(2).to(tl.int64)
    pairs = CHUNK // BLOCK - distance
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for item in range(program, rows * chunks * pairs, tl.num_programs(0)):
        row, rest = (item // (chunks * pairs)).to(tl.int64), item % (chunks * pairs)
        block = rest // pairs * (CHUNK // BLOCK) + distance + rest % pairs
        position = block * BLOCK + tl.arange(0, BLOCK)
        there = position - distance * BLOCK
        query = rows_of(q, head, row, position, time, keys, q_b, q_t, q_h, q_c, KEYS)
        key = rows_of(k, head, row, there, time, keys, k_b, k_t, k_h, k_c, KEYS)
        scores = dot(query, tl.trans(key), tl.zeros([BLOCK, BLOCK], tl.float32), PRECISION)
        change = rows_of(g, head, row, position, time, values, g_b, g_t, g_h, g_c, VALUES)
        value = rows_of(v, head, row, there, time, values, v_b, v_t, v_h, v_c, VALUES)
        zeros = tl.zeros([BLOCK, BLOCK], tl.float32)
        total += scores * dot(change, tl.trans(value), zeros, PRECISION)
    a = tl.arange(0, BLOCK)
    place = (program.to(tl.int64) * heads + head) * (CHUNK // BLOCK) + distance
    tl.store(partial + (place * BLOCK + a[:, None]) * BLOCK + a[None, :], total)


@triton.jit
@no_type_check
def lookup_powers_kernel(
    x, z, states, partial, time, first, chunks, later, heads, keys, values, rank, rows,
    x_b, x_t, x_h, x_c, z_b, z_t, z_h, z_c,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add `(x_a S[j]) . z_a` over rows and chunks from `first` on; S is in the slot `chunk + later`."""
    program, block = tl.program_id(0), tl.program_id(2)
    head, j = (tl.program_id(1) // rank).to(tl.int64), tl.program_id(1) % rank
    e, c = tl.arange(0, KEYS), tl.arange(0, VALUES)
    a = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for item in range(program, rows * chunks, tl.num_programs(0)):
        row, chunk = (item // chunks).to(tl.int64), first + item % chunks
        position = chunk * CHUNK + a
        left = rows_of(x, head, row, position, time, keys, x_b, x_t, x_h, x_c, KEYS)
        place = (((chunk + later).to(tl.int64) * rows + row) * rank + j) * heads + head
        for tile in range(0, values, VALUES):
            mask = (e < keys)[:, None] & (c < values - tile)[None, :]
            where = place * keys * values + e[:, None] * values + (tile + c)[None, :]
            sums = tl.load(states + where, mask=mask, other=0.0)
            read = tl.dot(left.to(tl.float32), sums, input_precision=PRECISION)
            there = z + tl.cast(tile, tl.int64) * z_c
            right = rows_of(
                there, head, row, position, time, values - tile, z_b, z_t, z_h, z_c, VALUES
            )
            total += tl.sum(read * right.to(tl.float32), 1)
    tl.store(partial + (program.to(tl.int64) * heads * rank + head * rank + j) * CHUNK + a, total)
