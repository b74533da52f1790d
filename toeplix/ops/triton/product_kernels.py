"""Kernels of the causal Toeplitz product: tiles of the matrix are built from the filter, never stored.

    product_kernel       y[t] = sum_{s<=t} filter[t-s] x[s], or with direction -1 its transpose
    correlation_kernel   diagonal sums of G X^T: parts of filter'[l] = sum_{b,t,c} g[t] x[t-l]
    diagonals_kernel     adds these parts in a fixed order

One filter multiplies all columns of its head, which are the sequences and their channels. A program
of `product_kernel` computes a tile of y, `BLOCK_T` positions by `BLOCK_N` columns, in float32, from
the tiles of x that are not multiplied by the zero half of the matrix.

A tile of G X^T depends on its place on the matrix only by its lags, so a program of
`correlation_kernel` adds all tiles of one block diagonal before it sums along their diagonals. Nothing
is added atomically: results are the same bit for bit in every run.

Columns are addressed in one of three ways: tiles of channels of one row (the default), tiles that
extend over rows (`FLAT`, for few channels), tiles of channels of one document (`PACKED`). Documents
are given by their starts in the flattened batch and by their lengths.
"""

# `no_type_check` keeps run-time type checkers away from functions that are never run by Python
from typing import no_type_check

import triton
import triton.language as tl

from toeplix.ops.triton.dot import dot


