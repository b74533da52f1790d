"""The model card of a run: its command trains the same run again, and nothing in it is a place."""

import shlex
from dataclasses import replace

import pytest
import typer

from tests.toy import toy_run, toy_store
from toeplix.cli.main import app
from toeplix.config import Model
from toeplix.training.command import WITHOUT_EFFECT, command
from toeplix.training.loop import fit
from toeplix.training.presets import changed
from toeplix.training.run import Run

RUNS = {
    "default": Run(data="store"),
    "hybrid": Run(data="store", model=Model(blocks=("toeplitz", "attention"), dim=64), lr=1e-3),
    "llama": Run(data="store", model=Model(arch="llama", vocab=300, heads=4), steps=50, warmup=5),
    "paper": Run(data="store", model=Model.paper(heads=4), compile=True, parallel="fsdp"),
    "flags": Run(data="store", model=Model(gate=False, tie_embeddings=True), precision="bfloat16"),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_command_trains_the_same_run(name):
    """As the command line itself reads it."""
    run = RUNS[name]
    words = shlex.split(command(run))
    assert words[:2] == ["toeplix", "train"]
    parsed = typer.main.get_command(app).commands["train"].make_context("train", words[2:]).params
    known = vars(run) | vars(run.model)
    given = {key: value for key, value in parsed.items() if key in known and value is not None}
    if "blocks" in given:
        given["blocks"] = tuple(given["blocks"].split(","))
    assert changed(Run(data="x"), given) == run


def test_settings_of_logs_and_places_are_left_out():
    run = Run(data="/home/me/stores/mine", log_every=3, save_every=7)
    assert command(run) == "toeplix train --data mine --out DIRECTORY"
    assert command(replace(run, data="hf:/home/me/texts")).split()[3] == "hf:texts"
    assert command(replace(run, data="hf:org/texts:en")).split()[3] == "hf:org/texts:en"
    assert {"log_every", "save_every"} <= set(WITHOUT_EFFECT)


@pytest.mark.slow
def test_a_finished_run_has_a_card(tmp_path):
    store = toy_store(tmp_path)
    model = fit(toy_run(store, steps=4, warmup=1, eval_every=4, sample_every=0), tmp_path / "run")
    text = (model / "README.md").read_text()
    assert "| data | toy.jsonl: " in text
    assert " nats per token, " in text
    assert "\ntoeplix train --data store --out DIRECTORY --steps 4 " in text
    for file in model.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes()
