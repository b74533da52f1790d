"""Operators, decoders and models on the pretend device: as on the CPU, and the host waits for nothing.

Not collected by itself: test_devices.py runs this file in a process of its own, since a device is
registered for a whole process.
"""

import pytest
import torch

from tests.device_cases import (
    DECODERS,
    MODELS,
    OPERATORS,
    OWN_MODELS,
    decoded,
    ragged,
    trained,
)
from tests.pretend import register, watched
from toeplix import build
from toeplix.inference.generation import generate
from toeplix.inference.sampling import Sampling

DEVICE = register()
CPU = torch.device("cpu")


def close(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.device.type == DEVICE.type
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-5, atol=1e-6)


def pair(name):
    torch.manual_seed(0)
    model = build(MODELS[name])
    torch.manual_seed(0)
    return build(MODELS[name]).to(DEVICE), model


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_operators(name, dtype):
    expected = OPERATORS[name](CPU, dtype)
    with watched() as seen:
        found = OPERATORS[name](DEVICE, dtype)
    assert seen.waits == []
    close(found, expected)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name):
    expected = DECODERS[name](CPU)
    with watched() as seen:
        found = DECODERS[name](DEVICE)
    assert seen.waits == []
    close(found, expected)


@pytest.mark.parametrize("protocol", ["plain", "packed", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step(name, protocol):
    model, twin = pair(name)
    expected = trained(twin, CPU, protocol)
    with watched() as seen:
        found = trained(model, DEVICE, protocol)
    if (
        name in OWN_MODELS
    ):  # what Hugging Face's classes read of their arguments is theirs to leave out
        assert seen.waits == []
    close(found, expected)


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_under_autocast(name):
    model, twin = pair(name)
    exact = trained(twin, CPU, "packed")[0]
    with watched() as seen:
        loss = trained(model, DEVICE, "packed", precision="bfloat16")[0]
    if name in OWN_MODELS:
        assert seen.waits == []
    assert loss.device.type == DEVICE.type
    assert 0 < abs(float(loss) - float(exact)) < 0.03 * float(exact)


@pytest.mark.parametrize("name", MODELS)
def test_decoding(name):
    model, twin = (each.eval() for each in pair(name))
    expected = decoded(twin, CPU)
    with watched() as seen:
        found = decoded(model, DEVICE)
    if name in OWN_MODELS:
        assert seen.waits == []
        # the tokens, before they are moved to the device
        assert set(seen.made_on_host) == {"aten.randint.generator"}
    close(found, expected)


@pytest.mark.parametrize("name", OWN_MODELS)
def test_ragged_decoding(name):
    model, twin = (each.eval() for each in pair(name))
    expected = ragged(twin, CPU)
    with watched() as seen:
        found = ragged(model, DEVICE)
    assert seen.waits == []
    close(found, expected)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, top_p=0.9)])
@pytest.mark.parametrize("name", ["toeplitz", "linear", "llama"])
def test_generation_waits_once_a_step(name, sampling):
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
    model, twin = pair(name)
    how = {"max_new_tokens": 7, "sampling": sampling, "seed": 3}
    expected = generate(twin, prompts, **how)
    with watched() as seen:
        assert generate(model, prompts, **how) == expected
    if name in OWN_MODELS:
        # the logits of every prompt, and those of every step but the first, which the prompts give
        assert len(seen.waits) == len(prompts) + 6


@pytest.mark.parametrize("name", OWN_MODELS)
def test_models_are_built_on_the_device(name):
    with DEVICE:
        model = build(MODELS[name])
    kept = dict(model.named_parameters()) | dict(model.named_buffers())
    assert {value.device.type for value in kept.values()} == {DEVICE.type}


@pytest.mark.parametrize("name", OWN_MODELS)
def test_weights_are_initialised_on_the_device(name):
    model, _ = pair(name)
    with watched() as seen:
        model.reset()
    assert seen.made_on_host == []


def test_the_device_tells_a_stray_tensor():
    """The guard itself can fail: an index and an addend on the host, a mask, and a value that is read."""
    x = torch.ones(4, device=DEVICE)
    for stray in (lambda: x + torch.ones(4), lambda: x[torch.arange(2)]):
        with pytest.raises(RuntimeError, match="of the device and of the host"):
            stray()
    with watched() as seen:
        _ = x[x > 0]
        _ = x.sum().item()
        _ = bool((x > 0).all())
        _ = x.cpu()
        _ = x.nonzero()
        _ = torch.zeros(3)
    assert len(seen.waits) == 5
    assert "aten.zeros.default" in seen.made_on_host
