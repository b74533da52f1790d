"""All kernels of recurrent filters and lookup, in all dtypes and sizes, compiled for every target.

Not collected by itself: `pytest tests/ops/triton/every_target.py`, a quarter of an hour.
"""

import pytest

from tests.ops.triton.recurrent_signatures import every_case
from tests.ops.triton.test_recurrent_targets import check, known_facts
from toeplix.ops.triton.inspection import TARGETS
from toeplix.profiling.chunk_roofline import COMPILED_CHUNKED

CASES = [(target, case) for target in TARGETS for case in every_case(target)]


@pytest.mark.parametrize(("target", "case"), CASES, ids=str)
def test_compiled_kernels(target, case):
    check(target, case)


@pytest.mark.parametrize(("target", "item"), COMPILED_CHUNKED)
def test_the_roofline_knows_the_compiled_kernels(target, item):
    known = COMPILED_CHUNKED[target, item]
    assert known_facts(target, item, known) == known
