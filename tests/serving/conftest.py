"""A tiny model with a tokenizer, and a server of it on a free port."""

import pytest
import torch

from toeplix import Model, build, save
from toeplix.data import Tokenizer
from toeplix.serving.limits import Limits
from toeplix.serving.server import running
from toeplix.serving.service import open_service

TEXT = "to be or not to be, that is the question. naïve déjà vu 漢字 "


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Its logits are large, so that rounding decides nothing."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tokenizer = Tokenizer.train([TEXT] * 20, 280)
    tokenizer.save(folder)
    torch.manual_seed(0)
    model = build(Model(vocab=tokenizer.vocab, context=64, dim=16, depth=2, heads=2))
    with torch.no_grad():
        model.head.weight.mul_(20)
    save(model, folder)
    return folder


@pytest.fixture(scope="session")
def server(checkpoint):
    limits = Limits(
        max_batch=6,
        max_waiting=40,
        max_tokens=400,
        max_prompt=300,
        max_choices=8,
        max_body=4000,
    )
    with running(open_service(checkpoint, "tiny", limits)) as server:
        yield server


@pytest.fixture(scope="session")
def service(server):
    return server.service
