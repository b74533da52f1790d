"""Models for transformers: the core model is the truth, whatever the padding and the road taken."""

import gc
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForCausalLM, DynamicCache

import toeplix
from tests.hub_pairs import ARCHS, CASES, PROMPTS, one_thread, padded, pair, twins
from tests.models import FREE, OURS, small
from tests.test_architectures import CLOSE, SMALL
from toeplix import Model, build
from toeplix.checkpoint import own
from toeplix.data import Tokenizer
from toeplix.hub import (
    NearLinearCache,
    ToeplixConfig,
    ToeplixForCausalLM,
    ToeplixModel,
    from_core,
    modeling_toeplix,
    to_core,
)
from toeplix.inference.generation import generate

pytestmark = pytest.mark.slow

__all__ = ["one_thread", "twins"]  # fixtures


def plain(model):
    """The same model of the class that a checkpoint carries."""
    copy = modeling_toeplix.ToeplixForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    return copy.train(model.training)


@pytest.mark.parametrize("convert", [lambda model: model, plain], ids=["toeplix", "plain"])
def test_logits_and_gradients_are_those_of_the_core(twins, convert):
    core, model = twins[0], convert(twins[1])
    names = [name for name, value in core.named_parameters() if value.requires_grad]
    assert names == [
        name for name, _ in core.named_parameters() if name in dict(model.named_parameters())
    ]
    for tokens in (torch.randint(37, (3, 24)), torch.randint(37, (2, 61))):
        results = []
        for logits, side in ((core(tokens), core), (model(tokens).logits, model)):
            side.zero_grad()
            logits.square().mean().backward()
            results.append([logits, *(dict(side.named_parameters())[name].grad for name in names)])
        for one, other in zip(*results, strict=True):
            atol = 1e-4 * one.abs().max().item() + 1e-6
            torch.testing.assert_close(one, other, rtol=1e-4, atol=atol)
    core.zero_grad()
    model.zero_grad()


@torch.no_grad()
@pytest.mark.parametrize("left", [True, False])
def test_padding_changes_nothing(twins, left):
    core, model = twins
    inputs = padded(PROMPTS, left)
    for extra in ({}, {"past_key_values": DynamicCache()}, {"past_key_values": NearLinearCache()}):
        logits = model(**inputs, **extra).logits
        for row, prompt in enumerate(PROMPTS):
            alone = core(torch.tensor([prompt]))[0]
            torch.testing.assert_close(
                logits[row][inputs["attention_mask"][row].bool()], alone, **CLOSE
            )


@torch.no_grad()
def test_positions_are_counted_from_the_mask_or_given():
    _, model = pair(CASES["toeplitz-flat"])  # free filters have a bias for every position
    inputs = padded(PROMPTS, left=True)
    position = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
    assert torch.equal(model(**inputs).logits, model(**inputs, position_ids=position).logits)
    assert not torch.equal(
        model(**inputs).logits, model(**inputs, position_ids=position + 1).logits
    )


def test_pads_send_no_gradient(twins):
    _, model = twins
    inputs = padded(PROMPTS, left=True)
    real = inputs.pop("attention_mask")
    x = model.embedding(inputs["input_ids"]).detach().requires_grad_()
    model(inputs_embeds=x, attention_mask=real).logits[real.bool()].square().sum().backward()
    assert x.grad[real == 0].abs().max() == 0
    assert (x.grad[real == 1].abs().amax(-1) > 0).all()
    model.zero_grad()


def test_the_loss_is_cross_entropy():
    _, model = pair(CASES["toeplitz"])
    tokens = torch.randint(37, (2, 10))
    labels = tokens.masked_fill(torch.arange(10) < 3, -100)
    out = model(tokens, labels=labels, output_hidden_states=True)
    shifted = out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    torch.testing.assert_close(out.loss, cross_entropy(*shifted))
    total = cross_entropy(*shifted, reduction="sum")
    torch.testing.assert_close(model(tokens, labels=labels, num_items_in_batch=5).loss, total / 5)
    assert len(out.hidden_states) == 3
    torch.testing.assert_close(model.head(out.hidden_states[-1]), out.logits)
    assert torch.equal(out.hidden_states[0], model.embedding_norm(model.embedding(tokens)))
    torch.testing.assert_close(model(tokens, logits_to_keep=2).logits, out.logits[:, -2:])
    assert len(model(tokens, return_dict=False)) == 1


