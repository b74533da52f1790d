"""Triton kernels of the product with recurrent filters (recurrent.py launches them).

With the letters of chunked.py, for every chunk n, head and block of columns (pairs of row and channel):

    chunk_sums_kernel    U_n = B u_n                        reverse: V_n  = C^T g_n
    outputs_kernel       y_n = C S_n + P v_n + L u_n        reverse: dx_n = B^T A_{n+1} + N g'_n + L^T g_n

and, summed over chunks and columns, the parts of [A_{n+1}; g_n] [S_n; v_n; u_n]^T:

    tap_correlation_kernel      g_n [v_n; u_n]^T
    state_correlation_kernel    g_n S_n^T, A_{n+1} u_n^T and A_{n+1} S_n^T

chunk_scan.py computes the states S_n and A_n between the first two. The reverse direction is the same
kernel with the tables exchanged and lags negated. L, P and N are made from the taps in registers; in
memory there are only tables of CHUNK numbers per head and decay. Products with x use tensor cores in the
dtype of x; products with states have float32 operands (TF32 if PRECISION says so); all accumulate in
float32.
"""

from typing import no_type_check

import triton
import triton.language as tl

from toeplix.ops.triton.dot import dot

MAX_FLOAT = tl.constexpr(3.4028234663852886e38)


@triton.jit
@no_type_check
def state_offsets(slot, row, j, head, channel, batch, rank, heads, channels):
    """Where states `(slots, b, r, h, c)` hold these numbers: decays down, columns across."""
    place = (slot.to(tl.int64) * batch + row[None, :]) * rank + j[:, None]
    return (place * heads + head) * channels + channel[None, :]


