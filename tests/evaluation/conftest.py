import pytest
import torch

from tests.evaluation.published import write_all
from toeplix import Model, build, save
from toeplix.data import Tokenizer

TEXT = "what is hot? the sun is hot, ice is not. to be or not to be, that is the question. "


@pytest.fixture(scope="package")
def root(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="package")
def tokenizer():
    return Tokenizer.train([TEXT] * 20, 300)


@pytest.fixture(scope="package")
def checkpoint(tmp_path_factory, tokenizer):
    """A small model with clear preferences, so that no two tokens are nearly as likely."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("runs") / "small" / "model"
    model = build(Model(vocab=tokenizer.vocab, context=64, dim=16, depth=2, gate_bias=0.0))
    with torch.no_grad():
        model.head.weight.normal_(std=1.0)
    save(model, folder)
    tokenizer.save(folder)
    return folder
