"""A small part of `make fuzz` in every run of the tests: the same cases each time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import isolation, mutators
from tests.fuzz.command_cases import commands
from tests.fuzz.command_lines import BASES
from tests.fuzz.formats import decoded, joined, parts, safetensors

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent


def test_a_slice_of_files_and_commands(tmp_path):
    """No traceback, no hang, no damage, nothing left behind, no wrong result."""
    try:
        isolation.unshare()
    except isolation.NotPossible as problem:
        pytest.skip(str(problem))
    command = [sys.executable, "-m", "tests.fuzz", "--kinds", "files,commands", "--seed", "slice"]
    command += ["--minutes", "0.55", "--cases", "150", "--jobs", "1"]
    command += ["--out", str(tmp_path / "found")]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "rejected" in ended.stdout


def test_every_command_has_a_command_line_that_works():
    assert set(commands()) == set(BASES)


def test_a_changed_checkpoint_is_taken_apart_and_put_together(tmp_path):
    """Most changes keep the structure, so that what lies behind the header is reached."""
    from random import Random

    data = joined('{"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', bytes(8))
    assert parts(data)[0]["w"]["shape"] == [2]
    changed = [safetensors(Random(seed), data) for seed in range(200)]
    assert sum(each != data for each in changed) > 150
    assert changed == [safetensors(Random(seed), data) for seed in range(200)]


def test_a_strict_reader_of_archives():
    import lzma

    whole = lzma.compress(b"one\n") + lzma.compress(b"two\n")
    assert decoded("xz", whole) == b"one\ntwo\n"
    assert decoded("xz", whole[:-1]) is None
    assert decoded("xz", whole + b"garbage") is None


def test_values_that_json_cannot_write_are_written():
    text = mutators.dumped({"a": mutators.Raw("NaN"), "b": [mutators.Raw('"\\ud800"')]})
    assert text == '{"a": NaN, "b": ["\\ud800"]}'
