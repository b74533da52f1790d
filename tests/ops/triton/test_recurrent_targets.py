"""Kernels of recurrent filters and lookup compiled for GPUs that are not here: no spills, no overflow.

A selection, as compiling takes a second each. `pytest tests/ops/triton/every_target.py` compiles all
kernels in all dtypes, for usual sizes and for the largest ones.
"""

import os

import pytest

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

from tests.ops.triton.recurrent_signatures import SCALAR, Case
from toeplix.ops.triton.inspection import TARGETS
from toeplix.profiling.chunk_roofline import COMPILED_CHUNKED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "TRITON_INTERPRET" in os.environ, reason="interpreted kernels are not compiled"
    ),
]

FORWARD = ("chunk_sums", "outputs", "tap_correlation", "state_correlation")
LOOKUP = ("lookup_sums", "lookup_outputs", "lookup_taps", "lookup_powers")
CASES = [
    (target, Case(kernel, *how))
    for target, how in (
        ("sm_80", ("fp16", "tf32")),
        ("sm_90", ("bf16", "tf32")),
        ("gfx942", ("fp32", "ieee")),
    )
    for kernel in (*FORWARD, *LOOKUP, "recurrent_step")
] + [
    ("sm_90", Case("outputs", "fp32", "ieee")),
    ("sm_90", Case("outputs, reverse", "fp32", "tf32")),
    ("sm_90", Case("chunk_scan", "fp32", "ieee")),
    ("sm_80", Case("lookup_outputs, reverse", "bf16", "tf32", largest=True)),
]


def check(target, case):
    facts = case.facts(target)
    assert facts.spill_bytes == 0
    assert facts.shared_bytes <= TARGETS[target].max_shared_bytes
    # NVIDIA has no tensor cores for IEEE float32
    ieee = (case.dtype, case.precision) == ("fp32", "ieee") and target != "gfx942"
    assert (facts.tensor_core_instructions == 0) == (ieee or case.kernel in SCALAR)


@pytest.mark.parametrize(("target", "case"), CASES, ids=str)
def test_compiled_kernels(target, case):
    check(target, case)


@pytest.mark.parametrize(("target", "dtype"), [("sm_80", "fp16"), ("sm_90", "bf16")])
def test_the_roofline_knows_the_compiled_kernels(target, dtype):
    """Triton's cache has them since the tests above."""
    known = COMPILED_CHUNKED[target, 2]
    assert {kernel: Case(kernel, dtype, "tf32").facts(target) for kernel in known} == known
