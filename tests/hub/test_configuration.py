"""Configurations of models for transformers: today's, and those of the first version."""

import json
from dataclasses import asdict

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.hub_pairs import pair
from tests.models import FREE
from tests.test_architectures import CASES as ALL
from tests.test_architectures import SMALL
from toeplix import Model, build
from toeplix.hub import ToeplixConfig, from_core, modeling_toeplix, to_core

pytestmark = pytest.mark.slow


def test_the_configuration_speaks_both_languages(tmp_path):
    config = ToeplixConfig(model={"dim": 64}, vocab_size=50)
    assert (config.hidden_size, config.vocab_size, config.num_hidden_layers) == (64, 50, 16)
    assert config.max_position_embeddings == config.model["context"] == 512
    assert Model(**config.model) == Model(dim=64, vocab=50)
    assert asdict(Model()) == modeling_toeplix.DEFAULTS
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).model == config.model
    for bad in ({"arch": "llama"}, {"colour": 3}):
        with pytest.raises(ValueError, match=r"unknown to this version: (llama|colour)"):
            ToeplixConfig(model=bad)
    with pytest.raises(ValueError, match="Hugging Face's own"):
        from_core(build(ALL["llama"]))


OLD = {  # a configuration that toeplix 0.1.0 wrote, every renamed setting with a value of its own
    "toeplix_version": "0.1.0",
    "model_type": "toeplix",
    "model": {
        **{"arch": "hyena", "vocab": 37, "context": 24, "dim": 32, "depth": 2, "heads": 0},
        **{"expansion": 3, "first": "channel", "norm": "rms", "final_norm": True, "tied": True},
        **{"activation": "gelu", "dropout": 0.0, "init": "scaled", "kernels": 1, "sequential": 1},
        **{"frozen": "no", "filters": "kaiming", "gate": True, "order": 16, "features": 5},
        **{"frequency": 2.0, "feature": "exp", "window": 64, "state": 128},
    },
}
NEW = {  # the same by the names of today
    **{"arch": "hyena", "vocab": 37, "context": 24, "dim": 32, "depth": 2, "heads": 0},
    **{"mlp_ratio": 3, "block_order": "mlp_first", "norm": "rms", "final_norm": True},
    **{"tie_embeddings": True, "activation": "gelu", "dropout": 0.0, "init": "scaled"},
    **{"kernels": 1, "sequential": 1, "frozen": "no", "filter_init": "kaiming", "gate": True},
    **{"filter_hidden": 16, "filter_features": 5, "filter_frequency": 2.0, "feature_map": "exp"},
    **{"window": 64, "state_size": 128},
    # new ones, none of which Hyena reads
    **{"blocks": (), "filter": "recurrent", "decays": 8, "free_taps": 16, "groups": 1},
    **{"keys": 8, "short_conv": 3, "gate_bias": 1.0},
    "embedding_norm": 10.0,
}


def test_configurations_of_the_first_version_are_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(OLD))
    config = AutoConfig.from_pretrained(tmp_path)
    assert config.model == NEW
    assert config.model.keys() == asdict(Model()).keys()
    config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["model"]
    assert saved == NEW | {"blocks": []}
    flat = ToeplixConfig(model=OLD["model"] | {"arch": "toeplitz"})
    assert (flat.model["filter"], flat.model["blocks"]) == ("free", ())
    for old, new in (("mixer", "mixer_first"), ("channel", "mlp_first")):
        assert ToeplixConfig(model={"first": old}).model["block_order"] == new
    with pytest.raises(ValueError, match="expansion and mlp_ratio are one setting"):
        ToeplixConfig(model={"expansion": 3, "mlp_ratio": 4})


@torch.no_grad()
def test_a_checkpoint_of_the_first_version_is_read(tmp_path):
    core, model = pair(Model(**FREE, mlp_ratio=2, block_order="mlp_first", heads=2, **SMALL))
    model.save_pretrained(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    renamed = {"mlp_ratio": "expansion", "block_order": "first", "tie_embeddings": "tied"}
    record = {renamed.get(name, name): value for name, value in described["model"].items()}
    described["model"] = record | {"first": "channel"}
    (tmp_path / "config.json").write_text(json.dumps(described))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.randint(37, (2, 24))
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)
    assert to_core(loaded).config == core.config


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), "x", None, True])
def test_weights_of_the_norm_are_checked(weight):
    with pytest.raises(ValueError, match=r"embedding_norm=.* must be a number of at least 0"):
        ToeplixConfig(model={"embedding_norm": weight})