@triton.jit(do_not_specialize=["direction"])
@no_type_check
def product_kernel(
    x,
    filters,
    y,
    starts,
    lengths,
    block_document,
    block_place,
    direction,
    batch,
    time,
    heads,
    channels,
    taps,
    filter_stride,
    x_b,
    x_t,
    x_h,
    x_c,
    FLAT: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write one tile of `T(filter) x` into y, which is contiguous; grid `(blocks * tiles, heads)`."""
    head = tl.program_id(1).to(tl.int64)
    per_row = tl.cdiv(channels, BLOCK_N)
    column = tl.arange(0, BLOCK_N)
    if PACKED:
        number = tl.program_id(0) // per_row
        document = tl.load(block_document + number)
        if (
            document < 0
        ):  # there are more programs than blocks: their number is not known on the host
            return
        place = tl.load(block_place + number).to(tl.int32)
        start = tl.load(starts + document).to(tl.int64)
        length = tl.load(lengths + document).to(tl.int32)
        row = start // time
        first = start % time
        channel = tl.program_id(0) % per_row * BLOCK_N + column
        inside = channel < channels
    else:
        # neighbouring programs read the same columns, which stay in the L2 cache
        blocks = tl.cdiv(time, BLOCK_T)
        tile = tl.program_id(0) // blocks
        place = tl.program_id(0) % blocks
        if direction > 0:
            place = blocks - 1 - place  # the most work first
        first = tl.zeros((), tl.int64)
        length = time
        if FLAT:
            column = tile * BLOCK_N + column
            row = (column // channels).to(tl.int64)
            channel = column % channels
            inside = column < batch * channels
        else:
            row = (tile // per_row).to(tl.int64)
            channel = tile % per_row * BLOCK_N + column
            inside = channel < channels

    x += head * x_h + row * x_b + first * x_t
    y += head * channels + (row * time + first) * heads * channels
    t = place * BLOCK_T + tl.arange(0, BLOCK_T)
    s = tl.arange(0, BLOCK_S)
    skew = direction * (t[:, None] - s[None, :])
    filters += head * filter_stride
    x_columns = x + channel.to(tl.int64) * x_c
    begin = 0
    end = tl.cdiv(length, BLOCK_S)
    if direction > 0:
        end = tl.minimum(end, tl.cdiv((place + 1) * BLOCK_T, BLOCK_S))
    else:
        begin = place * BLOCK_T // BLOCK_S
    total = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    for block in range(begin, end):
        lag = skew - direction * block * BLOCK_S
        matrix = tl.load(filters + lag, mask=(lag >= 0) & (lag < taps), other=0.0)
        position = block * BLOCK_S + s
        inputs = tl.load(
            x_columns[None, :] + position.to(tl.int64)[:, None] * x_t,
            mask=(position < length)[:, None] & inside[None, :],
            other=0.0,
        )
        total = dot(matrix, inputs, total, PRECISION)
    outputs = (y + channel)[None, :] + t.to(tl.int64)[:, None] * (heads * channels)
    mask = (t < length)[:, None] & inside[None, :]
    tl.store(outputs, total.to(y.dtype.element_ty), mask=mask)


@triton.jit
@no_type_check
def correlation_kernel(
    g,
    x,
    sums,
    starts,
    lengths,
    documents,
    batch,
    time,
    channels,
    share,
    g_b,
    g_t,
    g_h,
    g_c,
    x_b,
    x_t,
    x_h,
    x_c,
    FLAT: tl.constexpr,
    PACKED: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the sums along the diagonals of one block diagonal; grid `(diagonals, splits, heads)`.

    `sums[split, head, d, 0, k]` belongs to lag `d * BLOCK_L + k`, and `sums[split, head, d, 1, k]`
    to `(d - 1) * BLOCK_L + k`. A split takes `share` tiles of columns, or documents if `PACKED`.
    """
    diagonal = tl.program_id(0)
    split = tl.program_id(1)
    head = tl.program_id(2).to(tl.int64)
    per_row = tl.cdiv(channels, BLOCK_N)
    g += head * g_h
    x += head * x_h
    t = tl.arange(0, BLOCK_L)
    total = tl.zeros((BLOCK_L, BLOCK_L), tl.float32)
    first_unit = split * share
    if PACKED:
        last_unit = tl.minimum(first_unit + share, documents)
        for document in range(first_unit, last_unit):
            start = tl.load(starts + document).to(tl.int64)
            length = tl.load(lengths + document).to(tl.int32)
            row = start // time
            first = start % time
            blocks = tl.maximum(tl.cdiv(length, BLOCK_L) - diagonal, 0)
            for step in range(0, blocks * per_row):
                channel = step % per_row * BLOCK_N + tl.arange(0, BLOCK_N)
                total = _correlate(
                    g + row * g_b + first * g_t + channel.to(tl.int64) * g_c,
                    x + row * x_b + first * x_t + channel.to(tl.int64) * x_c,
                    g_t,
                    x_t,
                    (step // per_row + diagonal) * BLOCK_L + t,
                    step // per_row * BLOCK_L + t,
                    length,
                    channel < channels,
                    total,
                    PRECISION,
                )
    else:
        tiles = tl.cdiv(batch * channels, BLOCK_N) if FLAT else batch * per_row
        count = tl.minimum(share, tiles - first_unit)
        blocks = tl.cdiv(time, BLOCK_L) - diagonal
        for step in range(0, blocks * count):
            tile = first_unit + step % count
            if FLAT:
                column = tile * BLOCK_N + tl.arange(0, BLOCK_N)
                row = (column // channels).to(tl.int64)
                channel = column % channels
                inside = column < batch * channels
            else:
                row = (tile // per_row).to(tl.int64)
                channel = tile % per_row * BLOCK_N + tl.arange(0, BLOCK_N)
                inside = channel < channels
            total = _correlate(
                g + row * g_b + channel.to(tl.int64) * g_c,
                x + row * x_b + channel.to(tl.int64) * x_c,
                g_t,
                x_t,
                (step // count + diagonal) * BLOCK_L + t,
                step // count * BLOCK_L + t,
                time,
                inside,
                total,
                PRECISION,
            )
    # rows are rotated until every diagonal stands in one column, with the one BLOCK_L above it
    rotated = tl.gather(total, (t[:, None] - t[None, :]) & (BLOCK_L - 1), axis=1)
    below = t[:, None] >= t[None, :]
    sums += ((split * tl.num_programs(2) + head) * tl.num_programs(0) + diagonal) * 2 * BLOCK_L
    tl.store(sums + t, tl.sum(tl.where(below, rotated, 0.0), 0))
    tl.store(sums + BLOCK_L + t, tl.sum(tl.where(below, 0.0, rotated), 0))


@triton.jit
@no_type_check
def _correlate(
    g_columns, x_columns, g_t, x_t, t, s, length, inside, total, PRECISION: tl.constexpr
):
    """Return `total + G X^T` for one tile of columns; t and s are positions of one sequence."""
    outer = tl.load(
        g_columns[None, :] + t.to(tl.int64)[:, None] * g_t,
        mask=(t < length)[:, None] & inside[None, :],
        other=0.0,
    )
    inner = tl.load(
        x_columns[None, :] + s.to(tl.int64)[:, None] * x_t,
        mask=(s < length)[:, None] & inside[None, :],
        other=0.0,
    )
    return dot(outer, tl.trans(inner), total, PRECISION)


@triton.jit
@no_type_check
def diagonals_kernel(
    sums,
    gradient,
    splits,
    heads,
    diagonals,
    taps,
    BLOCK_L: tl.constexpr,
):
    """Add the parts of the gradient of one block of lags; grid `(blocks of lags, heads)`.

    Lags beyond the last diagonal, of taps that no position reads, get zero.
    """
    diagonal = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    k = tl.arange(0, BLOCK_L)
    total = tl.zeros((BLOCK_L,), tl.float32)
    for split in range(0, splits):
        here = sums + ((split * heads + head) * diagonals + diagonal) * 2 * BLOCK_L + k
        total += tl.load(here, mask=k * 0 + diagonal < diagonals, other=0.0)
        # of the next block diagonal, the part above its main diagonal
        total += tl.load(here + 3 * BLOCK_L, mask=k * 0 + diagonal + 1 < diagonals, other=0.0)
    lag = diagonal * BLOCK_L + k
    tl.store(gradient + head * taps + lag, total.to(gradient.dtype.element_ty), mask=lag < taps)
