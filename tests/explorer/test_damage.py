"""One damaged file hides nothing but itself: the others are shown, and the bad one with its reason."""

import json
import os
import shutil

import pytest

from tests.explorer.conftest import serving
from tests.explorer.test_app import call
from toeplix.experiments.engine.claims import CLAIMS
from toeplix.explorer.app import explorer
from toeplix.explorer.discovery import find
from toeplix.explorer.runs import follow
from toeplix.training.logs import METRICS, SAMPLES
from toeplix.training.loop import RECORD

DEEP = b"[" * 100_000
BAD = {
    "number": b'{"model": 5}',
    "list": b"[]",
    "null": b"null",
    "deep": DEEP,
    "nested": b'{"model": {"arch": ' + b"[" * 400 + b"]" * 400 + b'}, "steps": 3}',
    "surrogate": b'{"model": {"arch": "\\ud800"}, "steps": 24}',
    "bytes": b"\xff\xfe\x00",
    "empty": b"",
    "steps": b'{"model": {"arch": "toeplitz"}, "steps": "many"}',
    "nan": b'{"model": {"arch": "toeplitz", "dim": NaN}, "steps": Infinity}',
    "huge": b'{"model": {"arch": "toeplitz"}, "steps": 1' + b"0" * 400 + b"}",
    "arch": b'{"model": {"arch": {}}, "steps": 24}',
}


