"""The kernels compiled for GPUs that are not here: no spills, tensor cores, shared memory that fits."""

import os

import pytest

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

from tests.ops.triton.product_signatures import Case
from toeplix.ops.triton.inspection import TARGETS
from toeplix.profiling.roofline import COMPILED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "TRITON_INTERPRET" in os.environ, reason="interpreted kernels are not compiled"
    ),
]

ARITHMETIC = [("bf16", "ieee"), ("fp16", "ieee"), ("fp32", "ieee"), ("fp32", "tf32")]
CASES = [
    case
    for dtype, precision in ARITHMETIC
    for case in (
        Case("product", dtype, precision),
        Case("product", dtype, precision, tile=1),
        Case("correlation", dtype, precision),
    )
] + [
    Case("product", "bf16", aligned=False),
    Case("product", "bf16", tile=1, layout="flat", aligned=False),
    Case("product", "bf16", layout="packed"),
    Case("correlation", "bf16", layout="flat", aligned=False),
    Case("correlation", "bf16", layout="packed"),
    Case("diagonals", "bf16"),
    Case("diagonals", "fp32", aligned=False),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_compiled_kernels(case, target):
    if (case.precision, target) == ("tf32", "gfx942"):
        pytest.skip(
            "AMD devices have matrix instructions for float32, and no TF32 is asked of them"
        )
    facts = case.facts(target)
    assert facts.spill_bytes == 0
    assert facts.shared_bytes <= TARGETS[target].max_shared_bytes
    # NVIDIA has no tensor cores for IEEE float32
    ieee = (case.dtype, case.precision) == ("fp32", "ieee") and target != "gfx942"
    assert (facts.tensor_core_instructions == 0) == (ieee or case.kernel == "diagonals")


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("dtype", "item"), [("bf16", 2), ("fp16", 2), ("fp32", 4)])
def test_the_roofline_knows_the_compiled_kernels(dtype, item, target):
    """Triton's cache has them since the tests above."""
    found = tuple(Case(kernel, dtype).facts(target) for kernel in ("product", "correlation"))
    assert found == COMPILED[target, item]
