"""Roofline estimates of the kernels that work in chunks, of recurrent filters and lookup: not measured.

Each kernel is counted as ops/triton/recurrent_kernels.py and lookup_kernels.py compute it, padding of
tiles included. Device memory is counted once for every tensor that a kernel reads or writes: programs
that read the same tile run side by side, and the L2 cache is assumed to serve all but the first. Products
with states are TF32 for sequences in half precision, at half the rate of bfloat16.

The occupancy is that of kernels compiled for 16 free taps and 8 decays, and for 64 channels of keys and
of values (`COMPILED_CHUNKED`). Beside lookup stand the paths that would compute it without these kernels
(lookup_tiles.py over cuBLAS, and Toeplitz products over cuFFT), counted call by call as in roofline.py.
"""

from typing import NamedTuple

from toeplix.ops import blocked, lookup_tiles
from toeplix.ops.triton import lookup, recurrent, recurrent_step
from toeplix.ops.triton.inspection import Facts
from toeplix.ops.triton.recurrent import padded
from toeplix.profiling.roofline import (
    ATTAINED_BANDWIDTH,
    ATTAINED_COMPUTE,
    GPU,
    ITEM_BYTES,
    Estimate,
    Shape,
    compiled_facts,
    conversion_bytes,
    library_estimate,
    occupancy,
    transform_work,
)

STATE_BYTES = 4  # of a number of a state, in every precision


class Work(NamedTuple):
    """What all programs of one kernel do together."""

    flops: float  # products of sequences, in their dtype
    state_flops: float  # products with states
    moved: float  # bytes of device memory
    programs: int
    gathers: float = 0.0  # taps that are gathered to tiles of a Toeplitz matrix
    scalar_flops: float = 0.0  # in float32, without tensor cores


def recurrent_kernels(
    shape: Shape, short: int, rank: int, precision: str, gpu: GPU
) -> list[Estimate]:
    """Return the kernels of one product with recurrent filters, forward and backward."""
    work = _recurrent(shape, short, rank, ITEM_BYTES[precision])
    return [_estimate(name, each, precision, gpu) for name, each in work.items()]