@pytest.mark.parametrize("name", ARCHS)
def test_gradient_checkpointing_gives_equal_gradients(name):
    _, model = pair(CASES[name])
    tokens, results, runs = torch.randint(37, (2, 20)), [], []
    model.blocks[0].token_norm.register_forward_hook(lambda *_: runs.append(1))
    model.train()
    for _ in range(2):
        model.zero_grad()
        model(tokens, labels=tokens, use_cache=model.is_gradient_checkpointing).loss.backward()
        results.append([value.grad.clone() for value in model.parameters()])
        model.gradient_checkpointing_enable()
    assert len(runs) == 1 + 2  # the second time computed again
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(twins, dtype, tmp_path):
    core, _ = twins
    exact = core(tokens := torch.randint(37, (2, 30)))
    bound = 0.1 * exact.abs().max()
    model = from_core(core)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (model(tokens).logits - exact).abs().max() < bound
    model = model.to(dtype)
    half = model(tokens).logits
    assert half.dtype == dtype
    assert (half - exact).abs().max() < bound
    for cache in (DynamicCache(), NearLinearCache()):
        parts = [
            model(part, past_key_values=cache).logits for part in tokens.split([20, *[1] * 10], 1)
        ]
        assert (torch.cat(parts, 1) - exact).abs().max() < bound
    assert all(v.dtype == torch.float32 for k, v in model.state_dict().items() if ".filter." in k)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(again(tokens).logits, half)
    assert to_core(again)(tokens).dtype == dtype
    assert torch.equal(toeplix.load(tmp_path)(tokens), to_core(model)(tokens))


