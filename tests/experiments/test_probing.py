"""`toeplix probe`: retention of anybody's model, and what it says about what is none."""

import json

import pytest
import torch

from toeplix import Model, build, save
from toeplix.cli.main import main
from toeplix.data import Tokenizer
from toeplix.experiments import retention
from toeplix.experiments.engine import rows, text_probe
from toeplix.experiments.engine.collect import results_file
from toeplix.mixers.quantized import quantize

TEXT = "to be or not to be, that is the question, and so on until the end of the text. "
pytestmark = [pytest.mark.usefixtures("unchecked"), pytest.mark.slow]


@pytest.fixture
def source(tmp_path):
    """A file of many documents, some of them validation."""
    file = tmp_path / "texts.jsonl"
    lines = [json.dumps({"text": f"{number} {TEXT * 3}"}) for number in range(80)]
    file.write_text("\n".join(lines))
    return file


def ours(folder):
    tokenizer = Tokenizer.train([TEXT] * 20, 280)
    tokenizer.save(folder)
    save(build(Model(vocab=tokenizer.vocab, context=16, dim=16, depth=1)), folder)
    return tokenizer


def theirs(folder):
    """A model of GPT-2's kind, which we have no architecture for."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = Tokenizer.train([TEXT] * 20, 280)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    GPT2LMHeadModel(GPT2Config(vocab_size=tokenizer.vocab, **sizes)).save_pretrained(folder)
    tokenizer.save(folder)
    return tokenizer


def another(kind, **sizes):
    """A small model of a kind of Hugging Face's."""

    def made(folder):
        import transformers

        tokenizer = Tokenizer.train([TEXT] * 20, 280)
        config = getattr(transformers, f"{kind}Config")(vocab_size=tokenizer.vocab, **sizes)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        tokenizer.save(folder)

    return made


