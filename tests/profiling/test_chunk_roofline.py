"""Roofline estimates of recurrent filters and lookup: by hand for one tile, and linear in the length."""

import pytest
import torch

from tests.profiling.test_roofline import Traffic
from toeplix import Model
from toeplix.ops import lookup_tiles
from toeplix.ops.flops import recurrent_flops
from toeplix.ops.lookup import toeplitz_lookup
from toeplix.profiling.chunk_roofline import (
    decode_step,
    lookup_kernels,
    lookup_products_path,
    lookup_tiles_path,
    recurrent_kernels,
)
from toeplix.profiling.plan import HARDWARE, plan
from toeplix.profiling.roofline import GPUS, Shape, kernels
from toeplix.training.run import Run


def by_name(found):
    assert len({each.name for each in found}) == len(found)
    return {each.name.removeprefix("triton "): each for each in found}


def test_one_chunk_by_hand():
    """64 positions of 64 channels in bfloat16 are one tile: 16 taps, 8 decays padded to 16."""
    found = by_name(recurrent_kernels(Shape(1, 64, 1, 64), 16, 8, "bfloat16", GPUS["h100"]))
    sequence, states = 2 * 64 * 64, 4 * 8 * 2 * 64  # a state before the chunk, and one after it
    assert found["chunk_sums"].flops == 2 * 16 * 64 * 64
    assert found["chunk_sums"].bytes == sequence + states
    assert found["chunk_scan"].bytes == 2 * states
    # taps of the chunk, taps that reach 15 positions before it (padded to 16), and states
    assert found["outputs"].flops == 2 * 64 * 64 * (64 + 16 + 16)
    assert found["outputs"].bytes == 2 * sequence + sequence / 4 + states
    assert found["tap_correlation"].flops == 2 * 64 * 64 * (64 + 16)
    assert found["state_correlation"].flops == 2 * 64 * (2 * 64 * 16 + 16**2)


def test_one_lookup_chunk_by_hand():
    """8 keys and 8 decays make chunks of 64, one block of it; 8 keys are padded to 16."""
    found = by_name(lookup_kernels(Shape(1, 64, 1, 64), 8, 8, "bfloat16", GPUS["h100"]))
    assert found["lookup_sums"].flops == 8 * 2 * 16 * 64 * 64
    states = 4 * 8 * 8 * 2 * 64
    assert found["lookup_sums"].bytes == 2 * 64 * (8 + 64) + states
    tiles, far = 2 * 64 * 64 * (16 + 64), 8 * 2 * 64 * 16 * 64
    assert found["lookup_outputs"].flops == tiles + far
    assert found["lookup_taps"].flops == 2 * 64 * 64 * (16 + 64)
    assert found["lookup_powers"].flops == far


def test_one_decode_step_by_hand():
    """Two rows of 4 heads of 32 channels: a program per head, 16 taps and 8 sums padded to 32 rows."""
    found = decode_step(Shape(2, 512, 4, 32), 16, 8, "bfloat16", GPUS["h100"])
    # all of the state is read, one input and the sums are written; x and y in half precision
    assert found.bytes == 2 * 4 * 32 * (4 * (16 + 8) + 4 * (1 + 8) + 2 + 2)
    assert found.flops == 4 * 4 * 32 * 64
    far = decode_step(Shape(2, 10**6, 4, 32), 16, 8, "bfloat16", GPUS["h100"])
    assert far.seconds == found.seconds


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("gpu", GPUS)
def test_every_kernel_has_an_occupancy(gpu, precision):
    shape = Shape(2, 512, 4, 128)
    found = recurrent_kernels(shape, 16, 8, precision, GPUS[gpu])
    found += lookup_kernels(shape, 8, 8, precision, GPUS[gpu])
    found.append(decode_step(shape, 16, 8, precision, GPUS[gpu]))
    assert all(0 < each.occupancy <= 1 for each in found)


@pytest.mark.parametrize("time", [512, 1000])
@pytest.mark.parametrize(
    ("path", "estimate"), [("tiles", lookup_tiles_path), ("products", lookup_products_path)]
)
def test_bytes_of_lookup_without_kernels_are_those_of_its_calls(path, estimate, time, monkeypatch):
    """The witness counts what the operators of a forward and backward pass read and write."""
    monkeypatch.setitem(lookup_tiles.PIECE_ELEMENTS, "cpu", lookup_tiles.PIECE_ELEMENTS["cuda"])
    shape, keys = Shape(8, time, 2, 64), 4
    q, k = (torch.randn(8, time, 2, keys, requires_grad=True) for _ in range(2))
    v, kernel = torch.randn(shape, requires_grad=True), torch.randn(2, time, requires_grad=True)
    with Traffic() as traffic:
        y = toeplitz_lookup(q, k, v, kernel, path=path)
        torch.autograd.grad(y, (q, k, v, kernel), torch.randn(shape))
    found = estimate(shape, keys, "float32", GPUS["h100"])
    assert found.bytes == pytest.approx(traffic.bytes, rel=0.15)


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_time_is_linear_in_the_length(precision):
    for gpu in GPUS.values():
        totals = []
        for time in (2**14, 2**15):
            shape = Shape(8, time, 4, 128)
            chunked = recurrent_kernels(shape, 16, 8, precision, gpu)
            chunked += lookup_kernels(shape, 8, 8, precision, gpu)
            product = kernels(shape, precision, gpu)
            totals.append([sum(each.seconds for each in part) for part in (chunked, product)])
        (near, squared), (far, later) = totals
        assert far / near == pytest.approx(2, rel=0.02)
        assert later / squared > 3.5


def test_tiles_compute_at_least_the_recurrence():
    shape = Shape(2, 1000, 3, 40)
    found = by_name(recurrent_kernels(shape, 16, 8, "float32", GPUS["a100"]))
    forward = sum(found[name].flops for name in ("chunk_sums", "chunk_scan", "outputs"))
    assert forward > recurrent_flops(1000, 2 * 3 * 40, 16, 8)


def test_the_plan_lists_the_kernels_of_the_default_model():
    run = Run(model=Model(depth=4), data="-", precision="bfloat16")
    names = [row["name"] for row in plan(run, HARDWARE["h100"], 1, None)["operator_estimates"]]
    assert {"triton outputs", "triton lookup_outputs", "fft (cuFFT)"} <= set(names)
    assert {"lookup, block rows (cuBLAS)", "lookup, products (cuFFT)"} <= set(names)
    assert "triton recurrent_step (a decode step)" in names
    free = Run(model=Model(depth=4, arch="toeplitz", filter="free"), data="-", precision="bfloat16")
    names = [row["name"] for row in plan(free, HARDWARE["h100"], 1, None)["operator_estimates"]]
    assert names[0] == "triton product"
