"""Rows on disk: what is read back, what an interruption leaves, what nonsense is told."""

import dataclasses
import json

import pytest

from toeplix.experiments import EXPERIMENTS
from toeplix.experiments.engine import report, rows
from toeplix.experiments.engine.collect import results_file
from toeplix.files import DamagedFile


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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "a JSON object was expected"),
        ("{}", "field 'case' is missing"),
        ('{"case": 5}', "field 'case' must be of kind object"),
        ('{"case": {}, "found": [1]}', "field 'found' must be of kind object"),
        ('{"case": {}, "error": null}', "field 'error' must be of kind string"),
        ("[" * 10**5, "nested too deeply"),
        ('{"case": {"a": ' + "[" * 10**5, "nested too deeply"),
        ("\udcff", "not JSON"),
        ("", "not JSON"),
    ],
)
def test_what_is_wrong_with_a_row_is_told(tmp_path, line, words):
    file = tmp_path / "laptop.jsonl"
    file.write_bytes(
        b'{"case": {}, "found": {}}\n' + line.encode("utf-8", "surrogateescape") + b"\n"
    )
    with pytest.raises(DamagedFile, match="line 2 is not a row of results") as caught:
        rows.read(file)
    assert words in str(caught.value)
    assert "delete the line" in str(caught.value)


def test_a_file_that_holds_no_rows_is_not_cut(tmp_path):
    file = tmp_path / "laptop.jsonl"
    file.write_text("notes of somebody, without an end of line")
    with pytest.raises(ValueError, match="does not end in a row of results"):
        rows.append(file, row(1, found={}))
    assert file.read_text() == "notes of somebody, without an end of line"
    for half in ("{", '{"case": ', '{"case": {"na'):
        file.write_text(half)
        rows.append(file, row(1, found={}))
        assert len(rows.read(file)) == 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_rows_of_other_fields_are_told(name, tmp_path):
    """Figures, claims and cases are made from rows that anybody may have edited."""
    file = results_file(name, "laptop", tmp_path)
    for number, damaged in enumerate(({}, {"loss": "x", "model": 5, "seed": None, "part": []})):
        rows.append(file, {"case": {"number": number}, "found": damaged})
    said = []
    for work in (
        lambda: report.draw(name, "laptop", results=tmp_path, figures=tmp_path),
        lambda: report.markdown(tmp_path, tmp_path),
        lambda: report.verdicts(tmp_path),
    ):
        try:
            work()
        except DamagedFile as problem:
            said.append(str(problem))
    assert said
    assert all(str(file) in words for words in said)
