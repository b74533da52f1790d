"""What `toeplix.save` may replace: an earlier checkpoint, and files of another origin only if told."""

import errno
import json

import pytest
import torch
from safetensors.torch import save_file

from tests.toy import toy_store
from toeplix import Model, build, checkpoint, load, save
from toeplix.data import Tokenizer

TINY = Model(vocab=11, context=8, dim=8, depth=1, heads=2)
MINE = "precious"


def contents(folder):
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file()
    }


@pytest.mark.parametrize("names", [["config.json"], ["model.safetensors"], None])
def test_files_of_another_origin_stay_unless_told(tmp_path, names):
    names = names or ["config.json", "model.safetensors"]
    for name in names:
        (tmp_path / name).write_text(MINE)
    before = contents(tmp_path)
    with pytest.raises(
        FileExistsError, match=rf"{names[0]} is not that of a toeplix checkpoint: .*overwrite"
    ):
        save(build(TINY), tmp_path)
    assert contents(tmp_path) == before
    save(build(TINY), tmp_path, overwrite=True)
    assert load(tmp_path).config == TINY


def test_a_checkpoint_of_another_library_stays(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(FileExistsError, match=r"config\.json is not that of a toeplix"):
        save(build(TINY), tmp_path)


def test_a_token_store_is_no_place_for_a_model(tmp_path):
    folder = toy_store(tmp_path).directory
    before = contents(folder)
    with pytest.raises(FileExistsError, match="is a token store"):
        save(build(TINY), folder)
    assert contents(folder) == before


def test_a_tokenizer_of_another_origin_stays(tmp_path):
    """Unless it is the one that is to be copied."""
    for name, text in (("one", "to be"), ("two", "or not to be")):
        Tokenizer.train([text] * 20, 260).save(tmp_path / name)
    model = build(Model(vocab=300, context=8, dim=8, depth=1))
    file = tmp_path / "two" / "tokenizer.json"
    file.write_text(file.read_text() + " ")
    with pytest.raises(FileExistsError, match=r"tokenizer\.json is not that of a toeplix"):
        save(model, tmp_path / "two", tokenizer=tmp_path / "one")
    save(model, tmp_path / "two", tokenizer=tmp_path / "two")
    save(model, tmp_path / "two", tokenizer=tmp_path / "one")  # by now it is a checkpoint's


def test_an_interrupted_save_may_be_repeated(tmp_path, monkeypatch):
    """Its tokenizer lies there in the form that belongs to a model, and no config.json yet."""
    Tokenizer.train(["to be or not to be"] * 20, 260).save(tmp_path / "tokens")
    model = build(Model(vocab=300, context=8, dim=8, depth=1))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(checkpoint, "save_file", full)
        with pytest.raises(OSError, match="No space left"):
            save(model, tmp_path / "model", tokenizer=tmp_path / "tokens")
    assert (tmp_path / "model" / "tokenizer.json").exists()
    assert not (tmp_path / "model" / "config.json").exists()
    save(model, tmp_path / "model", tokenizer=tmp_path / "tokens")
    assert load(tmp_path / "model").config == model.config


@pytest.mark.parametrize("damage", ["model.safetensors", "config.json"])
def test_an_earlier_checkpoint_is_replaced(tmp_path, damage):
    """Also without one of its files, and over weights that are truncated."""
    save(build(TINY), tmp_path)
    save(build(TINY), tmp_path)
    (tmp_path / damage).unlink()
    save(build(TINY), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"half")
    save(build(TINY), tmp_path)
    assert load(tmp_path).config == TINY
