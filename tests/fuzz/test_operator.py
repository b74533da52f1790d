"""The operator and its decoders against the definition, on cases that Hypothesis makes up.

`TOEPLIX_FUZZ_EXAMPLES` says how many of each kind there are; those of a plain run are always the same.
"""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import operator_campaign
from tests.fuzz.operator_cases import CASES, check, read, written

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("TOEPLIX_FUZZ_EXAMPLES", "60"))


@pytest.mark.parametrize("kind", CASES)
@settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None)
@given(data=st.data())
def test_every_result_is_the_definitions(kind, data):
    case = data.draw(CASES[kind])
    assert written(read(written(case))) == written(case)
    check(case)


def test_a_campaign_counts_and_saves_what_fails(tmp_path, monkeypatch):
    def check(case):
        assert case.batch < 2, "too many rows"

    monkeypatch.setattr(operator_campaign, "check", check)
    counts = operator_campaign.run(1.0, "0", tmp_path)
    assert counts["wrong"] == len(list(tmp_path.iterdir()))
    assert counts["ok"]
    assert counts["wrong"]
    for folder in tmp_path.iterdir():
        assert read((folder / "case.json").read_text()).batch == 2  # made as small as it fails
        assert "too many rows" in (folder / "traceback.txt").read_text()
