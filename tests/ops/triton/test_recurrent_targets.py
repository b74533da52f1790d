"""Kernels of recurrent filters and lookup compiled for GPUs that are not here: no spills, no overflow.

A selection, as compiling takes a second each. `pytest tests/ops/triton/every_target.py` compiles all
kernels in all dtypes and sizes, those of the default model among them.
"""

import os

import pytest

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

from tests.ops.triton.product_signatures import FACTS
from tests.ops.triton.recurrent_signatures import KERNELS, SCALAR, Case
from toeplix.ops.triton import (
    chunk_scan,
    lookup_kernels,
    product_kernels,
    recurrent_kernels,
    recurrent_step_kernel,
)
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
    ("sm_80", Case("lookup_outputs, reverse", "bf16", "tf32", "largest")),
    ("sm_80", Case("chunk_sums, reverse", "fp32", "ieee")),
    ("sm_90", Case("lookup_sums, reverse", "bf16", "tf32", "default model")),
    ("sm_80", Case("outputs", "bf16", "tf32", "one tap")),
    ("sm_90", Case("lookup_outputs, reverse (dk)", "fp32", "ieee", "default model")),
    ("gfx942", Case("recurrent_step, most", "fp32", "ieee")),
]


def check(target, case):
    facts = case.facts(target)
    assert facts.spill_bytes == 0
    assert facts.shared_bytes <= TARGETS[target].max_shared_bytes
    # NVIDIA has no tensor cores for IEEE float32
    ieee = (case.dtype, case.precision) == ("fp32", "ieee") and target != "gfx942"
    assert (facts.tensor_core_instructions == 0) == (ieee or case.kernel in SCALAR)


def kernels_of(*modules):
    return {name for module in modules for name in vars(module) if name.endswith("_kernel")}


def test_every_kernel_is_listed_in_every_direction():
    chunked = (recurrent_kernels, lookup_kernels, chunk_scan, recurrent_step_kernel)
    listed = {(kernel.__name__, constants.get("REVERSE")) for kernel, constants in KERNELS.values()}
    assert {name for name, _ in listed} == kernels_of(*chunked)
    for kernel, _ in KERNELS.values():
        if "REVERSE" in kernel.arg_names:
            assert {(kernel.__name__, False), (kernel.__name__, True)} <= listed
    assert {f"{name}_kernel" for name in FACTS} == kernels_of(product_kernels)


@pytest.mark.parametrize(("target", "case"), CASES, ids=str)
def test_compiled_kernels(target, case):
    check(target, case)


# float32 kernels of the roofline that are not compiled above are compiled by every_target.py
CHEAP = {2: None, 4: ("outputs", "chunk_scan", "recurrent_step")}


def known_facts(target, item, kernels):
    half = {"sm_80": ("fp16", "tf32"), "sm_90": ("bf16", "tf32")}[target]
    how = {2: half, 4: ("fp32", "ieee")}[item]
    return {kernel: Case(kernel, *how).facts(target) for kernel in kernels}


@pytest.mark.parametrize(("target", "item"), [("sm_80", 2), ("sm_90", 2), ("sm_90", 4)])
def test_the_roofline_knows_the_compiled_kernels(target, item):
    """Triton's cache has most of them since the tests above."""
    known = COMPILED_CHUNKED[target, item]
    known = {kernel: known[kernel] for kernel in CHEAP[item] or known}
    assert known_facts(target, item, known) == known
