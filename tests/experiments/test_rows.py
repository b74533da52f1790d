"""Rows on disk: what is read back, what an interruption leaves, what nonsense is told."""

import dataclasses
import json

import pytest

from toeplix.experiments import rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    sizes: tuple[int, ...]


def row(number, **outcome):
    return {"case": rows.record(Case(name="x", sizes=(number,))), **outcome}


def test_a_row_comes_back_flat(tmp_path):
    file = tmp_path / "deep" / "laptop.jsonl"
    rows.append(file, row(1, found={"loss": 2.5}))
    rows.append(file, row(2, error="ValueError: no"))
    assert rows.flat(file) == [{"name": "x", "sizes": [1], "loss": 2.5}]
    assert len(rows.read(file)) == 2


def test_the_last_row_of_a_case_counts(tmp_path):
    file = tmp_path / "laptop.jsonl"
    rows.append(file, row(1, error="too little memory"))
    rows.append(file, row(1, found={"loss": 1.0}))
    assert rows.flat(file) == [{"name": "x", "sizes": [1], "loss": 1.0}]


def test_half_a_line_is_left_out_and_then_removed(tmp_path):
    file = tmp_path / "laptop.jsonl"
    rows.append(file, row(1, found={"loss": 1.0}))
    with open(file, "a") as opened:
        opened.write('{"case": {"na')
    assert len(rows.flat(file)) == 1
    rows.append(file, row(2, found={"loss": 2.0}))
    assert [json.loads(line)["found"]["loss"] for line in file.read_text().splitlines()] == [1, 2]


def test_a_damaged_line_is_named(tmp_path):
    file = tmp_path / "laptop.jsonl"
    file.write_text('{"case": {}}\nnonsense\n')
    with pytest.raises(ValueError, match=r"laptop\.jsonl, line 2 is not a row"):
        rows.read(file)


def test_no_file_is_no_rows(tmp_path):
    assert rows.flat(tmp_path / "none.jsonl") == []
