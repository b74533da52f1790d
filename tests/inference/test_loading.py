"""Loading: a run and its model are the same, and a tokenizer that does not fit is named."""

import pytest
import torch

from toeplix import Model, build, save
from toeplix.data import Tokenizer
from toeplix.inference import load_pretrained

TOKENIZER = Tokenizer.train(["to be or not to be, that is the question "] * 20, 280)


def saved(folder, **settings):
    TOKENIZER.save(folder)
    save(build(Model(**({"vocab": 280, "context": 8, "dim": 8, "depth": 1} | settings))), folder)
    return folder


def test_a_run_and_its_model(tmp_path):
    model = saved(tmp_path / "run" / "model")
    one, other = load_pretrained(model), load_pretrained(tmp_path / "run", decoding_layout=True)
    assert one.directory == other.directory == model
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name])
    assert one.tokenizer.encode("to be") == other.tokenizer.encode("to be")


def test_what_does_not_fit_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"has {TOKENIZER.vocab} tokens, the model 50"):
        load_pretrained(saved(tmp_path / "small", vocab=50))
    with pytest.raises(FileNotFoundError, match="is no checkpoint"):
        load_pretrained(tmp_path)
    with pytest.raises(NotADirectoryError, match=r"config\.json is a file: give the directory"):
        load_pretrained(tmp_path / "small" / "config.json")
    (tmp_path / "small" / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match="holds no tokenizer"):
        load_pretrained(tmp_path / "small")


def test_weights_that_are_no_numbers(tmp_path):
    folder = saved(tmp_path)
    model = load_pretrained(folder).model
    with torch.no_grad():
        model.head.weight[0, 0] = torch.nan
    save(model, folder)
    load_pretrained(folder)
    with pytest.raises(ValueError, match="infinite or not a number"):
        load_pretrained(folder, finite=True)
