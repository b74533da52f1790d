"""LoRA by PEFT: default layers, all linear layers, and filters that are trained as they are."""

import peft
import pytest
import torch

from tests.hub_pairs import CASES, one_thread, pair

pytestmark = pytest.mark.slow

__all__ = ["one_thread"]  # a fixture


@pytest.mark.parametrize("name", ["toeplitz", "toeplitz-heads", "lookup", "hybrid-recurrent"])
def test_default_layers_are_known(name):
    _, model = pair(CASES[name])
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, task_type="CAUSAL_LM"))
    found = {key.split(".lora_A")[0] for key, _ in adapted.named_parameters() if "lora_A" in key}
    ends = ("channel_mixer.0", "channel_mixer.3", "gate")
    assert found
    assert all(key.endswith(ends) for key in found)
    assert {key.split(".")[-2] + "." + key.split(".")[-1] for key in found} >= set(ends[:2])


def test_filters_are_trained_with_modules_to_save():
    _, model = pair(CASES["toeplitz-heads"])
    settings = {"target_modules": "all-linear", "modules_to_save": ["filters.0"]}
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, task_type="CAUSAL_LM", **settings))
    tokens = torch.randint(37, (2, 20))
    before = {key: value.clone() for key, value in adapted.named_parameters()}
    optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=0.1)
    adapted(tokens, labels=tokens).loss.backward()
    optimizer.step()
    moved = {
        key for key, value in adapted.named_parameters() if not torch.equal(value, before[key])
    }
    assert any("filters.0.modules_to_save" in key for key in moved)
    assert any("project_in.lora_B" in key for key in moved)
    assert not any("embedding" in key or "head" in key for key in moved)
    merged = adapted.eval().merge_and_unload()
    with torch.no_grad():
        logits = merged(tokens).logits
    assert not torch.allclose(logits, pair(CASES["toeplitz-heads"])[1](tokens).logits)
