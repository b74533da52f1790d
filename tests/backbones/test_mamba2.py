import pytest
import torch
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from tests.models import small
from toeplix import build
from toeplix.backbones.mamba2 import CPU_CHUNK as CHUNK
from toeplix.backbones.mamba2 import KERNEL_CHUNK, CpuMixer, scan

TIMES = (1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 77)


def random_inputs(time):
    generator = torch.Generator().manual_seed(time)
    v, keys, queries, decay = (
        torch.randn(2, time, 3, size, dtype=torch.float64, generator=generator)
        for size in (4, 5, 5, 1)
    )
    return [each.requires_grad_() for each in (v, -decay[..., 0].exp(), keys, queries)]


def recurrence(v, decay, keys, queries):
    """The definition: one position after the other."""
    state, found = torch.zeros(2, 3, 5, 4, dtype=v.dtype), []
    for t in range(v.shape[1]):
        written = keys[:, t, :, :, None] * v[:, t, :, None]
        state = decay[:, t, :, None, None].exp() * state + written
        found.append((queries[:, t, :, None] @ state).squeeze(2))
    return torch.stack(found, 1)


@pytest.mark.parametrize("chunk", [1, 7, 16, 32])
@pytest.mark.parametrize("time", TIMES)
def test_the_scan_is_the_recurrence(time, chunk):
    inputs = random_inputs(time)
    here, there = scan(*inputs, chunk), recurrence(*inputs)
    torch.testing.assert_close(here, there, rtol=1e-11, atol=1e-11)
    weight = torch.randn_like(there)
    for mine, theirs in zip(
        torch.autograd.grad(here, inputs, weight),
        torch.autograd.grad(there, inputs, weight),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("strength", [0.0, 40.0, 1e4])
def test_strong_decays_neither_overflow_nor_lose_the_newest_position(strength):
    v, decay, keys, queries = random_inputs(70)
    decay = torch.full_like(decay, -strength)
    found = scan(v, decay, keys, queries, 32)
    torch.testing.assert_close(found, recurrence(v, decay, keys, queries))


def outcome(model, tokens):
    """Return the features of a model, and the gradient of their sum of cubes."""
    model.zero_grad()
    out = model.encode(tokens)
    out.pow(3).sum().backward()
    return [out, *(each.grad for each in model.backbone.layers.parameters())]


@pytest.mark.parametrize("time", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_values_and_gradients_are_those_of_hugging_face(time):
    torch.manual_seed(0)
    model = build(small("mamba2", vocab=50, context=128, dim=24, depth=2))
    tokens = torch.randint(0, 50, (3, time))
    mixers = [layer.mixer for layer in model.backbone.layers]
    assert {type(mixer) for mixer in mixers} == {CpuMixer}
    mine = outcome(model, tokens)
    for mixer in mixers:
        mixer.__class__ = Mamba2Mixer
    for here, there in zip(mine, outcome(model, tokens), strict=True):
        assert (here - there).norm() <= 1e-5 * there.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_are_left_to_hugging_face(monkeypatch, dtype):
    monkeypatch.setattr("toeplix.backbones.mamba2.scan", None)
    model = build(small("mamba2", vocab=50, context=16, dim=16, depth=1))
    model.to(dtype).encode(torch.zeros(1, 4, dtype=torch.long))
    with torch.autocast("cpu"):
        model.float().encode(torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(TypeError):
        model.encode(torch.zeros(1, 4, dtype=torch.long))


def test_chunks_are_those_of_the_device():
    model = build(small("mamba2", vocab=50, context=16, dim=16, depth=1))
    mixer = model.backbone.layers[0].mixer
    assert mixer.chunk_size == CHUNK
    assert mixer.to("meta").chunk_size == KERNEL_CHUNK


def test_classes_are_exchanged_after_weights_are_drawn(monkeypatch):
    """A seed gives the weights that Hugging Face's classes alone would get."""
    config = small("mamba2", vocab=50, context=16, dim=16, depth=2)
    torch.manual_seed(3)
    mine = build(config)
    monkeypatch.setattr("toeplix.backbones.huggingface.CpuMixer", Mamba2Mixer)
    torch.manual_seed(3)
    theirs = build(config)
    assert type(theirs.backbone.layers[0].mixer) is Mamba2Mixer
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=0, atol=0)
