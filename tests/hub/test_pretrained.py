"""What `toeplix.save` writes beside the weights, read by Hugging Face's Auto classes."""

import json
from dataclasses import asdict, replace

import pytest
import torch
import transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

import toeplix
from tests.hub_pairs import CASES, one_thread, pair
from tests.test_architectures import CASES as ALL
from toeplix import Model, build, pretrained_files, save
from toeplix.data import Tokenizer
from toeplix.hub import modeling_toeplix, modeling_toeplix_mamba2
from toeplix.inference.generation import generate
from toeplix.model_card import Trained

pytestmark = pytest.mark.slow

__all__ = ["one_thread"]  # a fixture

OWN = {
    "llama": transformers.LlamaForCausalLM,
    "window": transformers.MistralForCausalLM,
    "mamba2": modeling_toeplix_mamba2.ToeplixMamba2ForCausalLM,  # transformers' own has no bias
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer.train(["to be or not to be"] * 3, 260).save(folder)
    return folder


def changed(folder, to, **settings):
    """A copy of a tokenizer with other settings."""
    to.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (to / name).write_bytes((folder / name).read_bytes())
    config = json.loads((to / "tokenizer_config.json").read_text())
    (to / "tokenizer_config.json").write_text(json.dumps(config | settings))
    return to


@torch.no_grad()
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("arch", OWN)
def test_architectures_of_transformers_load_as_its_own(arch, tied, tmp_path):
    torch.manual_seed(0)
    model = toeplix.build(replace(ALL[arch], tie_embeddings=tied)).eval()
    if model.head.bias is not None:
        model.head.bias.normal_()
    tokens = torch.randint(37, (2, 24))
    toeplix.save(model, tmp_path / "ours")
    loaded, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert type(loaded) is OWN[arch]
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    if arch == "mamba2":  # ours has a scan for CPUs, which rounds differently
        torch.testing.assert_close(loaded(tokens).logits, model(tokens), rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(loaded(tokens).logits, model(tokens))
    loaded.save_pretrained(tmp_path / "theirs")
    for folder in (tmp_path / "ours", tmp_path / "theirs"):  # the same weights to the bit
        assert torch.equal(toeplix.load(folder)(tokens), model(tokens))


@torch.no_grad()
def test_weights_under_their_earlier_names_are_read(tmp_path, monkeypatch):
    model = toeplix.build(ALL["llama"]).eval()
    monkeypatch.setattr("toeplix.checkpoint.stored", lambda weights, config: weights)
    toeplix.save(model, tmp_path)
    tokens = torch.randint(37, (1, 9))
    assert torch.equal(toeplix.load(tmp_path)(tokens), model(tokens))


def test_generation_stops_at_the_end_token(tokenizer, tmp_path):
    core, _ = pair(CASES["toeplitz"])
    prompt = [1, 2, 3]
    (written,) = generate(core, [prompt], max_new_tokens=12)
    end = next(each for each in written[3:] if each not in written[:3])
    name = Tokenizer.load(tokenizer).backend.id_to_token(end)
    chosen = changed(tokenizer, tmp_path / "chosen", eos_token=name)
    toeplix.save(core, tmp_path / "model", tokenizer=chosen)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ids = {"bos_token_id": 0, "eos_token_id": end, "pad_token_id": 2}
    for settings in (model.config.to_dict(), model.generation_config.to_dict()):
        assert {key: settings[key] for key in ids} == ids
    found = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, 3:]
    assert found.tolist() == written[: written.index(end) + 1]


@pytest.mark.parametrize("old", [False, True])
def test_the_tokenizer_beside_a_model_encodes_as_ours(tokenizer, tmp_path, old):
    """Also one of an earlier version, which has no post-processor."""
    source = changed(tokenizer, tmp_path / "source", add_bos_token=False)
    if old:
        tokens = json.loads((source / "tokenizer.json").read_text()) | {"post_processor": None}
        (source / "tokenizer.json").write_text(json.dumps(tokens))
    core, _ = pair(CASES["toeplitz"])
    folder = toeplix.save(core, tmp_path / "model", tokenizer=source)
    auto, ours = AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    for text in ("to be", "", "a <|eos|> b"):
        assert auto(text)["input_ids"] == [ours.start, *ours.encode(text)]
        assert ours.encode(text) == Tokenizer.load(source).encode(text)
    assert auto.model_max_length == core.config.context
    toeplix.load(folder)  # its sha256 is that of what was written
    same = (folder / "tokenizer.json").read_bytes() == (tokenizer / "tokenizer.json").read_bytes()
    assert same or old
    again = toeplix.save(core, tmp_path / "again", tokenizer=folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "README.md"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("name", ["toeplitz", "hybrid", "hyena"])
def test_prompts_of_a_batch_are_padded_on_the_left(name, tokenizer, tmp_path):
    """So each prompt is followed by what follows it alone."""
    torch.manual_seed(0)
    core = build(replace(CASES[name], vocab=260)).eval()
    with torch.no_grad():
        core.head.weight.normal_()  # no two tokens nearly as likely
    folder = toeplix.save(core, tmp_path, tokenizer=tokenizer)
    auto, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForCausalLM.from_pretrained(folder),
    )
    texts = ["to be or not to be", "b", ""]
    inputs = auto(texts, return_tensors="pt", padding=True)
    how = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    found = model.generate(**inputs, **how)[:, inputs["input_ids"].shape[1] :].tolist()
    assert found == generate(core, [auto(text)["input_ids"] for text in texts], max_new_tokens=6)


def test_a_chat_template_comes_along(tokenizer, tmp_path):
    """Its control tokens are tokens, as in the server."""
    from toeplix.serving.prompts import conversations_of

    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    source = changed(tokenizer, tmp_path / "source")
    (source / "chat_template.jinja").write_text(template)
    core, _ = pair(CASES["toeplitz"])
    folder = toeplix.save(core, tmp_path / "model", tokenizer=source)
    auto = AutoTokenizer.from_pretrained(folder)
    found = auto.apply_chat_template([{"role": "user", "content": "to be"}])
    served = conversations_of(folder, Tokenizer.load(folder)).tokens([("user", "to be")])
    assert found["input_ids"] == served == [0, *Tokenizer.load(folder).encode("to be"), 1]


def test_the_code_and_its_names_agree(tmp_path):
    core, model = pair(CASES["toeplitz"])
    assert pretrained_files.AUTO_MAPS["toeplix"] == modeling_toeplix.AUTO_MAP
    assert pretrained_files.AUTO_MAPS["toeplix_mamba2"] == modeling_toeplix_mamba2.AUTO_MAP
    assert pretrained_files.HOW_TO_LOAD == modeling_toeplix.HOW_TO_LOAD
    toeplix.save(core, tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    described = [
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("ours", "theirs")
    ]
    for name in ("auto_map", "how_to_load", "architectures", "model_type", "model"):
        assert described[0][name] == described[1][name]
    for name in pretrained_files.CODE["toeplix"]:
        files = [(tmp_path / folder / name).read_bytes() for folder in ("ours", "theirs")]
        assert files[0] == files[1]
        assert pretrained_files.CODE_MARK in files[0][: pretrained_files.CODE_MARK_WITHIN]


def test_only_files_of_a_tokenizer_come_along(tokenizer, tmp_path):
    """A downloaded model's directory may name the tokenizer: its weights' index is not copied."""
    source = changed(tokenizer, tmp_path / "source")
    for name in ("model.safetensors.index.json", "adapter_config.json", "notes.txt"):
        (source / name).write_text("{}")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes.txt").write_text("mine")
    core = toeplix.build(replace(ALL["hybrid"], vocab=300))
    folder = toeplix.save(core, tmp_path / "model", tokenizer=source)
    assert (folder / "notes.txt").read_text() == "mine"
    assert not list(folder.glob("*index.json")) + list(folder.glob("adapter*"))
    assert toeplix.load(folder).config == core.config
    assert "AutoTokenizer" in (folder / "README.md").read_text()
    alone = toeplix.save(core, tmp_path / "alone")
    assert "AutoTokenizer" not in (alone / "README.md").read_text()


def test_files_of_others_are_kept(tokenizer, tmp_path):
    core, _ = pair(CASES["toeplitz"])
    card, settings = tmp_path / "README.md", tmp_path / "generation_config.json"
    toeplix.save(core, tmp_path, tokenizer=tokenizer)
    before = card.read_text()
    toeplix.save(core, tmp_path)  # ours are written anew
    assert card.read_text() == before
    assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] == 1
    card.write_text("mine")
    settings.write_text('{"eos_token_id": [1, 5]}')
    toeplix.save(core, tmp_path, tokenizer=tokenizer)
    assert (card.read_text(), settings.read_text()) == ("mine", '{"eos_token_id": [1, 5]}')
    (tmp_path / "modeling_toeplix.py").write_text("print('mine')")
    weights = (tmp_path / "model.safetensors").stat().st_mtime_ns
    with pytest.raises(FileExistsError, match=r"modeling_toeplix\.py was not written by toeplix"):
        toeplix.save(core, tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == weights


def test_the_card_tells_what_is_known(tmp_path):
    core, _ = pair(CASES["toeplitz"])
    how = Trained(data="a | b", tokens=1234, val_loss=2.5, command="toeplix train --data x")
    text = (toeplix.save(core, tmp_path, trained=how) / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: toeplix\nlicense: unknown\n")
    for part in (
        "| data | a \\| b |",
        "| training tokens | 1,234 |",
        "| validation loss | 2.5000 nats per token |",
        "| licence of the data | unknown |",
        "\ntoeplix train --data x\n",
        f"dim {core.config.dim}, depth {core.config.depth}",
        "import toeplix.hub",
    ):
        assert part in text
    llama = toeplix.save(toeplix.build(ALL["llama"]), tmp_path / "llama")
    assert "toeplix.hub" not in (llama / "README.md").read_text()
    assert asdict(toeplix.load(llama).config) == asdict(ALL["llama"])


def mamba2_directory(folder):
    save(build(Model(arch="mamba2", dim=16, depth=1, context=16, vocab=37, state_size=8)), folder)
    return folder


def test_mamba2_rejects_what_it_would_ignore(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(mamba2_directory(tmp_path))
    tokens = torch.arange(6)[None]
    packed = torch.tensor([[0, 1, 2, 0, 1, 2]])
    with pytest.raises(ValueError, match=r"mamba2 cannot read packed rows \(position_ids\)"):
        model(tokens, position_ids=packed)
    with pytest.raises(ValueError, match=r"packed rows \(seq_idx\)"):
        model(tokens, seq_idx=torch.zeros(1, 6))
    with pytest.raises(ValueError, match="mamba2 has no attention weights"):
        model(tokens, output_attentions=True)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    padded = model(tokens, attention_mask=mask, position_ids=torch.tensor([[1, 1, 0, 1, 2, 3]]))
    assert torch.equal(padded.logits, model(tokens, attention_mask=mask).logits)
    assert torch.equal(model(tokens, position_ids=tokens).logits, model(tokens).logits)


def test_the_backbone_of_mamba2(tmp_path):
    folder = mamba2_directory(tmp_path)
    whole, backbone = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoModel.from_pretrained(folder),
    )
    tokens = torch.arange(6)[None]
    with torch.no_grad():
        features = backbone(tokens).last_hidden_state
        torch.testing.assert_close(whole.lm_head(features), whole(tokens).logits)


def test_ids_of_a_config_without_a_tokenizer():
    config = toeplix.hub.ToeplixConfig()
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (None, None, None)


def test_the_card_names_blocks_that_exist(tmp_path):
    save(build(Model(dim=16, depth=2, context=16, vocab=37)), tmp_path)
    assert "hybrid (toeplitz, lookup), dim 16" in (tmp_path / "README.md").read_text()
