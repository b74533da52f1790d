"""All kernels of recurrent filters and lookup, in all dtypes and sizes, for every target: a quarter of an hour.

Not collected by itself: `pytest tests/ops/triton/every_target.py`.
"""

import pytest

from tests.ops.triton.recurrent_signatures import every_case
from tests.ops.triton.test_recurrent_targets import check
from toeplix.ops.triton.inspection import TARGETS

CASES = [(target, case) for target in TARGETS for case in every_case(target)]


@pytest.mark.parametrize(("target", "case"), CASES, ids=str)
def test_compiled_kernels(target, case):
    check(target, case)
