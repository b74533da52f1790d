"""Quantized weights: within half a step of the originals, and read from disk bit for bit."""

import copy
import json
import math

import pytest
import torch
from torch import nn

from tests.models import small as small_model
from tests.models import stepped
from toeplix import Model, build, load, save
from toeplix.architectures import ARCHITECTURES
from toeplix.data import Tokenizer
from toeplix.devices import DTYPES
from toeplix.files import DamagedFile
from toeplix.inference import generate, load_pretrained
from toeplix.inference.quantization import compare, save_quantized, weight_bytes, windows_of
from toeplix.mixers.quantized import (
    MAX_FEW_ROWS,
    SCHEMES,
    Int8Linear,
    QuantizedLinear,
    quantization_of,
    quantize,
)

TOKENIZER = Tokenizer.train(["to be or not to be, that is the question "] * 20, 280)
SMALL = Model(vocab=280, context=32, dim=32, depth=2)
# relative to the largest output: inputs and results of the kernel for few rows are rounded to bfloat16
ROUNDING = 2**-7


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (15, 4), (16, 1), (17, 31), (32, 33), (64, 7)])
@pytest.mark.parametrize("rows", [1, 2, MAX_FEW_ROWS, MAX_FEW_ROWS + 1])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_product_is_that_of_the_stored_weights(scheme, rows, sizes):
    linear = nn.Linear(*sizes)
    layer = SCHEMES[scheme](linear)
    x = torch.randn(rows, sizes[0])
    expected = x.double() @ layer.dequantized(torch.float64).T + linear.bias.double()
    assert layer(x).dtype == torch.float32
    size = float((x.double().abs() @ layer.dequantized(torch.float64).abs().T).max())
    torch.testing.assert_close(layer(x).double(), expected, rtol=0, atol=ROUNDING * (size + 1))
    torch.testing.assert_close(layer(x[:, None])[:, 0], layer(x), rtol=0, atol=0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_rounding_of_16_rows_is_not_that_of_17(scheme):
    """As docs/serving.md says: bfloat16 up to 16 rows, the dtype of the input beyond."""
    layer = SCHEMES[scheme](nn.Linear(64, 8, bias=False))
    x = torch.randn(17, 64)
    weight = layer.dequantized(torch.float64)
    size = float((x.double().abs() @ weight.abs().T).max())
    few, many = (
        float((layer(x[:rows]).double() - x[:rows].double() @ weight.T).abs().max()) / size
        for rows in (16, 17)
    )
    assert many < 2**-20
    assert 2**-14 < few < ROUNDING


def test_int8_is_within_half_a_step():
    linear = nn.Linear(48, 20)
    with torch.no_grad():
        linear.weight[3] = 0
        linear.weight[4] *= 1e4
    layer = Int8Linear(linear)
    step = layer.scale.float()[:, None]
    # the scale is rounded to bfloat16, which may move the largest weight by as much again
    error = (layer.dequantized() - linear.weight.detach()).abs()
    assert bool((error <= step * (0.5 + 127 * 2**-8)).all())
    assert float((error / step).median()) < 0.3
    assert layer.weight.abs().max() <= 127
    assert torch.equal(layer.dequantized()[3], torch.zeros(48))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture(arch, scheme, tmp_path):
    """Logits move little, in prefill and decode steps; the file brings the same ones back."""
    sizes = {"vocab": 96, "context": 32, "dim": 64, "depth": 2, "heads": 4, "state_size": 32}
    model = build(small_model(arch, **sizes)).eval()
    with torch.no_grad():
        model.head.weight.copy_(torch.randn_like(model.head.weight) * 0.2)
    small = copy.deepcopy(model)
    quantize(small, scheme)
    assert quantization_of(small) == scheme
    tokens = torch.randint(model.config.vocab, (2, 24))
    with torch.no_grad():
        expected, found = model(tokens), small(tokens)
        scale = float(expected.std())
        assert 0 < float((expected - found).std()) < 0.05 * scale
        decoded = stepped(small, tokens, [20, 1, 1, 1, 1], 1)
        assert float((decoded - expected).std()) < 0.05 * scale
        again = load(save(small, tmp_path))
        assert quantization_of(again) == scheme
        assert torch.equal(again(tokens), found)
    assert weight_bytes(small)[1] < weight_bytes(model)[1] * {"int8": 0.5, "bfloat16": 0.7}[scheme]


def checkpoint(folder, model=None):
    TOKENIZER.save(folder / "tokenizer")
    save(model or build(SMALL), folder, tokenizer=folder / "tokenizer")
    return folder


def test_a_quantized_checkpoint_generates(tmp_path):
    model = build(SMALL).eval()
    source = checkpoint(tmp_path / "float", model)
    now = load_pretrained(source, quantize="int8", decoding_layout=True)
    folder = save_quantized(now.model, now.directory, tmp_path / "int8")
    later = load_pretrained(folder, decoding_layout=True, finite=True)
    same = load_pretrained(folder, quantize="int8")
    prompts = [[3, 4, 5], [7] * 40]
    expected = generate(now.model, prompts, max_new_tokens=8)
    for each in (later, same):
        assert generate(each.model, prompts, max_new_tokens=8) == expected
    assert later.tokenizer.encode("to be") == TOKENIZER.encode("to be")
    with pytest.raises(ValueError, match="in int8 already"):
        load_pretrained(folder, quantize="bfloat16")
    first, second = (folder / "model.safetensors").read_bytes(), tmp_path / "second"
    save_quantized(later.model, folder, second)
    assert (second / "model.safetensors").read_bytes() == first


def test_half_precision_becomes_float32_around_the_weights(tmp_path):
    save(build(SMALL).bfloat16(), tmp_path)
    model = load(tmp_path)
    quantize(model, "int8")
    assert model(torch.zeros(1, 3, dtype=torch.long)).dtype == torch.float32
    tokens = torch.randint(280, (1, 30))
    assert torch.equal(load(save(model, tmp_path / "int8"))(tokens), model(tokens))


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_another_dtype_leaves_the_stored_weights_alone(scheme, dtype, tmp_path):
    """What is around them takes the dtype, from a quantized checkpoint as from a float32 one."""
    source = checkpoint(tmp_path / "float")
    before = load_pretrained(source, quantize=scheme)
    folder = save_quantized(before.model, before.directory, tmp_path / "quantized")
    stored = {
        f"{name}.{part}": value
        for name, module in before.model.named_modules()
        if isinstance(module, QuantizedLinear)
        for part, value in module.named_buffers()
        if part != "bias"
    }
    found = [
        load_pretrained(folder, dtype=dtype),
        load_pretrained(source, dtype=dtype, quantize=scheme),
    ]
    for model in (each.model for each in found):
        own = model.state_dict()
        assert all(torch.equal(own[name], value) for name, value in stored.items())
        assert all(own[name].dtype == value.dtype for name, value in stored.items())
        assert {weight.dtype for weight in model.parameters()} == {dtype}
        prompt = torch.tensor([[3, 4, 5] * 6])
        logits, state = model.step(prompt)
        assert model.step(prompt[:, :1], state)[0].dtype == logits.dtype == dtype
        # as far from the float32 model as the rounding of the residual stream takes it
        expected = before.model(prompt)
        rounding = max(torch.finfo(dtype).eps, ROUNDING)
        assert float((model(prompt) - expected).abs().max()) < 8 * rounding * float(expected.std())
    tokens = [generate(each.model, [[3, 4, 5]], max_new_tokens=8) for each in found]
    assert tokens[0] == tokens[1]
    again = load(save(found[0].model, tmp_path / "again"))
    assert torch.equal(again(prompt), found[0].model(prompt))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_stored_weights_move_to_other_devices(scheme):
    layer = SCHEMES[scheme](nn.Linear(4, 3)).to("meta", torch.float16)
    assert {value.device.type for value in layer.buffers()} == {"meta"}
    assert layer.weight.dtype == {"int8": torch.int8, "bfloat16": torch.bfloat16}[scheme]
    assert layer.to_empty(device="cpu").weight.is_cpu


def test_small_scales_are_not_rounded_to_float16():
    """float16 has no normal numbers below 2^-14, and a scale is 127 times smaller than its weights."""
    layer = Int8Linear(nn.Linear(16, 8))
    layer.scale.mul_(2**-10)
    expected = layer.dequantized(torch.float64)
    found = layer.dequantized(torch.float16)
    assert torch.equal(found, expected.half())


def test_tied_embeddings():
    model = build(Model(vocab=64, context=16, dim=16, depth=1, tie_embeddings=True)).eval()
    small = copy.deepcopy(model)
    quantize(small, "int8")
    tokens = torch.randint(64, (1, 16))
    assert torch.equal(small.embedding.weight, model.embedding.weight)
    assert float((small(tokens) - model(tokens)).detach().abs().max()) < 0.1


def test_code_that_cannot_use_it_says_so(tmp_path):
    from toeplix.checkpoint import contents

    model = build(SMALL)
    quantize(model, "int8")
    file = save(model, tmp_path) / "model.safetensors"
    with pytest.raises(ValueError, match="has weights in int8, which generate"):
        contents(file)
    import transformers

    import toeplix.hub  # noqa: F401

    with pytest.raises(ValueError, match="weights are int8, which transformers cannot read: use"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)


def test_damaged_files(tmp_path):
    from toeplix.files.tensors import read_file, save_file

    model = build(SMALL)
    quantize(model, "int8")
    file = save(model, tmp_path) / "model.safetensors"
    weights, metadata = read_file(file)
    weights = {name: value.clone() for name, value in weights.items()}  # off the mapped file
    for change, message in (
        ({"head.scale": weights["head.scale"].float()}, "head.scale is of type float32"),
        ({"head.weight": weights["head.weight"][:5]}, "head.weight is"),
        ({"extra": torch.zeros(1)}, "unexpected"),
    ):
        save_file(weights | change, file, metadata)
        with pytest.raises(DamagedFile, match=message):
            load(tmp_path)
    save_file(weights, file, metadata | {"quantization": "int3"})
    with pytest.raises(DamagedFile, match="int3"):
        load(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    assert described["model_type"] == "toeplix-int8"


def test_drift_by_hand():
    """A model beside itself does not drift; bits per byte are those of the definition."""
    model = build(SMALL).eval()
    tokens = torch.randint(280, (70,)).tolist()
    windows = windows_of(tokens, 32, 60)
    assert [w.shape[1] for w in windows] == [33, 29]
    assert [t for w in windows for t in w[0, 1:].tolist()] == tokens[1:61]
    sizes = torch.arange(280, dtype=torch.float64) % 5
    same = compare(model, model, windows, sizes)
    assert (same.max_abs, same.mean_kl, same.same_argmax, same.tokens) == (0, 0, 1, 60)
    nats = sum(
        float(nn.functional.cross_entropy(model(w[:, :-1])[0].detach(), w[0, 1:], reduction="sum"))
        for w in windows
    )
    expected = nats / math.log(2) / float(sizes[tokens[1:61]].sum())
    assert same.bits_per_byte == same.reference_bits_per_byte == pytest.approx(expected, rel=1e-5)
    other = copy.deepcopy(model)
    quantize(other, "int8")
    drift = compare(model, other, windows, sizes)
    assert 0 < drift.max_abs < 0.2
    assert 0 < drift.mean_kl < 0.01
    with pytest.raises(ValueError, match="1 tokens: at least 2"):
        windows_of([1], 8, 8)