@pytest.fixture(scope="module")
def place(trained, tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged") / "runs"
    shutil.copytree(trained / "first", root / "good")
    for name, text in BAD.items():
        (root / name).mkdir()
        (root / name / RECORD).write_bytes(text)
        (root / name / METRICS).write_text('{"step": 3, "loss": 1.0}\n')
    shutil.copytree(trained / "first", root / os.fsdecode(b"na\xefve"))
    for name in ("metrics", "directory", "samples", "weights", "tokenizer", "config"):
        shutil.copytree(trained / "first", root / f"bad {name}")
    rows = [b'{"step": 1, "loss": 2.0}', b"\xff\xff", DEEP, b'{"step": 1' + b"0" * 400 + b"}"]
    rows += [b'{"step": true}', b'{"step": 2, "loss": 1' + b"0" * 400 + b"}", b"{", b'{"step": 9}']
    (root / "bad metrics" / METRICS).write_bytes(b"\n".join(rows) + b"\n")
    (root / "bad directory" / METRICS).unlink()
    (root / "bad directory" / METRICS).mkdir()
    (root / "bad samples" / SAMPLES).write_bytes(b"--- step 9, sample 0\n\xff\xfe text\n")
    (root / "bad weights" / "model" / "model.safetensors").write_bytes(b"\xff" * 64)
    (root / "bad tokenizer" / "model" / "tokenizer.json").write_bytes(DEEP)
    (root / "bad config" / "model" / "tokenizer_config.json").write_bytes(b"[5]")
    results = root.parent / "results"
    for name, text in {"index": b"[5]\n", "scaling": DEEP + b"\n", "copying": b"\xff\n"}.items():
        (results / name).mkdir(parents=True)
        (results / name / "laptop.jsonl").write_bytes(text)
    with serving(explorer(root, results=results, figures=results)) as address:
        yield root, address


def test_all_runs_are_shown_and_the_bad_ones_marked(place):
    status, _, found = call(place[1], "/api/list")
    assert status == 200
    told = {run["name"]: run for run in found["runs"]}
    assert set(told) >= {"good", *BAD, "na\\udcefve", "bad metrics", "bad directory"}
    assert (told["good"]["state"], told["good"]["problem"]) == ("finished", None)
    for name in BAD:
        assert told[name]["state"] == "damaged", name
        assert RECORD in told[name]["problem"], name
        assert len(told[name]["problem"]) < 400, name
    assert told["na\\udcefve"]["state"] == "finished"
    assert "not UTF-8" in told["na\\udcefve"]["problem"]
    assert METRICS in told["bad directory"]["problem"]


def test_a_name_that_is_not_utf8_can_be_asked_for(place):
    name = "na%5Cudcefve"
    for path in ("/api/metrics", "/api/settings"):
        status, _, found = call(place[1], f"{path}?name={name}")
        assert status == 200, found
    status, _, found = call(place[1], f"/api/filters?name={name}")
    assert (
        status == 200 or "na\\udcefve" in found["error"]
    )  # as safetensors takes such paths or not


@pytest.mark.parametrize("name", BAD)
def test_settings_that_cannot_be_read_say_why(place, name):
    status, _, found = call(place[1], f"/api/settings?name={name}")
    if status == 200:  # what is not a number, or not text, is shown as such
        json.dumps(found, allow_nan=False).encode()
    else:
        assert (status, RECORD in found["error"]) == (400, True)
    assert call(place[1], f"/api/metrics?name={name}")[2]["rows"] == [{"step": 3, "loss": 1.0}]


def test_damaged_rows_are_counted(place):
    status, _, found = call(place[1], "/api/metrics?name=bad%20metrics")
    assert status == 200
    assert found["rows"] == [{"step": 1, "loss": 2.0}, {"step": 2}, {"step": 9}]
    assert found["damaged"] == 5
    status, _, found = call(place[1], "/api/metrics?name=bad%20directory")
    assert (status, METRICS in found["error"]) == (400, True)


def test_each_panel_says_what_is_wrong_with_its_own_file(place):
    address = place[1]
    status, _, found = call(address, "/api/settings?name=bad%20samples")
    assert status == 200
    assert "text" in found["sample"] or SAMPLES in found["sample"]
    for name in ("weights", "tokenizer", "config"):
        wish = {"model": f"bad {name}", "prompt": "x", "new": 2}
        status, _, found = call(address, "/api/generate", wish)
        assert status == 400, name
        assert "damaged" in found["error"]
        status, _, found = call(address, f"/api/filters?name=bad%20{name}")
        assert status == (400 if name == "weights" else 200)
    status, _, found = call(address, "/api/claims")
    assert status == 200
    assert len(found["problems"]) == 3
    assert all(".jsonl" in words for words in found["problems"])
    assert len(found["claims"]) == sum(len(claim.parts) for claim in CLAIMS.values())


def test_odd_requests(place):
    address = place[1]
    for cursor in ("9" * 30, "9" * 5000, "-1-0", "99999999999999999999-0", "1-" + "f" * 5000):
        status, _, found = call(address, f"/api/metrics?name=good&cursor={cursor}")
        assert (status, bool(found["rows"])) == (200, True)
    for fields in (
        {"prompt": "\ud800"},
        {"temperature": float("nan")},
        {"temperature": 1e-300},
        {"top_k": 10**400},
        {"top_p": float("nan")},
        {"seed": 2**63},
        {"new": 10**400},
        {"model": "\ud800"},
    ):
        status, _, found = call(address, "/api/generate", {"model": "good", "new": 1, **fields})
        assert status in (200, 400, 404, 422), fields
        if status == 200:
            assert '"error"' not in found
    for fields in (
        {"text": "\ud800"},
        {"linearization": "\ud800"},
        {"text": "\0"},
        {"text": "x" * 20_000},
    ):
        status, _, _ = call(address, "/api/contributions", {"model": "good", "text": "x", **fields})
        assert status in (200, 400, 422), fields
    status, _, _ = call(address, "/api/generate", "[" * 50_000)
    assert status in (400, 422)


def test_links_that_lead_to_themselves(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ValueError, match="loop"):
        find(tmp_path / "loop")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RECORD).symlink_to(RECORD)
    (tmp_path / "run" / METRICS).symlink_to(METRICS)
    assert find(tmp_path).runs == {}


def test_a_line_without_end_is_passed(tmp_path, monkeypatch):
    """Otherwise a reader waits for it for ever, and rows after it are never seen."""
    monkeypatch.setattr("toeplix.explorer.runs.CHUNK_BYTES", 100)
    (tmp_path / METRICS).write_bytes(b"x" * 250 + b"\n" + b'{"step": 1}\n')
    cursor, rows, damaged = "", [], 0
    for _ in range(9):
        found = follow(tmp_path, cursor)
        cursor, rows, damaged = found.cursor, rows + found.rows, damaged + found.damaged
    assert rows == [{"step": 1}]
    assert damaged >= 1
