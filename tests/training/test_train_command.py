"""`toeplix train`: what it writes, where it goes on, how it ends, and what it says of bad input."""

import json
import os
import signal
import sys

import pytest

from tests.kill_worker import bits
from tests.toy import toy_lines
from toeplix.cli.main import main
from toeplix.data import Store

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]

ARGUMENTS = ["--steps", "12", "--warmup", "2", "--lr", "0.01", "--log-every", "1"]
ARGUMENTS += ["--dim", "16", "--depth", "1", "--context", "32"]
ARGUMENTS += ["--eval-every", "6", "--sample-every", "0", "--trackers", ""]


def call(monkeypatch, capsys, *arguments):
    """Status and standard error of the command."""
    monkeypatch.setattr(sys, "argv", ["toeplix", "train", *map(str, arguments)])
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
    return status, capsys.readouterr().err


def test_the_command_builds_its_store_and_goes_on(tmp_path, monkeypatch, capsys):
    lines = toy_lines(tmp_path / "toy.jsonl")
    given = ["demo", "--data", lines, "--out", tmp_path / "run", "--vocab", 300, *ARGUMENTS]
    status, error = call(monkeypatch, capsys, *given)
    assert status == 0, error
    assert "building a token store" in error
    assert "step 12 of 12, loss" in error
    first = bits(tmp_path / "run/model/model.safetensors")
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["batch"] == 8  # of the preset
    assert record["lr"] == 0.01  # of the command line
    assert record["model"]["vocab"] == Store.open(tmp_path / "run/data").vocab
    status, error = call(monkeypatch, capsys, *given)
    assert (status, error) == (0, "")
    assert bits(tmp_path / "run/model/model.safetensors") == first
    status, error = call(
        monkeypatch, capsys, "--config", tmp_path / "run/run.json", "--out", tmp_path / "again"
    )
    assert status == 0, error
    assert bits(tmp_path / "again/model/model.safetensors") == first


def test_a_file_of_settings_is_overridden_by_the_command_line(store, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "from toeplix import Model\nfrom toeplix.training.run import Run\n"
        f"run = Run(model=Model(vocab=300, dim=64, depth=1, context=32), data={str(store.directory)!r},\n"
        "    steps=3, warmup=1, batch=2, trackers='')\n"
    )
    given = ["--config", tmp_path / "mine.py", "--out", tmp_path / "run", "--dim", 8]
    status, error = call(monkeypatch, capsys, *given)
    assert status == 0, error
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert (record["model"]["dim"], record["batch"], record["steps"]) == (8, 2, 3)


def test_the_command_ends_with_130_when_it_was_asked_to_stop(store, tmp_path, monkeypatch, capsys):
    given = ["--data", store.directory, "--out", tmp_path / "run", "--batch", 2, *ARGUMENTS]
    monkeypatch.setattr(
        "toeplix.cli.train._words", lambda row: os.kill(os.getpid(), signal.SIGINT) or ""
    )
    status, error = call(monkeypatch, capsys, *given, "--log-every", 7)
    assert status == 130
    assert "stopped after step 8, which is saved" in error
    assert (tmp_path / "run/checkpoints/step-8").is_dir()


def test_the_command_says_what_remains_when_it_is_asked_twice(store, tmp_path, monkeypatch, capfd):
    given = ["--data", store.directory, "--out", tmp_path / "run", "--batch", 2, *ARGUMENTS]
    monkeypatch.setattr("toeplix.training.signals.REPEATED_WITHIN", -1)

    def words(row):
        for _ in range(2 * (row["step"] == 7)):
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    monkeypatch.setattr("toeplix.cli.train._words", words)
    status, error = call(monkeypatch, capfd, *given, "--save-every", 4)
    assert status == 130
    first, last = error.splitlines()[-2:]
    assert first == (
        "toeplix: stopping after this step and saving; Ctrl-C again to quit without saving"
    )
    assert last.startswith("toeplix: quit at step 7 without saving: the last good checkpoint is ")
    assert last.endswith("/step-4")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "STORE"], "--out DIR is needed"),
        (["--out", "OUT"], "--data is needed"),
        (["huge", "--data", "STORE", "--out", "OUT"], "no preset 'huge', only demo"),
        (
            ["--data", "STORE", "--out", "OUT", "--steps", "9", "--warmup", "100"],
            "warmup=100 must be at most steps=9",
        ),
        (["--data", "STORE", "--out", "OUT", "--steps", "many"], "--steps"),
        (["--data", "STORE", "--out", "OUT", "--arch", "rnn"], "arch='rnn' must be one of"),
        (["--data", "STORE", "--out", "OUT", "--vocab", "299"], "vocab=299 is too small"),
        (["--data", "/nowhere", "--out", "OUT"], "/nowhere is no file or directory"),
        (["--config", "/nowhere.json", "--out", "OUT"], "/nowhere.json: there is no such file"),
        (["--data", "STORE", "--out", "OUT", "--trackers", "pigeon"], "'pigeon' must be one of"),
    ],
)
def test_bad_input_is_one_line(store, tmp_path, monkeypatch, capsys, arguments, words, unchecked):
    places = {"STORE": str(store.directory), "OUT": str(tmp_path / "run")}
    status, error = call(monkeypatch, capsys, *(places.get(each, each) for each in arguments))
    assert status == 2
    assert words in error
    assert len([line for line in error.splitlines() if "building" not in line]) == 1