@torch.no_grad()
def test_saved_on_one_side_loaded_on_the_other(twins, tmp_path):
    core, model = twins
    tokens = torch.randint(37, (2, 24))
    ours, theirs, back = (tmp_path / name for name in ("ours", "theirs", "back"))
    toeplix.save(core, ours)
    model.save_pretrained(theirs)
    for folder in (ours, theirs):
        loaded = AutoModelForCausalLM.from_pretrained(folder)
        assert type(loaded) is ToeplixForCausalLM  # not the copy beside the weights
        assert not loaded.training
        assert asdict(core.config) == loaded.config.model
        assert torch.equal(loaded(tokens).logits, model(tokens).logits)
        assert (loaded.head.weight is loaded.embedding.weight) == core.config.tie_embeddings
        plain = toeplix.load(folder)
        assert plain.config == core.config
        assert torch.equal(plain(tokens), core(tokens))
        trained = {name for name, value in plain.named_parameters() if value.requires_grad}
        assert {name for name, value in loaded.named_parameters() if value.requires_grad} == trained
    assert torch.equal(to_core(loaded)(tokens), core(tokens))
    loaded.save_pretrained(back)
    assert (back / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()
    assert (back / "modeling_toeplix.py").exists()


@pytest.mark.parametrize("name", CASES)
def test_what_a_checkpoint_lacks_starts_afresh(name, tmp_path):
    """And nothing that it has is touched."""
    _, model = pair(CASES[name], sharp=False)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {key: value for key, value in weights.items() if "blocks.1." not in key}
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    fresh = from_core(build(CASES[name])).state_dict()
    for key, value in weights.items():
        if key in kept:
            assert torch.equal(loaded[key], value), key
        else:
            spread = {"rtol": 0.6, "atol": 1e-6}  # of a few random numbers
            torch.testing.assert_close(loaded[key].norm(), fresh[key].norm(), **spread, msg=key)


def test_what_load_refuses(tmp_path):
    _, model = pair(CASES["toeplitz"])
    model.save_pretrained(tmp_path / "split", max_shard_size="20KB")
    with pytest.raises(ValueError, match="split into several files"):
        toeplix.load(tmp_path / "split")
    model.save_pretrained(tmp_path / "bare")
    (tmp_path / "bare" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="no 'model'"):
        toeplix.load(tmp_path / "bare")


@pytest.mark.parametrize("name", [*CASES, "tied"])
def test_fresh_models_start_as_the_cores(name):
    config = CASES.get(name) or Model.paper(tie_embeddings=True, **SMALL)
    torch.manual_seed(0)
    core, model = (
        build(config),
        AutoModelForCausalLM.from_config(ToeplixConfig(model=asdict(config))),
    )
    ours = dict(model.state_dict())
    for key, value in own(core).items():
        near = {"rtol": 0.35, "atol": 1e-6} if value.numel() < 300 else {"rtol": 0.15, "atol": 1e-6}
        torch.testing.assert_close(ours[key].norm(), value.norm(), **near, msg=key)
        if (
            value.numel() == 1
            or value.std() == 0
            or "waves" in key
            or "decay" in key
            or "time" in key
        ):
            torch.testing.assert_close(ours[key], value, msg=key)


def test_fresh_lookup_reads_keys_one_position_late():
    """The short convolution starts as a shift of keys, with noise beside it; hub and core agree."""
    config = Model(arch="lookup", heads=4, keys=16, **SMALL)
    torch.manual_seed(0)
    hub = AutoModelForCausalLM.from_config(ToeplixConfig(model=asdict(config)))
    for model in (build(config), hub):
        q, k, v = model.blocks[0].token_mixer.short.weight[:, 0].split((64, 64, config.dim))
        assert q.unique(dim=0).tolist() == v.unique(dim=0).tolist() == [[0, 0, 1]]
        assert k[:, :-1].unique(dim=0).tolist() == [[0, 1]]
        noise = k[:, -1]
        assert 0.07 < noise.std() < 0.13
        assert abs(noise.mean()) < 0.05


def test_fresh_filters_and_losses():
    torch.manual_seed(0)
    for arch in OURS:
        sizes = small(arch, vocab=1000, context=64, dim=64, depth=8)
        model = AutoModelForCausalLM.from_config(ToeplixConfig(model=asdict(sizes)))
        tokens = torch.randint(1000, (4, 64))
        assert abs(model(tokens, labels=tokens).loss.item() - math.log(1000)) < 0.1
    kernel = build(Model(**FREE, **SMALL)).blocks[0].token_mixer.filters[0].kernel
    model = AutoModelForCausalLM.from_config(ToeplixConfig(model=asdict(Model(**FREE, **SMALL))))
    mixer = model.blocks[0].token_mixer
    torch.testing.assert_close(mixer.filters[0].kernel, kernel)
    assert mixer.gate.bias.unique().tolist() == [1.0]
    mixed = asdict(Model(blocks=("hyena", "toeplitz"), **SMALL))  # linear layers as Hyena's
    mixer = AutoModelForCausalLM.from_config(ToeplixConfig(model=mixed)).blocks[1].token_mixer
    assert mixer.gate.bias.unique().tolist() == [1.0]


@torch.no_grad()
@pytest.mark.parametrize("name", [*ARCHS, "linear-channel-first"])
def test_the_backbone_returns_what_the_head_reads(name, tmp_path):
    _, model = pair(CASES[name])
    model.save_pretrained(tmp_path)
    backbone = AutoModel.from_pretrained(tmp_path)
    assert type(backbone) is ToeplixModel
    assert set(backbone.state_dict()) == set(model.state_dict()) - {"head.weight"}
    tokens = torch.randint(37, (2, 24))
    out = backbone(tokens, use_cache=True, output_hidden_states=True)
    assert torch.equal(model.head(out.last_hidden_state), model(tokens, use_cache=True).logits)
    assert out.past_key_values.get_seq_length() == 24
    assert len(out.hidden_states) == 3
    assert torch.equal(backbone(tokens, return_dict=False)[0], backbone(tokens)[0])


def test_models_of_toeplix_use_its_product():
    x, kernel = torch.randn(2, 30, 3, 4), torch.randn(3, 30)
    for model in (pair(CASES["toeplitz"])[1], ToeplixModel(pair(CASES["toeplitz"])[1].config)):
        assert torch.equal(model.product(x, kernel), toeplix.toeplitz_windowed(x, kernel))
        exact = modeling_toeplix.toeplitz_product(x.double(), kernel.double())
        torch.testing.assert_close(model.product(x, kernel), exact.float(), **CLOSE)


@torch.no_grad()
def test_filters_of_a_stock_cache_follow_the_weights_and_go_with_it():
    _, model = pair(CASES["hyena"])
    tokens, known = torch.randint(37, (1, 10)), modeling_toeplix.StockCache.kernels
    before, cache = len(known), DynamicCache()
    model(tokens, past_key_values=cache)
    kept = [*known[cache].values()]
    model(tokens[:, :1], past_key_values=cache)
    assert len(kept) == 2  # one per block
    assert all(one is other for one, other in zip(kept, known[cache].values(), strict=True))
    cache.crop(-11)
    model.blocks[0].token_mixer.filter.network["6"].weight.mul_(2)
    changed = model(tokens, past_key_values=cache).logits
    torch.testing.assert_close(changed, model(tokens).logits, **CLOSE)
    del cache
    gc.collect()
    assert len(known) == before


def test_bad_inputs_are_named():
    _, model = pair(CASES["toeplitz"])
    tokens = torch.tensor([[1, 2, 3]])
    cache = model(tokens, use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"attention_mask \[1, 1\], not \(b, 3 \+ 1\)"):
        model(tokens[:, :1], attention_mask=torch.ones(1, 1), past_key_values=cache)
    with pytest.raises(ValueError, match="input_ids or inputs_embeds"):
        model()


def test_embeddings_are_resized():
    for tied in (False, True):
        _, model = pair(Model(**SMALL, tie_embeddings=tied))
        model.resize_token_embeddings(40)
        assert model(torch.tensor([[39]])).logits.shape == (1, 1, 40)
        assert to_core(model).config.vocab == 40


ELSEWHERE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("toeplix", "jaxtyping"):
            raise ImportError(name + " is not installed")
sys.meta_path.insert(0, Nothing())
import torch
from transformers import (
    AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
)
folder, trust = sys.argv[1], {"yes": True, "no": False}[sys.argv[2]]
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
assert tokenizer("to be")["input_ids"][0] == tokenizer.bos_token_id
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=trust)
tokens = torch.load(folder + "/tokens.pt")
new = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=9, do_sample=False)
torch.save([model(tokens).logits.detach(), new], folder + "/result.pt")
features = AutoModel.from_pretrained(folder, trust_remote_code=trust)(tokens).last_hidden_state
assert torch.equal(model.head(features), model(tokens).logits)
classifier = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=trust)
ones = torch.ones_like(tokens)
scores = classifier(tokens, attention_mask=ones, labels=torch.tensor([0, 1]))
assert torch.equal(classifier.score(features[:, -1]), scores.logits) and scores.loss > 0
model.save_pretrained(folder + "/again")
"""


def test_without_toeplix_the_checkpoint_brings_its_code(tmp_path):
    """A directory of `toeplix.save` without toeplix; what is saved from there loads in toeplix."""
    core, _ = pair(CASES["hyena"])
    toeplix.save(core, tmp_path)
    Tokenizer.train(["to be or not to be"], 260).save(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    assert described["auto_map"]["AutoModelForCausalLM"] == "modeling_toeplix.ToeplixForCausalLM"
    tokens = torch.randint(37, (2, 10))
    torch.save(tokens, tmp_path / "tokens.pt")
    environment = os.environ | {
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
        "HF_HUB_OFFLINE": "1",
    }
    for trust in ("no", "yes"):
        command = [sys.executable, "-W", "error", "-c", ELSEWHERE, str(tmp_path), trust]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path
        )
        if trust == "no":
            assert done.returncode
            assert "trust_remote_code=True" in done.stderr
            assert not (tmp_path / "modules").exists()
    assert done.returncode == 0, done.stderr
    logits, new = torch.load(tmp_path / "result.pt")
    torch.testing.assert_close(logits, core(tokens), **CLOSE)
    assert new[:, 10:].tolist() == generate(core, tokens.tolist(), max_new_tokens=9)
    for folder in (tmp_path, tmp_path / "again"):
        (code,) = folder.glob("*.py")  # one file, the plain one
        assert code.read_bytes() == Path(modeling_toeplix.__file__).read_bytes()
        described = json.loads((folder / "config.json").read_text())
        assert described["auto_map"] == modeling_toeplix.AUTO_MAP
    with torch.no_grad():
        assert torch.equal(toeplix.load(tmp_path / "again")(tokens), core(tokens))
