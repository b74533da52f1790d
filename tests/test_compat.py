"""What version 0.1.0 wrote is read: tests/version_0_1_0 holds a store and a run that it made."""

import dataclasses
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from toeplix import Model, compat, load
from toeplix.data import Store
from toeplix.files import read_json
from toeplix.hub.modeling_toeplix import ToeplixConfig
from toeplix.reports import filters
from toeplix.training.logs import read
from toeplix.training.loop import fit
from toeplix.training.run import Run

OLD = Path(__file__).parent / "version_0_1_0"
LOGITS = [0.0157492, -0.1027543, 0.0383724, 0.0631946, 0.0365443, -0.015364, -0.089284, -0.0007046]


def test_a_checkpoint():
    model = load(OLD / "run" / "model")
    config = model.config
    assert (config.mlp_ratio, config.tie_embeddings, config.block_order) == (2, True, "mlp_first")
    assert (config.filter_init, config.state_size) == ("kaiming", 256)  # state=4 was never read
    with torch.no_grad():
        logits = model(torch.arange(6)[None] + 3)[0, -1, :8]
    torch.testing.assert_close(logits, torch.tensor(LOGITS), rtol=1e-4, atol=1e-6)
    _, record = filters.read(OLD / "run")
    assert filters.initialisation(record) == "kaiming"


def test_a_store():
    store = Store.open(OLD / "store")
    store.check()
    assert (len(store.train), len(store.val)) == (34, 6)
    assert store.manifest["recipe"]["val_fraction"] == 0.2


def test_a_run_goes_on(tmp_path):
    shutil.copytree(OLD / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    run = replace(Run.from_dict(read_json(OLD / "run" / "run.json")), data=str(OLD / "store"))
    assert (run.protocol, run.grad_accum_steps, run.max_grad_norm) == ("padded", 2, 0.5)
    said = []
    model = load(fit(run, tmp_path / "run", say=said.append))
    assert "going on after step 2 of 4" in said[0]
    finished = load(OLD / "run" / "model")
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, finished.state_dict()[name], rtol=1e-4, atol=1e-6)
    assert [row["step"] for row in read(tmp_path / "run") if "val_loss" in row] == [2, 4]


def test_embeddings_without_a_norm():
    """Records that have every field but this one were written when there was no such norm."""
    fields = dataclasses.asdict(Model(dim=8, depth=2, vocab=11, context=4))
    del fields["embedding_norm"]
    assert Model(**compat.model_record(fields)).embedding_norm == 0.0
    assert ToeplixConfig(model=fields).model["embedding_norm"] == 0.0
    few = {"gate": True, "dropout": 0.1, "dim": 8}  # written by a user
    assert compat.model_record(few | {"filter": "recurrent"}) == few | {"filter": "recurrent"}


@pytest.mark.parametrize(
    "model",
    [
        Model(arch="llama"),
        Model(arch="hyena"),
        Model(arch="linear"),
        Model(blocks=("attention", "hyena")),
    ],
)
def test_others_have_no_norm_of_embeddings(model):
    fields = dataclasses.asdict(model)
    del fields["embedding_norm"]
    assert Model(**compat.model_record(fields)) == model
    if model.arch != "llama":
        saved = ToeplixConfig(model=fields).model
        assert Model(**compat.model_record(saved)) == model


def test_present_records_pass_through():
    fields = {"arch": "toeplitz", "mlp_ratio": 3}
    assert compat.model_record(fields) == fields


def test_both_names_of_a_field():
    with pytest.raises(
        ValueError, match="'clip' is the old name of 'max_grad_norm', and both are given"
    ):
        Run.from_dict({"data": "x", "clip": 1.0, "max_grad_norm": 1.0})
