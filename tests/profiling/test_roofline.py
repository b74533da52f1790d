"""Roofline estimates: counted work, occupancy by hand, and the lengths in the rule."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from toeplix.ops import dispatch, fft
from toeplix.ops.dispatch import AUTO, AUTO_EXACT
from toeplix.ops.triton.inspection import Facts
from toeplix.profiling import roofline
from toeplix.profiling.plan import HARDWARE
from toeplix.profiling.roofline import GPUS, Shape, crossover, estimates, kernels, occupancy


def test_the_rule_has_the_estimated_lengths():
    found = {
        kind: {AUTO: crossover(precision, "fft"), AUTO_EXACT: crossover(precision, "halving")}
        for kind, precision in (("cuda", "float32"), ("cuda-half", "bfloat16"))
    }
    assert found == dispatch.TRITON_LENGTHS


def test_our_kernels_are_estimated_faster_up_to_there_and_not_beyond():
    for gpu in GPUS.values():
        shape = Shape(32, dispatch.TRITON_LENGTHS["cuda-half"][AUTO], 4, 128)
        ours = sum(each.seconds for each in kernels(shape, "bfloat16", gpu))
        assert ours < roofline.fft_path(shape, "bfloat16", gpu).seconds
    far = Shape(1, 2**20, 4, 128)
    for name, gpu in GPUS.items():
        ours = sum(each.seconds for each in kernels(far, "bfloat16", gpu))
        assert ours > roofline.fft_path(far, "bfloat16", gpu).seconds, name


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "expected"),
    [
        (64, 0, 128, 0.5),  # 65536 / (64 * 128) = 8 programs of 4 warps
        (32, 0, 128, 1.0),  # 16 programs of 4 warps
        (65, 0, 128, 28 / 64),  # registers are given out by 256 to a warp: as 72
        (32, 65536, 128, 12 / 64),  # 228 KiB hold three programs of 65 KiB
        (255, 0, 256, 8 / 64),
    ],
)
def test_occupancy_by_hand(registers, shared, threads, expected):
    facts = Facts(
        registers=registers,
        spill_bytes=0,
        shared_bytes=shared,
        tensor_core_instructions=1,
        threads=threads,
    )
    assert occupancy(facts, GPUS["h100"]) == expected


@pytest.mark.parametrize("precision", roofline.ITEM_BYTES)
@pytest.mark.parametrize("channels", [1, 16, 40, 128, 512])
def test_tiles_hold_the_lower_triangle_and_little_else(channels, precision):
    shape = Shape(64, 4096, 2, channels)
    useful = 64 * 2 * channels * 4096 * 4097
    for each in kernels(shape, precision, GPUS["a100"]):
        padding = 1 if channels in (16, 128, 512) else 128 / 40
        assert useful < each.flops < 1.05 * padding * useful


def test_few_columns_take_as_long_as_a_tile():
    """One sequence of one channel: 31 of 32 columns are not used."""
    gpu = GPUS["h100"]
    alone, many = (kernels(Shape(b, 4096, 512, 1), "bfloat16", gpu)[0].seconds for b in (1, 32))
    assert alone == many


class Traffic(TorchDispatchMode):
    """Counts bytes that operators read and write; views are free."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.name()
        counted = ("mul", "bmm", "add", "fft", "conj_physical", "sum", "clone")
        if "copy_" in name:  # what is overwritten is not read
            self.bytes += args[0].nbytes + args[1].nbytes
        elif any(part in name for part in counted):
            tensors = [part for part in (*args, result) if isinstance(part, torch.Tensor)]
            self.bytes += sum(part.nbytes for part in tensors)
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("time", [512, 1000])
def test_bytes_of_the_fft_path_are_those_of_its_calls(time, dtype):
    """The witness counts what the operators of `fft.py` read and write."""
    x, g = torch.randn(4, time, 2, 64).to(dtype), torch.randn(4, time, 2, 64).to(dtype)
    kernel = torch.randn(2, time)
    with Traffic() as traffic:
        fft.product(x, kernel)
        fft.gradient(g, x, kernel, True, True)
    precision = str(dtype).removeprefix("torch.")
    estimated = roofline.fft_path(Shape(*x.shape), precision, GPUS["h100"]).bytes
    assert estimated == pytest.approx(traffic.bytes, rel=0.15)


def test_hardware_and_roofline_agree():
    for name, gpu in GPUS.items():
        assert HARDWARE[name].peak == gpu.peak
        names = [each.name for each in estimates(Shape(1, 64, 1, 64), "float32", gpu)]
        assert names[:1] == ["triton product"]
        assert len(set(names)) == len(names) == 6