OPT = another(
    "OPT",
    **{"hidden_size": 16, "word_embed_proj_dim": 8, "num_hidden_layers": 1, "ffn_dim": 16},
    num_attention_heads=2,
    max_position_embeddings=32,
)
MAMBA = another("Mamba", hidden_size=16, num_hidden_layers=1, state_size=4)
BERT = another(
    "Bert", hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", "probe", *map(str, arguments)])
    main()


@pytest.mark.parametrize("kind", [ours, theirs, OPT, MAMBA])
def test_a_model_beside_an_untrained_one_and_none(kind, tmp_path, source, monkeypatch, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    kind(folder)
    sizes = ("--context", 8, "--steps", 3, "--batch", 4)
    places = ("--data", source, "--work", tmp_path / "work", "--results", tmp_path / "results")
    run(monkeypatch, folder, *sizes, *places, "--json")
    found = json.loads(capsys.readouterr().out)
    assert [row["encoder"] for row in found["model"]] == list(text_probe.ENCODERS)
    assert all(row["loss"] > 0 for row in found["model"])
    assert found["model"][-1]["share"] == 0
    assert found["ours"] == []


def test_the_hidden_state_is_that_of_the_last_layer(tmp_path):
    """As the library itself gives it, after the final norm."""
    from transformers import AutoModelForCausalLM

    theirs(tmp_path)
    tokens = torch.randint(200, (2, 9))
    whole = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        wanted = whole(tokens, output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(text_probe.opened(tmp_path).encode(tokens), wanted)
        fresh = text_probe.opened(tmp_path, fresh=True).encode(tokens)
    assert not torch.allclose(fresh, wanted)


def test_quantized_weights_stay_quantized(tmp_path):
    """Both texts: short ones go through the kernel for few rows, which reads the stored dtype."""
    model = build(Model(vocab=280, context=32, dim=16, depth=1)).eval()
    quantize(model, "int8")
    save(model, tmp_path)
    with torch.no_grad():
        for time in (3, 32):
            tokens = torch.randint(280, (1, time))
            assert torch.equal(text_probe.opened(tmp_path).encode(tokens), model.encode(tokens))


def test_rows_of_the_experiment_stand_beside(tmp_path):
    fields = {"model": "hyena", "training": "language", "seed": 0, "lr": 0.004}
    state = {"case": fields | {"part": "matched", "probe": {"signal": "state"}}}
    none = {"case": fields | {"part": "control", "probe": {"signal": "none"}}}
    file = results_file("retention", "laptop", tmp_path)
    rows.append(file, state | {"found": {"loss": 3.0, "accuracy": 0.3}})
    rows.append(file, none | {"found": {"loss": 6.0, "accuracy": 0.1}})
    (found,) = text_probe.beside(tmp_path)
    assert found["encoder"] == "hyena, language"
    assert found["share"] == 0.5
    assert text_probe.Probe().probe == retention.MATCHED


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no directory"),
        ({}, "there is no config.json in it"),
        ({"config.json": "{"}, "config.json is damaged"),
        ({"config.json": '{"model_type": "nobody"}'}, "cannot be loaded as a causal model"),
        ({"config.json": '{"model_type": "gpt2"}'}, "cannot be loaded as a causal model"),
    ],
)
def test_what_is_no_model_is_said_in_one_line(content, words, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "model"
    if content is not None:
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_text(text)
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, folder)
    assert leaving.value.code == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert said.splitlines()[-1].startswith("toeplix: ")


def test_a_model_without_its_tokens(tmp_path, source, monkeypatch, capsys):
    folder = tmp_path / "model"
    save(build(Model(vocab=300, context=16, dim=16, depth=1)), folder)
    with pytest.raises(SystemExit):
        run(monkeypatch, folder, "--data", source, "--work", tmp_path)
    assert "has no tokenizer.json: save the tokenizer beside the model" in capsys.readouterr().err


def test_a_store_of_other_tokens(tmp_path, source, monkeypatch, capsys):
    from toeplix.data import Recipe
    from toeplix.data import build as store

    folder = tmp_path / "model"
    save(build(Model(vocab=100, context=16, dim=16, depth=1)), folder)
    store(Recipe(sources=(str(source),), vocab=300, val_fraction=0.2), tmp_path / "store")
    with pytest.raises(SystemExit):
        run(monkeypatch, folder, "--data", tmp_path / "store")
    assert (
        "tokens, the model 100: take a store of the model's own tokens" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("kind", "context", "words"),
    [
        (ours, 32, "texts of 32 tokens are longer than the 16 that the model reads"),
        (theirs, 64, "texts of 64 tokens are longer than the 32 that the model reads"),
        (BERT, 8, "is no causal model: a later token changes earlier hidden states"),
    ],
)
def test_what_cannot_be_probed_is_said(kind, context, words, tmp_path, source, monkeypatch, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    kind(folder)
    options = ("--context", context, "--data", source, "--work", tmp_path / "work")
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, folder, *options)
    assert leaving.value.code == 2
    assert words in capsys.readouterr().err


def test_a_name_is_asked_for_at_the_hub(tmp_path, monkeypatch):
    """What it gives is opened as a directory is; what it does not give is told in a line."""
    ours(tmp_path)
    asked = []

    def give(name, *, allow_patterns):
        asked.append((name, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", give)
    assert text_probe.folder_of("somebody/model") == tmp_path
    assert asked == [("somebody/model", ["*.json", "*.safetensors", "*.model"])]

    def refuse(name, *, allow_patterns):
        raise OSError("no network\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(FileNotFoundError, match=r"hub does not give it: no network$"):
        text_probe.folder_of("somebody/model")
    with pytest.raises(FileNotFoundError, match=r"there is no directory \./nowhere"):
        text_probe.folder_of("./nowhere")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_checkpoint_in_half_precision(source, tmp_path, monkeypatch, capsys, dtype):
    folder = tmp_path / "model"
    tokenizer = Tokenizer.train([TEXT] * 20, 280)
    tokenizer.save(folder)
    save(build(Model(vocab=tokenizer.vocab, context=16, dim=16, depth=1)).to(dtype), folder)
    given = [folder, "--data", source, "--steps", 2, "--batch", 4, "--work", tmp_path / "work"]
    run(monkeypatch, *given, "--json")
    found = json.loads(capsys.readouterr().out)["model"]
    assert all(row["loss"] > 0 for row in found)


def test_a_seed_beyond_all_generators(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, tmp_path, "--seed", 2**64)
    assert leaving.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(ValueError, match="seed=-1 must be in 0"):
        text_probe.Probe(seed=-1)
