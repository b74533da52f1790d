"""Roofline estimates of the operator on GPUs: FLOPs, bytes, occupancy and time. Nothing is measured.

The time of a call is that of its slowest resource: arithmetic, memory, or the load units that gather
tiles of the Toeplitz matrix from the filter. Peaks are those that NVIDIA publishes; the fractions of them
that are reached are assumed. Registers and shared memory are what the compiler reports for the kernels
(`toeplix.ops.triton.inspection`). The other paths are counted as the calls that they make: every
conversion, copy, transform and matmul reads its inputs from memory and writes its result.

The lengths up to which the rule of `toeplix.ops.dispatch` selects the kernels on CUDA are `crossover`'s.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from toeplix.ops import blocked, fft, halving
from toeplix.ops.triton.inspection import Facts
from toeplix.ops.triton.product import (
    CORRELATION_PROGRAMS,
    CORRELATION_TILES,
    MAX_FLAT_CHANNELS,
    PRODUCT_TILES,
)

# Assumed fractions of the peaks, for our kernels and for the libraries alike.
ATTAINED_COMPUTE, ATTAINED_BANDWIDTH = 0.35, 0.8
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LARGEST_ONE_PASS_TRANSFORM = 4096  # complex numbers of one transform that fit into shared memory


@dataclass(frozen=True, kw_only=True)
class GPU:
    """Published figures of one device; the limits are per multiprocessor."""

    target: str  # of toeplix.ops.triton.inspection
    peak: dict[str, float]  # FLOP/s, without sparsity
    bandwidth: float  # bytes/s of device memory
    processors: int
    clock: float  # Hz
    load_units: int = 32
    registers: int = 65536
    shared_bytes: int
    max_warps: int = 64
    max_programs: int = 32


# NVIDIA H100 Tensor Core GPU Architecture (2022) and its data sheet: SXM5, HBM3. NVIDIA A100 Tensor Core
# GPU Architecture (2020) and its data sheet: SXM4, 80 GB. Limits: CUDA C++ Programming Guide, table of
# technical specifications per compute capability (9.0 and 8.0).
GPUS: dict[str, GPU] = {
    "h100": GPU(
        target="sm_90",
        peak={"float32": 67e12, "bfloat16": 989e12, "float16": 989e12},
        bandwidth=3.35e12,
        processors=132,
        clock=1.83e9,
        shared_bytes=228 * 1024,
    ),
    "a100": GPU(
        target="sm_80",
        peak={"float32": 19.5e12, "bfloat16": 312e12, "float16": 312e12},
        bandwidth=2.039e12,
        processors=108,
        clock=1.41e9,
        shared_bytes=164 * 1024,
    ),
}


def compiled_facts(registers: int, shared_bytes: int, instructions: int, threads: int) -> Facts:
    """Return the facts about a kernel that spills nothing."""
    return Facts(
        registers=registers,
        spill_bytes=0,
        shared_bytes=shared_bytes,
        tensor_core_instructions=instructions,
        threads=threads,
    )


# As compiled by Triton 3.9 for many columns and aligned sequences; a test compiles them again.
COMPILED: dict[tuple[str, int], tuple[Facts, Facts]] = {  # by target and bytes of a number
    ("sm_90", 2): (compiled_facts(205, 65536, 4, 256), compiled_facts(70, 49152, 4, 128)),
    ("sm_90", 4): (compiled_facts(128, 16384, 0, 128), compiled_facts(128, 16384, 0, 128)),
    ("sm_80", 2): (compiled_facts(171, 49152, 64, 256), compiled_facts(96, 32768, 32, 128)),
    ("sm_80", 4): (compiled_facts(241, 16384, 0, 128), compiled_facts(166, 16384, 0, 128)),
}


class Shape(NamedTuple):
    """The operator's: `(b, t, h, c)`."""

    batch: int
    time: int
    heads: int
    channels: int

    @property
    def numbers(self) -> int:
        return math.prod(self)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One call, or the calls of one path."""

    name: str
    flops: float
    bytes: float  # of device memory
    seconds: float
    occupancy: float | None = (
        None  # resident warps by the most that there can be; None: a library's
    )


def estimates(shape: Shape, precision: str, gpu: GPU) -> list[Estimate]:
    """Return forward and backward pass of one product: our kernels, then the paths without them."""
    return [
        *kernels(shape, precision, gpu),
        *(path(shape, precision, gpu) for path in LIBRARY_PATHS.values()),
    ]


def occupancy(facts: Facts, gpu: GPU) -> float:
    """Return resident warps by the most that there can be, from registers and shared memory."""
    warps = -(-facts.threads // 32)
    # registers are given out to warps in units of 256, and a program has 1 KiB of shared memory more
    by_registers = gpu.registers // (warps * -(-32 * facts.registers // 256) * 256)
    by_shared = gpu.shared_bytes // (facts.shared_bytes + 1024)
    programs = min(by_registers, by_shared, gpu.max_warps // warps, gpu.max_programs)
    return programs * warps / gpu.max_warps


def kernels(shape: Shape, precision: str, gpu: GPU) -> list[Estimate]:
    """Return the three kernels of a forward and backward pass."""
    item = ITEM_BYTES[precision]
    moved = 2 * shape.numbers * item + shape.heads * shape.time * item
    product, correlation = COMPILED[gpu.target, item]
    return [
        _kernel("triton product", *_product_work(shape, item), moved, product, precision, gpu),
        _kernel("triton transpose", *_product_work(shape, item), moved, product, precision, gpu),
        _kernel(
            "triton filter gradient",
            *_correlation_work(shape, item),
            _correlation_bytes(shape, item),
            correlation,
            precision,
            gpu,
        ),
    ]


def _kernel(
    name: str,
    flops: float,
    gathers: float,
    programs: int,
    moved: float,
    facts: Facts,
    precision: str,
    gpu: GPU,
) -> Estimate:
    busy = min(1.0, programs / gpu.processors)
    gather_rate = gpu.load_units * gpu.processors * gpu.clock
    seconds = max(
        flops / (gpu.peak[precision] * ATTAINED_COMPUTE * busy),
        gathers / (gather_rate * ATTAINED_COMPUTE * busy),
        moved / (gpu.bandwidth * ATTAINED_BANDWIDTH),
    )
    return Estimate(
        name=name, flops=flops, bytes=moved, seconds=seconds, occupancy=occupancy(facts, gpu)
    )


def _product_work(shape: Shape, item: int) -> tuple[float, float, int]:
    """Return FLOPs, gathered taps and programs of one product, masked parts of tiles included."""
    flat = shape.channels <= MAX_FLAT_CHANNELS
    columns = shape.batch * shape.channels if flat else shape.channels
    wide, narrow = PRODUCT_TILES[item]
    tile = narrow if 2 * columns <= wide.block_n else wide
    tiles = -(-columns // tile.block_n) * (1 if flat else shape.batch) * shape.heads
    blocks = -(-shape.time // tile.block_t)
    inputs = -(-shape.time // tile.block_s)
    steps = sum(
        min(inputs, -(-(block + 1) * tile.block_t // tile.block_s)) for block in range(blocks)
    )
    gathers = tiles * steps * tile.block_t * tile.block_s
    return 2.0 * gathers * tile.block_n, gathers, tiles * blocks


def _correlation_work(shape: Shape, item: int) -> tuple[float, float, int]:
    tile = CORRELATION_TILES[item]
    blocks = -(-shape.time // tile.block_l)
    units = _correlation_units(shape, item)
    steps = shape.heads * units * blocks * (blocks + 1) // 2
    programs = shape.heads * blocks * _splits(shape, item)
    return 2.0 * steps * tile.block_l**2 * tile.block_n, 0, programs


def _correlation_units(shape: Shape, item: int) -> int:
    block_n = CORRELATION_TILES[item].block_n
    if shape.channels <= MAX_FLAT_CHANNELS:
        return -(-shape.batch * shape.channels // block_n)
    return shape.batch * -(-shape.channels // block_n)


def _splits(shape: Shape, item: int) -> int:
    blocks = -(-shape.time // CORRELATION_TILES[item].block_l)
    units = _correlation_units(shape, item)
    share = max(1, units // max(1, CORRELATION_PROGRAMS // (shape.heads * blocks)))
    return -(-units // share)


def _correlation_bytes(shape: Shape, item: int) -> float:
    """Sequences are read once, and the parts of the gradient are written and read."""
    block = CORRELATION_TILES[item].block_l
    parts = _splits(shape, item) * shape.heads * -(-shape.time // block) * 2 * block
    return 2 * shape.numbers * item + 8 * parts + 4 * shape.heads * shape.time


def library_estimate(name: str, flops: float, moved: float, gpu: GPU) -> Estimate:
    """Return the calls of one path; libraries compute in float32, as the paths that call them do."""
    seconds = max(
        flops / (gpu.peak["float32"] * ATTAINED_COMPUTE),
        moved / (gpu.bandwidth * ATTAINED_BANDWIDTH),
    )
    return Estimate(name=name, flops=flops, bytes=moved, seconds=seconds)


def conversion_bytes(item: int) -> int:
    """Return the bytes per number of a conversion to or from float32."""
    return 0 if item == 4 else item + 4


def blocked_path(shape: Shape, precision: str, gpu: GPU) -> Estimate:
    """Return `blocked.py`: cuBLAS matmuls of block rows, each with the positions before it."""
    flops, moved = _blocked_product(shape, ITEM_BYTES[precision])
    return library_estimate("blocked (cuBLAS)", 3 * flops, 3 * moved, gpu)


def _blocked_product(shape: Shape, item: int) -> tuple[float, float]:
    """Of the three products of a pass, all alike: the correlation reads what the others write."""
    rows = blocked.block_rows(shape.time, blocked.tile_size(shape.time))
    columns = shape.batch * shape.heads * shape.channels
    flops = 2.0 * columns * sum((last - first) * last for first, last in rows)
    reads = 4 * columns * sum(last for _, last in rows)
    # converted, stacked by heads; the result is written, unstacked and converted
    copies = shape.numbers * (2 * conversion_bytes(item) + 8 + 4 + 8)
    return flops, reads + copies


def fft_path(shape: Shape, precision: str, gpu: GPU) -> Estimate:
    """Return `fft.py`: cuFFT transforms of twice the length, with the copies around them."""
    flops, per_product, per_correlation = transform_work(shape, ITEM_BYTES[precision])
    return library_estimate("fft (cuFFT)", 5 * flops / 2, 2 * per_product + per_correlation, gpu)


def halving_path(shape: Shape, precision: str, gpu: GPU) -> Estimate:
    """Return `halving.py`: tiles on the diagonal and transforms of half of the positions per level."""
    leaf = shape._replace(time=min(shape.time, halving.LEAF))
    leaves = -(-shape.time // leaf.time)
    flops, moved = (leaves * part for part in _blocked_product(leaf, 4))
    levels = max(0, math.ceil(math.log2(shape.time / leaf.time)))
    transforms, per_product, _ = transform_work(shape, 4)
    flops += levels * transforms / 2
    moved += levels * (per_product / 2 + 12 * shape.numbers / 2)
    conversions = 2 * conversion_bytes(ITEM_BYTES[precision]) * shape.numbers
    _, _, per_correlation = transform_work(shape, ITEM_BYTES[precision])
    flips = 16 * shape.numbers
    return library_estimate(
        "halving (cuFFT, cuBLAS)",
        2 * flops + 1.5 * transforms,
        2 * (moved + conversions) + flips + per_correlation,
        gpu,
    )


def transform_work(shape: Shape, item: int) -> tuple[float, float, float]:
    """Return FLOPs of a product's two transforms, bytes of a product, and bytes of a correlation.

    A correlation shares the transform of g with the product of the same backward pass.
    """
    length = fft.good_length(2 * shape.time - 1)
    padded = shape.numbers * length / shape.time  # numbers of a padded chunk, two per complex one
    passes = 1 if length <= LARGEST_ONE_PASS_TRANSFORM else 2
    transform = 8 * padded * passes
    load = shape.numbers * (item + 4 + 8)
    store = shape.numbers * (8 + (8 if item == 4 else 8 + 4 + item))
    flops = 2 * 5.0 * (padded / 2) * math.log2(length)
    product = load + transform + 8 * padded + transform + store
    # transform of x, conjugate, product with the other spectrum, sum
    correlation = load + transform + (8 + 12 + 4) * padded
    return flops, product, correlation


LIBRARY_PATHS: dict[str, Callable[[Shape, str, GPU], Estimate]] = {
    "blocked": blocked_path,
    "fft": fft_path,
    "halving": halving_path,
}


def crossover(precision: str, alternative: str) -> int:
    """Return the longest power of two at which our kernels are faster on every GPU of `GPUS`.

    The sequences are those of the paper's models: 4 heads of 128 channels, in batches of 32.
    """
    time = 32

    def faster(time: int, gpu: GPU) -> bool:
        shape = Shape(32, time, 4, 128)
        ours = sum(each.seconds for each in kernels(shape, precision, gpu))
        return ours < LIBRARY_PATHS[alternative](shape, precision, gpu).seconds

    while all(faster(2 * time, gpu) for gpu in GPUS.values()):
        time *= 2
    return time
