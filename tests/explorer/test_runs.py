"""Rows are read once each, whatever the file does in between."""

import json
import os
import time

import pytest

from toeplix.explorer.runs import QUIET_AFTER, describe, follow, settings
from toeplix.training.logs import METRICS, read


def test_a_finished_run_is_what_the_log_says(trained):
    found = follow(trained / "first")
    assert found.rows == read(trained / "first")
    after = follow(trained / "first", found.cursor)
    assert (after.rows, after.cursor, after.again) == ([], found.cursor, False)


def test_lines_are_taken_when_they_are_whole(tmp_path):
    lines = b"".join(json.dumps({"step": i, "loss": i / 7}).encode() + b"\n" for i in range(9))
    file, cursor, rows = tmp_path / METRICS, "", []
    for end in range(0, len(lines) + 1, 5):
        file.write_bytes(lines[:end])
        found = follow(tmp_path, cursor)
        assert not found.again
        rows += found.rows
        cursor = found.cursor
    file.write_bytes(lines)
    rows += follow(tmp_path, cursor).rows
    assert rows == [json.loads(line) for line in lines.splitlines()]


@pytest.mark.parametrize("more", [0, 1, 3, 30])
def test_a_resumed_run_is_read_again(tmp_path, more):
    """Cut back to a checkpoint and grown by other lines, to less or more than what was read."""
    old = [{"step": i, "loss": 1.0} for i in range(10)]
    new = old[:5] + [{"step": i, "loss": 2.0} for i in range(5, 5 + more)]
    write(tmp_path, old)
    cursor = follow(tmp_path, "").cursor
    write(tmp_path, new)
    found = follow(tmp_path, cursor)
    assert found.again
    assert found.rows == new


def test_what_is_no_row_is_left_out(tmp_path):
    lines = ['{"step": 1, "loss": NaN, "lr": 0.5}', "not JSON", "[1]", '{"loss": 1}', '{"step": 2}']
    (tmp_path / METRICS).write_text("\n".join(lines) + "\n")
    assert follow(tmp_path).rows == [{"step": 1, "lr": 0.5}, {"step": 2}]


def test_odd_cursors_start_from_the_beginning(tmp_path):
    write(tmp_path, [{"step": 1}])
    for cursor in ("", "x", "-5", "999999999999-0", "3-zz", "7-00000000"):
        assert follow(tmp_path, cursor).rows == [{"step": 1}]
    assert follow(tmp_path / "nowhere").rows == []


def test_how_a_run_stands(trained, tmp_path):
    first = describe("first", trained / "first")
    assert (first["state"], first["step"], first["steps"]) == ("finished", 24, 24)
    write(tmp_path, [{"step": 3}])
    (tmp_path / "run.json").write_text('{"steps": 10, "model": {"arch": "linear"}}')
    found = describe("x", tmp_path)
    assert (found["state"], found["step"], found["arch"]) == ("training", 3, "linear")
    long_ago = time.time() - 2 * QUIET_AFTER
    os.utime(tmp_path / METRICS, (long_ago, long_ago))
    assert describe("x", tmp_path)["state"] == "quiet"
    (tmp_path / "run.json").write_text("broken")
    assert settings(tmp_path) == {}
    assert describe("x", tmp_path)["arch"] == "?"


def write(folder, rows):
    (folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
