"""The record of a run, its presets, and the learning rate."""

import dataclasses
import json
from dataclasses import replace

import pytest
import torch
from transformers import get_scheduler

from toeplix import Model
from toeplix.cli.main import main
from toeplix.cli.run_options import MODEL_HELP
from toeplix.training.presets import PRESETS, changed, preset
from toeplix.training.run import Run
from toeplix.training.schedule import rate

RUN = Run(data="somewhere")


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"data": ""}, ValueError, "data='' must name a token store"),
        ({"protocol": "loose"}, ValueError, "protocol='loose' must be one of packed, padded"),
        ({"schedule": "square"}, ValueError, "schedule='square' must be one of linear"),
        ({"precision": "int8"}, ValueError, "precision='int8' must be one of float32"),
        ({"steps": 0, "warmup": 0}, ValueError, "steps=0 must be at least 1"),
        ({"steps": 1.5}, TypeError, "steps=1.5 must be an integer"),
        ({"seed": True}, TypeError, "seed=True must be an integer"),
        ({"seed": -1}, ValueError, "seed=-1 must be at least 0"),
        ({"compile": 1}, TypeError, "compile=1 must be True or False"),
        ({"lr": 0}, ValueError, "lr=0.0 must be above 0"),
        ({"lr": float("nan")}, ValueError, "lr=nan must be a number of at least 0"),
        ({"max_grad_norm": -1.0}, ValueError, "max_grad_norm=-1.0 must be a number of at least 0"),
        ({"max_grad_norm": 1e39}, ValueError, "max_grad_norm=1e+39 must be finite in float32"),
        ({"beta2": 1.0}, ValueError, "beta2=1.0 must be below 1"),
        ({"steps": 10, "warmup": 11}, ValueError, "warmup=11 must be at most steps=10"),
    ],
)
def test_nonsense_is_refused(unchecked, settings, error, words):
    with pytest.raises(error) as caught:
        replace(RUN, **settings)
    assert words in str(caught.value)


def test_a_record_survives_json_and_has_a_name():
    run = replace(RUN, model=Model(dim=64), lr=1e-3, precision="bfloat16")
    again = Run.from_dict(json.loads(json.dumps(run.to_dict())))
    assert again == run
    assert again.digest == run.digest
    digests = {run.digest, RUN.digest, replace(run, model=Model(dim=32)).digest}
    assert len(digests) == 3


def test_unknown_settings_are_named():
    with pytest.raises(ValueError, match="Run has no setting speed"):
        Run.from_dict({"data": "x", "speed": 3})
    with pytest.raises(ValueError, match="Model has no setting wings"):
        Run.from_dict({"data": "x", "model": {"wings": 2}})
    with pytest.raises(ValueError, match="no setting wings"):
        changed(RUN, {"wings": 2})


def test_differences_name_what_changes_the_weights_only():
    other = changed(
        RUN, {"lr": 0.5, "dim": 64, "keep_checkpoints": 7, "trackers": "", "data": "elsewhere"}
    )
    assert other.differences(RUN) == ["lr=0.5 instead of 0.0005", "dim=64 instead of 512"]
    assert RUN.differences(RUN) == []


def test_presets_follow_the_paper():
    for name in PRESETS:
        run = preset(name, "store")
        assert run.data == "store"
        if name.startswith("paper"):
            adam = (run.beta1, run.beta2, run.weight_decay, run.max_grad_norm)
            assert adam == (0.9, 0.999, 0.0, 1.0)
            assert (run.steps, run.warmup, run.schedule) == (200_000, 500, "linear")
            assert run.batch * run.grad_accum_steps * run.model.context == 128 * 512
            attention = run.model.arch in ("llama", "window", "mamba2")
            assert run.lr == (2e-4 if attention else 5e-4)
            assert run.model == Model.paper(
                arch=run.model.arch, heads=run.model.heads, dim=run.model.dim, vocab=8000
            )
    assert preset("paper-tmm-512-h4", "x").model.heads == 4
    assert preset("laptop", "x", dim=64, steps=200).model.dim == 64
    with pytest.raises(ValueError, match="no preset 'huge', only demo, laptop"):
        preset("huge", "x")


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("warmup", [0, 7])
def test_rates_are_those_of_transformers(schedule, warmup):
    run = replace(RUN, steps=30, warmup=warmup, schedule=schedule, lr=3e-3)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=run.lr)
    name = "constant_with_warmup" if schedule == "constant" else schedule
    theirs = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=run.steps)
    for step in range(run.steps):
        assert rate(run, step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12, abs=1e-18)
        optimizer.step()
        theirs.step()


def test_every_field_is_explained():
    for field in dataclasses.fields(Run):
        assert field.name == "model" or field.metadata["help"].endswith(".")
    assert set(MODEL_HELP) == {field.name for field in dataclasses.fields(Model)}
    assert not {field.name for field in dataclasses.fields(Run)} & set(MODEL_HELP)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dim": "big"}, "dim='big' must be an integer"),
        ({"lr": "fast"}, "lr='fast' must be a finite"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_kind_in_a_file_is_one_line(settings, words, tmp_path, monkeypatch, capsys):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings | {"data": "python"}))
    command = ["toeplix", "train", "--config", str(file), "--out", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_shortened_warmup_is_described_as_it_is():
    said = []
    assert changed(preset("laptop", "x"), {"steps": 2}, said.append).warmup == 1
    assert said[0].endswith(
        "shortened to 1, a tenth of the steps but at least 1 (--warmup sets it)"
    )
