"""Facts about compiled kernels: they see tensor cores, spills and wrong arguments."""

import os

import pytest

triton = pytest.importorskip("triton", reason="Triton has no wheel for this platform")
tl = pytest.importorskip("triton.language")

from toeplix.ops.triton.inspection import TARGETS, inspect  # noqa: E402

pytestmark = pytest.mark.skipif(
    "TRITON_INTERPRET" in os.environ, reason="interpreted kernels are not compiled"
)


@triton.jit
def multiply(x, w, y, stride, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * stride + tl.arange(0, SIZE)
    tl.store(y + at, tl.dot(tl.load(w + at), tl.load(x + at), input_precision="ieee"))


SIGNATURE = {"x": "*bf16:16", "w": "*bf16:16", "y": "*fp32:16", "stride": "i32:16"}


@pytest.mark.parametrize("target", TARGETS)
def test_a_small_matrix_product(target):
    facts = inspect(multiply, SIGNATURE, {"SIZE": 32}, target)
    assert 0 < facts.registers <= 64
    assert facts.spill_bytes == 0
    assert 2 * 32 * 32 <= facts.shared_bytes <= TARGETS[target].max_shared_bytes
    assert facts.tensor_core_instructions > 0
    assert facts.threads == 4 * TARGETS[target].warp


def test_spills_are_found():
    """One warp cannot hold three tiles of 64 x 64 in 64 registers per thread."""
    facts = inspect(multiply, SIGNATURE, {"SIZE": 64}, "sm_80", num_warps=1, maxnreg=64)
    assert facts.registers <= 64
    assert facts.spill_bytes > 0


def test_float32_without_tf32_has_no_tensor_core():
    single = SIGNATURE | {"x": "*fp32:16", "w": "*fp32:16"}
    assert inspect(multiply, single, {"SIZE": 32}, "sm_80").tensor_core_instructions == 0


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"arguments of multiply are .*, and SIZE has none"):
        inspect(multiply, SIGNATURE, {}, "sm_80")
    with pytest.raises(ValueError, match="other has none, both, or does not exist"):
        inspect(multiply, SIGNATURE | {"other": "i32"}, {"SIZE": 32}, "sm_80")
    with pytest.raises(TypeError, match="unset TRITON_INTERPRET"):
        inspect(test_arguments_are_checked, SIGNATURE, {"SIZE": 32}, "sm_80")
