"""Records refuse nonsense at birth; checkpoints refuse what does not fit."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import normalize

from toeplix import Model, build, load, save


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"arch": "rnn"}, "arch='rnn' must be one of toeplitz"),
        ({"dim": 30, "heads": 4}, "dim=30 is not a multiple of heads=4"),
        ({"depth": 0}, "depth=0 must be at least 1"),
        ({"dropout": 1.0}, r"dropout=1.0 must be in \[0, 1\)"),
        ({"arch": "llama", "dim": 30}, "dim=30 is not a multiple of heads=4"),
        ({"arch": "hyena", "filter_features": 4}, "filter_features=4 must be odd"),
        ({"arch": "hyena", "heads": 2}, "heads=2 has no effect on arch='hyena': leave it out"),
        ({"window": 64}, "window=64 has no effect on arch='hybrid'"),
        ({"arch": "toeplitz", "keys": 4}, "keys=4 has no effect on arch='toeplitz'"),
        ({"blocks": ("toeplitz", "rnn")}, "blocks=.*must be names of mixers, each one of toeplitz"),
        ({"blocks": ()}, "must be names of mixers"),
        ({"blocks": ("rnn",)}, r"blocks=\('rnn',\) must be names of mixers, each one of toeplitz"),
        ({"blocks": ("",)}, r"blocks=\('',\) must be names of mixers"),
        ({"embedding_norm": 1e300}, r"embedding_norm=1e\+300 must be finite in float32"),
        ({"gate_bias": -3.5e38}, r"gate_bias=-3\.5e\+38 must be finite in float32"),
        ({"arch": "hyena", "filter_frequency": 10**39}, "filter_frequency=10+ must be finite in"),
        ({"arch": "hyena", "blocks": ("masked", "lookup")}, "leave arch='hyena' out"),
        (
            {"blocks": ("toeplitz", "lookup"), "init": "paper"},
            "init='paper' is not one of models with several mixers",
        ),
        ({"arch": "toeplitz", "filter": "free", "decays": 3}, "decays=3 are those of recurrent"),
        ({"arch": "lookup", "filter": "free", "decays": 3}, "decays=3 are those of recurrent"),
        (
            {"blocks": ("linear", "lookup"), "filter": "free", "decays": 3},
            "decays=3 are those of recurrent",
        ),
        ({"filter": "recurrent", "kernels": 2}, "kernels=2 is for filter='free'"),
        ({"groups": 3}, "dim=512 is not a multiple of groups=3"),
        ({"groups": 2, "heads": 2}, "groups=2 divide the channels of a flat mixer"),
        ({"embedding_norm": -1}, "embedding_norm=-1.0 must be at least 0"),
        ({"arch": "mamba2", "embedding_norm": 1.0}, "embedding_norm=1.0 has no effect on arch"),
        ({"frozen": "yes"}, "frozen='yes' must be one of no, random, ones"),
    ],
)
def test_nonsense_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Model(**fields)


@pytest.mark.usefixtures("unchecked")
def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match=r"dim=1\.5 must be an integer"):
        Model(dim=1.5)


TINY = Model(vocab=11, context=8, dim=8, depth=1, heads=2)


def test_a_checkpoint_that_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load(tmp_path)


def test_a_damaged_checkpoint(tmp_path):
    save(build(TINY), tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="is damaged"):
        load(tmp_path)


def test_a_strangers_file(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="not written by toeplix"):
        load(tmp_path)


def test_weights_that_do_not_fit(tmp_path):
    record = json.dumps({"vocab": 11, "context": 8, "dim": 8, "depth": 1, "heads": 2})
    model = build(TINY)
    weights = dict(model.state_dict())
    del weights["norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"model": record})
    with pytest.raises(ValueError, match=r"missing \['norm.weight'\]"):
        load(tmp_path)


def test_a_newer_versions_settings_are_named(tmp_path):
    save_file({}, tmp_path / "model.safetensors", metadata={"model": json.dumps({"colour": "red"})})
    with pytest.raises(ValueError, match="unknown to this version: colour"):
        load(tmp_path)


def test_saving_again_leaves_other_files(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    save(build(TINY), tmp_path)
    save(build(TINY), tmp_path)
    names = {entry.name for entry in tmp_path.iterdir()}
    written = {"model.safetensors", "config.json", "modeling_toeplix.py", "README.md"}
    assert names == {"tokenizer.json"} | written


@pytest.mark.parametrize("text", ["{bad", "[]", "3", '{"dropout": "x"}', '{"dim": 1.5}'])
def test_a_record_that_is_none(tmp_path, text):
    save_file({}, tmp_path / "model.safetensors", metadata={"model": text})
    with pytest.raises(ValueError, match=r"model\.safetensors has a bad configuration"):
        load(tmp_path)


def test_half_precision_comes_back(tmp_path):
    model = build(TINY).bfloat16()
    again = load(save(model, tmp_path))
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    tokens = torch.randint(11, (1, 6))
    with torch.no_grad():
        assert torch.equal(again(tokens), model(tokens))


def test_others_may_read_it_and_failure_leaves_nothing(tmp_path, monkeypatch):
    folder = save(build(TINY), tmp_path / "good")
    assert {entry.stat().st_mode & 0o444 for entry in folder.iterdir()} == {0o444}

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("toeplix.checkpoint.save_file", full)
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(OSError, match="no space"):
        save(build(TINY), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert len(list(folder.iterdir())) == 4


def test_decays_where_a_mixer_reads_them():
    """All mixers of a model have one kind of filter, so one rule holds for hybrids too."""
    for blocks in (("lookup",), ("linear", "lookup"), ("toeplitz", "lookup")):
        assert Model(blocks=blocks, decays=3).decays == 3
        assert Model(blocks=blocks, filter="free").decays == Model.decays


def test_one_mixer_is_an_architecture():
    assert Model(blocks=("hyena",)) == Model(blocks=("hyena", "hyena")) == Model(arch="hyena")
    assert Model(blocks=["toeplitz", "lookup"]) == Model(blocks=("toeplitz", "lookup"))
    assert Model(arch="llama").blocks == ()
    assert Model(depth=6).mixers == ("toeplitz", "lookup", *["toeplitz"] * 3, "lookup")
    assert replace(Model(), arch="hyena").mixers == ("hyena",) * 16


def test_where_gates_start():
    sizes = {"vocab": 20, "context": 8, "dim": 8, "depth": 1}
    for config, bias in ((Model(**sizes), 1.0), (Model(**sizes, gate_bias=0.25), 0.25)):
        gate = build(config).blocks[0].token_mixer.gate
        assert gate.bias.tolist() == [bias] * 8
    with pytest.raises(ValueError, match=r"gate_bias=0.0 has no effect without a gate"):
        Model(arch="toeplitz", gate=False, gate_bias=0.0)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_where_the_norm_of_embeddings_starts(norm):
    sizes = {"vocab": 20, "context": 8, "dim": 8, "depth": 1, "norm": norm}
    model = build(Model(**sizes, embedding_norm=2.5))
    x = model.embed(torch.arange(20)[None])
    torch.testing.assert_close(
        x.square().mean(-1).sqrt(), torch.full((1, 20), 2.5), rtol=0.1, atol=0
    )
    plain = build(Model(**sizes, embedding_norm=0))
    assert torch.equal(plain.embed(torch.arange(20)[None])[0], plain.embedding.weight)
    assert Model.paper().embedding_norm == 0
    tied = build(Model(**sizes, tie_embeddings=True))
    assert torch.equal(tied.embed(torch.arange(20)[None])[0], tied.embedding.weight)


@pytest.mark.parametrize("taps", [2, 3, 5])
def test_where_lookup_starts(taps):
    """Queries and values are read where they are, keys shifted by one position, plus noise."""
    config = Model(
        arch="lookup", vocab=20, context=8, dim=8, depth=1, heads=2, keys=3, short_conv=taps
    )
    mixer = build(config).blocks[0].token_mixer
    x = torch.randn(1, 7, 8)
    wide = mixer.project_in(x)
    noise = mixer.short.weight[6:12, 0, -1]
    late = torch.cat([torch.zeros(1, 1, 6), wide[:, :-1, 6:12]], 1) + noise * wide[..., 6:12]
    q, k, v = mixer.queries_keys_values(x)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(q, normalize(wide[..., :6].unflatten(-1, (2, 3)), dim=-1), **close)
    torch.testing.assert_close(v.flatten(2), wide[..., 12:])
    torch.testing.assert_close(
        k[:, 1:], normalize(late[:, 1:].unflatten(-1, (2, 3)), dim=-1), **close
    )
    assert 0 < noise.abs().max() < 0.5


def test_numbers_are_one_record():
    assert Model(dropout=0).digest == Model(dropout=0.0).digest
    assert Model(arch="hyena", dim=30).dim == 30, "hyena has no heads to divide"


def test_the_papers_heads():
    assert Model.paper().heads == 4
    assert Model.paper(arch="masked").heads == 0
    assert Model.paper(arch="masked", heads=4).heads == 4
    assert Model.paper(arch="llama").attention_heads == 4