def decode_step(shape: Shape, short: int, rank: int, precision: str, gpu: GPU) -> Estimate:
    """Return the kernel of one decode step with recurrent filters: one token of each of b rows.

    It reads the state of every channel, of short + r numbers, and writes one input and r sums.
    """
    columns = shape.batch * shape.channels
    rows = 1 << (short + rank - 1).bit_length()
    width = recurrent_step.columns_of(rows)
    programs = -(-columns // width) * shape.heads
    numbers = columns * shape.heads
    work = Work(
        flops=0,
        state_flops=0,
        moved=numbers * (STATE_BYTES * (short + 2 * rank + 1) + 2 * ITEM_BYTES[precision]),
        programs=programs,
        scalar_flops=4.0 * programs * rows * width,
    )
    return _estimate("recurrent_step (a decode step)", work, precision, gpu)


def lookup_kernels(shape: Shape, keys: int, rank: int, precision: str, gpu: GPU) -> list[Estimate]:
    """Return the kernels of one lookup with recurrent filters, forward and backward.

    `shape` is that of the values, `(b, t, h, c)`; queries and keys have `keys` channels.
    """
    work = _lookup(shape, keys, rank, ITEM_BYTES[precision])
    return [_estimate(name, each, precision, gpu) for name, each in work.items()]


def lookup_tiles_path(shape: Shape, keys: int, precision: str, gpu: GPU) -> Estimate:
    """Return `lookup_tiles.py`: cuBLAS products of block rows, whose scores go through memory."""
    rows = blocked.block_rows(shape.time, min(lookup_tiles.TILE, shape.time))
    matrices, channels = shape.batch * shape.heads, shape.channels
    pairs = matrices * sum((last - first) * last for first, last in rows)
    seen = matrices * sum(last for _, last in rows)  # keys and values that block rows read
    # forward: scores are written, weighed in place, and read. Backward: scores and slopes are written,
    # multiplied, added over the batch, weighed, and read by three products
    scores = 4 * pairs * ((1 + 2 + 1) + (2 + 3 + 1 + 2 + 1 + 2 + 2))
    # keys and values are read by two products forward and by three backward; their gradients are
    # written by a product, and added to what earlier block rows gave
    read = 4 * seen * ((2 + 4) * (keys + channels) + keys)
    queries = 4 * matrices * shape.time * (5 * keys + 4 * channels)  # and outputs, and gradients
    # q, k and v are copied twice, g and y once, and the gradients of q, k and v back
    copies = (ITEM_BYTES[precision] + 4) * matrices * shape.time * (6 * keys + 5 * channels)
    return library_estimate(
        "lookup, block rows (cuBLAS)",
        2.0 * pairs * (4 * keys + 3 * channels),
        scores + read + queries + copies,
        gpu,
    )


def lookup_products_path(shape: Shape, keys: int, precision: str, gpu: GPU) -> Estimate:
    """Return a Toeplitz product over cuFFT for every channel of the keys, twice: backward repeats it."""
    flops, per_product, per_correlation = transform_work(shape, 4)
    # forward: k_i v, q_i y, and the sum. Backward: the first two again; q_i g, y g and its sum; with the
    # gradient of k_i v, its products with k_i and v and the sum of the latter; the sum for v
    elementwise = 4 * shape.numbers * ((2 + 2 + 3) + (2 + 2) + (2 + 3 + 1) + (2 + 3 + 1) + 3)
    moved = 3 * per_product + per_correlation + elementwise
    conversions = 4 * conversion_bytes(ITEM_BYTES[precision]) * shape.numbers
    return library_estimate(
        "lookup, products (cuFFT)", keys * 3.5 * flops, keys * moved + conversions, gpu
    )


def _recurrent(shape: Shape, short: int, rank: int, item: int) -> dict[str, Work]:
    tile = recurrent.TILES[item]
    chunks = -(-shape.time // tile.chunk)
    columns = -(-shape.batch * shape.channels // tile.columns)
    tiles = chunks * columns * shape.heads
    reach = max(0, short - 1)
    past, ranked = padded(reach) if reach else 0, padded(rank)
    area = tile.chunk * tile.columns
    sequence = item * shape.numbers
    states = STATE_BYTES * rank * (chunks + 1) * shape.numbers / shape.time
    sums = Work(0, 2.0 * tiles * ranked * area, sequence + states, tiles)
    scan = _scan(states)
    outputs = Work(
        flops=2.0 * tiles * area * (tile.chunk + past),
        state_flops=2.0 * tiles * area * ranked,
        # the positions before a chunk are read again
        moved=2 * sequence + sequence * past / tile.chunk + states,
        programs=tiles,
        gathers=tiles * tile.chunk * (tile.chunk + past),
    )
    programs = min(chunks * columns, max(1, recurrent.CORRELATION_PROGRAMS // shape.heads))
    matrices = programs * shape.heads * (rank + tile.chunk) * (rank + reach + tile.chunk)
    # zeros are written, both kernels write their parts, and a sum reads all
    partial = 3 * 4 * matrices
    taps = Work(
        2.0 * tiles * area * (tile.chunk + past), 0, 2 * sequence + partial, programs * shape.heads
    )
    correlated = Work(
        flops=0,
        state_flops=2.0 * tiles * tile.columns * (2 * tile.chunk * ranked + ranked**2),
        moved=2 * sequence + 2 * states,
        programs=programs * shape.heads,
    )
    return {
        "chunk_sums": sums,
        "chunk_scan": scan,
        "outputs": outputs,
        "chunk_sums, reverse": sums,
        "chunk_scan, reverse": scan,
        "outputs, reverse": outputs,
        "tap_correlation": taps,
        "state_correlation": correlated,
    }


def _lookup(shape: Shape, keys: int, rank: int, item: int) -> dict[str, Work]:
    half = item == 2 and max(keys, shape.channels) <= 64
    tile = lookup.LARGE_TILE if half else lookup.SMALL_TILE
    size = lookup.chunk_length(keys, rank)
    chunks = -(-shape.time // size)
    rows = shape.batch * shape.heads
    values = item * shape.numbers
    queries = values * keys / shape.channels
    states = STATE_BYTES * rank * keys * (chunks + 1) * shape.numbers / shape.time

    def sums(narrow: int, wide: int) -> Work:
        """`wide` channels are divided among programs, each of which holds all `narrow` ones."""
        width = min(tile.values, padded(wide))
        programs = chunks * -(-wide // width) * rank * rows
        return Work(
            2.0 * programs * padded(narrow) * width * size, 0, queries + values + states, programs
        )

    def outputs(narrow: int, wide: int, moved: float) -> Work:
        width = min(tile.values, padded(wide))
        programs = -(-shape.time // tile.block) * -(-wide // width) * rows
        blocks = (size / tile.block + 1) / 2  # of the chunk that a block sees, on average
        scores = 2.0 * tile.block**2 * (padded(narrow) + width) * blocks
        far = 2.0 * tile.block * padded(narrow) * width * rank
        return Work(programs * scores, programs * far, moved + states, programs)

    blocks = size // tile.block
    pairs = rows * chunks * blocks * (blocks + 1) / 2
    distances = max(1, lookup.CORRELATION_PROGRAMS // (shape.heads * rank)) * blocks * shape.heads
    taps = Work(
        2.0 * pairs * tile.block**2 * (padded(keys) + padded(shape.channels)),
        0,
        2 * (queries + values) + 2 * 4 * distances * tile.block**2,
        distances,
    )
    powers = Work(
        0,
        2.0 * rows * chunks * rank * size * padded(keys) * padded(shape.channels),
        queries + values + states,
        distances * rank,
    )
    both = 2 * queries + 2 * values
    return {
        "lookup_sums": sums(keys, shape.channels),
        "chunk_scan": _scan(states),
        "lookup_outputs": outputs(keys, shape.channels, both),
        "lookup_sums, reverse": sums(keys, shape.channels),
        "chunk_scan, reverse": _scan(states),
        "lookup_outputs (dq)": outputs(shape.channels, keys, both),
        "lookup_outputs, reverse (dk)": outputs(shape.channels, keys, both),
        "lookup_outputs, reverse (dv)": outputs(keys, shape.channels, both),
        "lookup_taps": taps,
        "lookup_powers": powers,
    }


def _scan(states: float) -> Work:
    """Every state is read and written once, with a multiply-add."""
    return Work(0, 0, 2 * states, 10**6, scalar_flops=states / 2)


def _estimate(name: str, work: Work, precision: str, gpu: GPU) -> Estimate:
    busy = min(1.0, work.programs / gpu.processors)
    # tensor cores compute TF32 at half the rate of bfloat16; float32 is IEEE throughout
    state_peak = gpu.peak[precision] / (1 if precision == "float32" else 2)
    arithmetic = work.flops / gpu.peak[precision] + work.state_flops / state_peak
    arithmetic += work.scalar_flops / gpu.peak["float32"]
    gather_rate = gpu.load_units * gpu.processors * gpu.clock
    seconds = max(
        arithmetic / (ATTAINED_COMPUTE * busy),
        work.gathers / (gather_rate * ATTAINED_COMPUTE * busy),
        work.moved / (gpu.bandwidth * ATTAINED_BANDWIDTH),
    )
    facts = COMPILED_CHUNKED[gpu.target, ITEM_BYTES[precision]][compiled_name(name)]
    return Estimate(
        name=f"triton {name}",
        flops=work.flops + work.state_flops + work.scalar_flops,
        bytes=work.moved,
        seconds=seconds,
        occupancy=occupancy(facts, gpu),
    )


def compiled_name(name: str) -> str:
    """Return the kernel whose facts an estimate uses: directions do not differ much."""
    return name.partition(" (")[0].partition(",")[0]


# As compiled by Triton 3.9: half precision is bfloat16 for sm_90 and float16 for sm_80, and float32 is
# multiplied exactly. Tests compile them again.
COMPILED_CHUNKED: dict[tuple[str, int], dict[str, Facts]] = {  # by target and bytes of a number
    ("sm_90", 2): {
        "chunk_sums": compiled_facts(57, 8192, 16, 128),
        "chunk_scan": compiled_facts(32, 0, 0, 128),
        "outputs": compiled_facts(123, 24576, 7, 128),
        "tap_correlation": compiled_facts(72, 36864, 8, 128),
        "state_correlation": compiled_facts(112, 24576, 24, 128),
        "recurrent_step": compiled_facts(62, 1024, 0, 128),
        "lookup_sums": compiled_facts(103, 24832, 4, 128),
        "lookup_outputs": compiled_facts(168, 57344, 16, 128),
        "lookup_taps": compiled_facts(127, 65536, 8, 128),
        "lookup_powers": compiled_facts(168, 57344, 8, 128),
    },
    ("sm_90", 4): {
        "chunk_sums": compiled_facts(32, 6144, 0, 128),
        "chunk_scan": compiled_facts(32, 0, 0, 128),
        "outputs": compiled_facts(183, 8192, 0, 128),
        "tap_correlation": compiled_facts(70, 10240, 0, 128),
        "state_correlation": compiled_facts(56, 12288, 0, 128),
        "recurrent_step": compiled_facts(63, 1024, 0, 128),
        "lookup_sums": compiled_facts(64, 20608, 0, 128),
        "lookup_outputs": compiled_facts(78, 28672, 0, 128),
        "lookup_taps": compiled_facts(77, 32768, 0, 128),
        "lookup_powers": compiled_facts(72, 16384, 0, 128),
    },
    ("sm_80", 2): {
        "chunk_sums": compiled_facts(66, 8192, 16, 128),
        "chunk_scan": compiled_facts(32, 0, 0, 128),
        "outputs": compiled_facts(128, 24576, 56, 128),
        "tap_correlation": compiled_facts(96, 18432, 40, 128),
        "state_correlation": compiled_facts(165, 24576, 48, 128),
        "recurrent_step": compiled_facts(64, 1024, 0, 128),
        "lookup_sums": compiled_facts(166, 24832, 64, 128),
        "lookup_outputs": compiled_facts(164, 40960, 160, 128),
        "lookup_taps": compiled_facts(188, 32768, 64, 128),
        "lookup_powers": compiled_facts(168, 49152, 64, 128),
    },
    ("sm_80", 4): {
        "chunk_sums": compiled_facts(32, 6144, 0, 128),
        "chunk_scan": compiled_facts(32, 0, 0, 128),
        "outputs": compiled_facts(161, 8192, 0, 128),
        "tap_correlation": compiled_facts(64, 10240, 0, 128),
        "state_correlation": compiled_facts(58, 12288, 0, 128),
        "recurrent_step": compiled_facts(64, 1024, 0, 128),
        "lookup_sums": compiled_facts(62, 20608, 0, 128),
        "lookup_outputs": compiled_facts(89, 28672, 0, 128),
        "lookup_taps": compiled_facts(65, 32768, 0, 128),
        "lookup_powers": compiled_facts(80, 16384, 0, 128),
    },
}