@triton.jit
@no_type_check
def chunk_sums_kernel(
    x, table, states, time, batch, heads, channels, rank, x_b, x_t, x_h, x_c,
    CHUNK: tl.constexpr, COLUMNS: tl.constexpr, RANK: tl.constexpr,
    REVERSE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write what a chunk adds to the sums into the slot after it (in reverse: before it)."""
    blocks = tl.cdiv(batch * channels, COLUMNS)
    chunk, head = tl.program_id(0) // blocks, tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    row, channel = (column // channels).to(tl.int64), (column % channels).to(tl.int64)
    valid = column < batch * channels
    a, j = tl.arange(0, CHUNK), tl.arange(0, RANK)
    size = tl.minimum(CHUNK, time - chunk * CHUNK)
    position = chunk.to(tl.int64) * CHUNK + a
    tile = tl.load(
        x + head * x_h + position[:, None] * x_t + (row * x_b + channel * x_c)[None, :],
        mask=(a < size)[:, None] & valid[None, :],
        other=0.0,
    ).to(tl.float32)
    # the powers of B end at the last position of a chunk, those of C begin at its first
    shift = 0 if REVERSE else CHUNK - size
    inward = tl.load(
        table + (head * rank + j)[:, None] * CHUNK + (a + shift)[None, :],
        mask=(j < rank)[:, None] & (a < size)[None, :],
        other=0.0,
    )
    added = tl.dot(inward, tile, input_precision=PRECISION)
    # an input that is not finite makes every sum NaN, which outputs_kernel relies on
    added = tl.where(tl.abs(added) <= MAX_FLOAT, added, float("nan"))
    slot = chunk if REVERSE else chunk + 1
    where = state_offsets(slot, row, j, head, channel, batch, rank, heads, channels)
    tl.store(states + where, added, mask=(j < rank)[:, None] & valid[None, :])


@triton.jit
@no_type_check
def outputs_kernel(
    x, taps, free, table, states, y, time, first, skip, short, batch, heads, channels, rank,
    x_b, x_t, x_h, x_c, y_b, y_t, y_h, y_c,
    CHUNK: tl.constexpr, COLUMNS: tl.constexpr, RANK: tl.constexpr, PAST: tl.constexpr,
    REVERSE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the outputs of a chunk. x and y point to position 0; positions from -skip on exist.

    In reverse, `first` is negative if there are positions before 0, in chunks of their own: they get
    what the free taps read from them.
    """
    blocks = tl.cdiv(batch * channels, COLUMNS)
    chunk, head = tl.program_id(0) // blocks + first, tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    row, channel = (column // channels).to(tl.int64), (column % channels).to(tl.int64)
    valid = column < batch * channels
    a, j = tl.arange(0, CHUNK), tl.arange(0, RANK)
    size = tl.minimum(CHUNK, time - chunk * CHUNK)
    position = chunk.to(tl.int64) * CHUNK + a
    inside = (a < size) & (position >= 0)
    x += head * x_h + (row * x_b + channel * x_c)[None, :]
    y += head * y_h + (row * y_b + channel * y_c)[None, :]
    tile = tl.load(x + position[:, None] * x_t, mask=inside[:, None] & valid[None, :], other=0.0)

    shift = CHUNK - size if REVERSE else 0
    outward = tl.load(
        table + (head * rank + j)[None, :] * CHUNK + (a + shift)[:, None],
        mask=(j < rank)[None, :] & inside[:, None],
        other=0.0,
    )
    slot = chunk + 1 if REVERSE else chunk
    where = state_offsets(slot, row, j, head, channel, batch, rank, heads, channels)
    known = (j < tl.where(chunk >= 0, rank, 0))[:, None] & valid[None, :]
    sums = tl.load(states + where, mask=known, other=0.0)
    total = tl.dot(outward, sums, input_precision=PRECISION)

    lost = tl.full([COLUMNS], CHUNK, tl.int32)  # the first position that is not finite
    if not REVERSE:
        where += tl.cast(batch, tl.int64) * rank * heads * channels
        after = tl.load(states + where, mask=known & (j == 0)[:, None], other=0.0)
        if tl.max(tl.max(tl.where(tl.abs(after) <= MAX_FLOAT, 0, 1), 1), 0) > 0:
            # such an input would reach earlier outputs as 0 * NaN
            bad = tl.abs(tile.to(tl.float32)) <= MAX_FLOAT
            lost = tl.min(tl.where(bad, CHUNK, a[:, None]), 0)
            tile = tl.where(bad, tile, 0.0)

    lag = a[None, :] - a[:, None] if REVERSE else a[:, None] - a[None, :]
    local = tl.load(taps + head * CHUNK + lag, mask=lag >= 0, other=0.0).to(tile.dtype)
    total = dot(local, tile, total, PRECISION)
    if PAST > 0:
        i = tl.arange(0, PAST)
        if REVERSE:
            there = chunk.to(tl.int64) * CHUNK + CHUNK + i
            far = CHUNK + i[None, :] - a[:, None]
        else:
            there = chunk.to(tl.int64) * CHUNK - PAST + i
            far = PAST - i[None, :] + a[:, None]
        exists = (there >= (0 if REVERSE else -skip)) & (there < time)
        near = tl.load(x + there[:, None] * x_t, mask=exists[:, None] & valid[None, :], other=0.0)
        before = tl.load(free + head * short + far, mask=far < short, other=0.0).to(near.dtype)
        total = dot(before, near, total, PRECISION)
    total = tl.where(a[:, None] >= lost[None, :], float("nan"), total)
    written = (a < size) & (position >= -skip)
    tl.store(
        y + position[:, None] * y_t,
        total.to(y.dtype.element_ty),
        mask=written[:, None] & valid[None, :],
    )


@triton.jit
@no_type_check
def tap_correlation_kernel(
    g, x, partial, time, first, items, skip, batch, heads, channels, rank, reach,
    g_b, g_t, g_h, g_c, x_b, x_t, x_h, x_c,
    CHUNK: tl.constexpr, COLUMNS: tl.constexpr, PAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add `g_n [v_n; u_n]^T` of every `programs`-th item: a block of columns of a chunk from `first` on.

    Each program has a matrix of its own in `partial`, so that the order of additions is fixed.
    """
    blocks = tl.cdiv(batch * channels, COLUMNS)
    program, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    a, i = tl.arange(0, CHUNK), tl.arange(0, max(PAST, 16))
    local = tl.zeros([CHUNK, CHUNK], tl.float32)
    past = tl.zeros([CHUNK, max(PAST, 16)], tl.float32)
    for item in range(program, items, tl.num_programs(0)):
        column = item % blocks * COLUMNS + tl.arange(0, COLUMNS)
        row, channel = (column // channels).to(tl.int64), (column % channels).to(tl.int64)
        valid = (column < batch * channels)[None, :]
        position = (first + item // blocks).to(tl.int64) * CHUNK + a
        inside = (position < time)[:, None] & valid
        rows_g = g + head * g_h + (row * g_b + channel * g_c)[None, :]
        rows_x = x + head * x_h + (row * x_b + channel * x_c)[None, :]
        y = tl.load(rows_g + position[:, None] * g_t, mask=inside, other=0.0)
        u = tl.load(rows_x + position[:, None] * x_t, mask=inside, other=0.0)
        local = dot(y, tl.trans(u), local, PRECISION)
        if PAST > 0:
            there = (first + item // blocks).to(tl.int64) * CHUNK - reach + i
            exists = ((there >= -skip) & (i < reach))[:, None] & valid
            v = tl.load(rows_x + there[:, None] * x_t, mask=exists, other=0.0)
            past = dot(y, tl.trans(v), past, PRECISION)
    width = rank + reach + CHUNK
    partial += (program.to(tl.int64) * heads + head) * (rank + CHUNK) * width
    partial += (rank + a)[:, None] * width + rank
    tl.store(partial + (reach + a)[None, :], local)
    if PAST > 0:
        tl.store(partial + i[None, :], past, mask=(i < reach)[None, :] & (a >= 0)[:, None])


@triton.jit
@no_type_check
def state_correlation_kernel(
    g, x, before, after, partial, time, first, items, batch, heads, channels, rank, reach,
    g_b, g_t, g_h, g_c, x_b, x_t, x_h, x_c,
    CHUNK: tl.constexpr, COLUMNS: tl.constexpr, RANK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add `g_n S_n^T`, `A_{n+1} u_n^T` and `A_{n+1} S_n^T` of the same items to the same matrices."""
    blocks = tl.cdiv(batch * channels, COLUMNS)
    program, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    a, j = tl.arange(0, CHUNK), tl.arange(0, RANK)
    outward = tl.zeros([CHUNK, RANK], tl.float32)
    inward = tl.zeros([CHUNK, RANK], tl.float32)
    kept = tl.zeros([RANK, RANK], tl.float32)
    for item in range(program, items, tl.num_programs(0)):
        chunk = first + item // blocks
        column = item % blocks * COLUMNS + tl.arange(0, COLUMNS)
        row, channel = (column // channels).to(tl.int64), (column % channels).to(tl.int64)
        valid = (column < batch * channels)[None, :]
        position = chunk.to(tl.int64) * CHUNK + a
        inside = (position < time)[:, None] & valid
        where = state_offsets(chunk, row, j, head, channel, batch, rank, heads, channels)
        known = (j < rank)[:, None] & valid
        sums = tl.load(before + where, mask=known, other=0.0)
        where += tl.cast(batch, tl.int64) * rank * heads * channels
        change = tl.load(after + where, mask=known, other=0.0)
        kept = tl.dot(change, tl.trans(sums), kept, input_precision=PRECISION)
        rows_g = g + head * g_h + (row * g_b + channel * g_c)[None, :]
        y = tl.load(rows_g + position[:, None] * g_t, mask=inside, other=0.0)
        outward = tl.dot(y.to(tl.float32), tl.trans(sums), outward, input_precision=PRECISION)
        rows_x = x + head * x_h + (row * x_b + channel * x_c)[None, :]
        u = tl.load(rows_x + position[:, None] * x_t, mask=inside, other=0.0)
        inward = tl.dot(u.to(tl.float32), tl.trans(change), inward, input_precision=PRECISION)
    width = rank + reach + CHUNK
    partial += (program.to(tl.int64) * heads + head) * (rank + CHUNK) * width
    ranked = (j < rank)[None, :]
    down = (rank + a)[:, None] * width + j[None, :]
    tl.store(partial + down, outward, mask=ranked & (a >= 0)[:, None])
    across = j[None, :] * width + (rank + reach + a)[:, None]
    tl.store(partial + across, inward, mask=ranked & (a >= 0)[:, None])
    corner = j[:, None] * width + j[None, :]
    tl.store(partial + corner, kept, mask=ranked & (j < rank)[:, None])
