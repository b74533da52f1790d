"""Filters found wherever they sit."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from toeplix import Model, build, save
from toeplix.mixers.filter import Filter
from toeplix.mixers.toeplitz import ToeplitzMixer
from toeplix.reports.filters import initialisation, layers, read

SIZES = {"vocab": 20, "context": 16, "dim": 8}
SMALL = SIZES | {"arch": "toeplitz", "filter": "free"}


def test_every_filter_of_a_model_in_order():
    model = build(Model(**SMALL, depth=11))
    found = layers(model)
    assert [layer.name for layer in found] == [f"blocks.{i}" for i in range(11)]
    filters = [module for module in model.modules() if isinstance(module, Filter)]
    for layer, module in zip(found, filters, strict=True):
        assert torch.equal(layer.kernel, module.kernel)


def test_heads_kernels_and_sequential_layers_have_names():
    model = build(Model(**SMALL, depth=1, heads=2, kernels=3, sequential=2))
    found = layers(model)
    assert [layer.name for layer in found] == ["blocks.0, filter 0", "blocks.0, filter 1"]
    names = [name for name, *_ in found[1].filters()]
    assert names[0] == "blocks.0, filter 1, head 0, kernel 0"
    assert len(names) == 6


def test_models_of_other_makes():
    """Two stacks, as an autoencoder has, and a mixer alone; from weights as from modules."""
    mixers = {"encoder": ToeplitzMixer(Model(**SMALL)), "decoder": ToeplitzMixer(Model(**SMALL))}
    model = nn.ModuleDict(mixers)
    assert [layer.name for layer in layers(model)] == ["decoder", "encoder"]
    assert len(layers(model.state_dict())) == 2
    assert [layer.name for layer in layers(mixers["encoder"])] == ["filters"]
    assert layers(nn.Linear(3, 3)) == []


def test_checkpoints_and_runs(tmp_path):
    config = Model(**SMALL, depth=2, frozen="random")
    model = build(config)
    save(model, tmp_path / "run" / "model")
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        found, record = read(folder)
        assert [layer.name for layer in found] == ["blocks.0", "blocks.1"]
        assert torch.equal(found[0].kernel, layers(model)[0].kernel)
        assert initialisation(record) == "kaiming"


def test_weights_in_several_files(tmp_path):
    """As `save_pretrained` writes large models."""
    model = build(Model(**SMALL, depth=2))
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    first = {name: value for name, value in state.items() if "blocks.1" in name}
    save_file(first, tmp_path / "model-00001-of-00002.safetensors")
    rest = {name: value for name, value in state.items() if name not in first}
    save_file(rest, tmp_path / "model-00002-of-00002.safetensors")
    found, config = read(tmp_path)
    assert [layer.name for layer in found] == ["blocks.0", "blocks.1"]
    assert config == {}


def test_where_filters_start():
    for change, start in (
        ({}, "decay"),
        ({"filter": "free"}, "decay"),
        ({"filter": "free", "filter_init": "kaiming"}, "kaiming"),
        ({"filter": "free", "frozen": "ones"}, "ones"),
        ({"filter": "free", "frozen": "random"}, "kaiming"),
    ):
        assert initialisation(vars(Model(**change))) == start
    assert initialisation({}) == "kaiming"


def test_what_has_none_says_so(tmp_path):
    save(build(Model(**SIZES, arch="masked", depth=1)), tmp_path / "masked")
    with pytest.raises(ValueError, match=r"has no Toeplitz filters \(its architecture is masked\)"):
        read(tmp_path / "masked")
    with pytest.raises(FileNotFoundError, match="is no checkpoint"):
        read(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no"):
        read(tmp_path / "nowhere")
    (tmp_path / "model.safetensors").write_bytes(b"not this")
    with pytest.raises(ValueError, match="is damaged"):
        read(tmp_path)
