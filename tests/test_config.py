"""Records refuse nonsense at birth; checkpoints refuse what does not fit."""

import json

import pytest
import torch
from safetensors.torch import save_file

from toeplix import Model, build, load, save


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"arch": "rnn"}, "arch='rnn' must be one of toeplitz"),
        ({"dim": 30, "heads": 4}, "dim=30 is not a multiple of heads=4"),
        ({"depth": 0}, "depth=0 must be at least 1"),
        ({"dropout": 1.0}, r"dropout=1.0 must be in \[0, 1\)"),
        ({"arch": "llama", "heads": 0}, "needs heads of at least 1"),
        ({"features": 4}, "features=4 must be odd"),
        ({"frozen": "yes"}, "frozen='yes' must be one of no, random, ones"),
    ],
)
def test_nonsense_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Model(**fields)


@pytest.mark.usefixtures("unchecked")
def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match=r"dim=1\.5 must be an integer"):
        Model(dim=1.5)


TINY = Model(vocab=11, context=8, dim=8, depth=1, heads=2)


def test_a_checkpoint_that_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load(tmp_path)


def test_a_damaged_checkpoint(tmp_path):
    save(build(TINY), tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="is damaged"):
        load(tmp_path)


def test_a_strangers_file(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="not written by toeplix"):
        load(tmp_path)


def test_weights_that_do_not_fit(tmp_path):
    record = json.dumps({"vocab": 11, "context": 8, "dim": 8, "depth": 1, "heads": 2})
    model = build(TINY)
    weights = dict(model.state_dict())
    del weights["norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"model": record})
    with pytest.raises(ValueError, match=r"missing \['norm.weight'\]"):
        load(tmp_path)


def test_a_newer_versions_settings_are_named(tmp_path):
    save_file({}, tmp_path / "model.safetensors", metadata={"model": json.dumps({"colour": "red"})})
    with pytest.raises(ValueError, match="unknown to this version: colour"):
        load(tmp_path)


def test_saving_again_leaves_other_files(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    save(build(TINY), tmp_path)
    save(build(TINY), tmp_path)
    names = {entry.name for entry in tmp_path.iterdir()}
    assert names == {"tokenizer.json", "model.safetensors", "config.json"}
