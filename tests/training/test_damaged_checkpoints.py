"""Checkpoints that are not what they say: one line, no hang, and nothing built that the file has not."""

import json
import time
from dataclasses import asdict, replace

import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save_file as their_save_file

from tests.models import FREE
from tests.test_architectures import CASES
from toeplix import Model, build, load, save
from toeplix.architectures import stored_numbers
from toeplix.checkpoint import own, stored
from toeplix.cli.main import main
from toeplix.config import MAX_LAYERS
from toeplix.data import Tokenizer
from toeplix.files import DamagedFile
from toeplix.hub import ToeplixConfig
from toeplix.reports import filters
from toeplix.tasks import probes

TINY = Model(**FREE, vocab=300, context=8, dim=8, depth=1, heads=2)


@pytest.fixture
def folder(tmp_path):
    tokenizer = Tokenizer.train(["to be or not to be"] * 9, 270)
    tokenizer.save(tmp_path)
    save(build(TINY), tmp_path)
    return tmp_path


def rewrite(folder, change=lambda weights: weights, record=None, **metadata):
    """As somebody else would write it: no checksum."""
    file = folder / "model.safetensors"
    weights = change(load_file(file))
    described = json.dumps(asdict(TINY) | record) if isinstance(record, dict) else record
    told = {"model": described or json.dumps(asdict(TINY))} | metadata
    (folder / "config.json").unlink(missing_ok=True)
    their_save_file(weights, file, metadata=told)


def generated(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["toeplix", "generate", *map(str, arguments)])
    status = 0
    try:
        main()
    except SystemExit as leaving:
        status = leaving.code
    return status, capsys.readouterr()


@pytest.mark.parametrize("name", CASES)
def test_the_number_of_stored_numbers_by_formula(name):
    model = build(CASES[name])
    assert stored_numbers(CASES[name]) == sum(value.numel() for value in own(model).values())


@pytest.mark.parametrize(
    "record",
    [
        {"depth": 10**9},
        {"depth": MAX_LAYERS},
        {"depth": 10**30},
        {"sequential": 10**9},
        {"kernels": 10**9},
        {"context": 10**9},
        {"vocab": 2**31 - 1},
        {"dim": 2**31 - 2},
        {"mlp_ratio": 10**9},
        {"arch": "hyena", "order": 10**9},
        {"arch": "mamba2", "state_size": 10**9},
        {"arch": "llama", "depth": 10**4},
        {"depth": 1.5},
        {"depth": None},
        {"depth": [3]},
        "[" * 100_000,
        "null",
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_sizes_in_the_record_are_not_trusted(folder, monkeypatch, capsys, record):
    rewrite(folder, record=record)
    start = time.monotonic()
    status, said = generated(monkeypatch, capsys, folder, "to")
    assert status == 2
    assert said.err.count("\n") == 1
    assert "model.safetensors" in said.err
    assert time.monotonic() - start < 5
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: {k: v.to(torch.int32) for k, v in w.items()}, "is of type int32"),
        (lambda w: {k: v.to(torch.float8_e4m3fn) for k, v in w.items()}, "is of type float8"),
        (lambda w: w | {"head.weight": w["head.weight"] * float("nan")}, "head.weight has values"),
        (lambda w: w | {"norm.bias": w["norm.bias"] + float("inf")}, "norm.bias has values"),
        (lambda w: {k: v * 1e37 for k, v in w.items()}, "largest logit is nan"),
    ],
)
@pytest.mark.parametrize("temperature", ["0", "1"])
def test_weights_that_are_no_numbers(folder, monkeypatch, capsys, change, words, temperature):
    rewrite(folder, change)
    given = [folder, "to", "--temperature", temperature]
    status, said = generated(monkeypatch, capsys, *given)
    assert status == 2
    assert said.err.count("\n") == 1
    assert words in said.err or (temperature == "1" and "probabilities add up to nan" in said.err)


@pytest.mark.parametrize("name", ["toeplitz", "hyena", "masked", "linear", "llama", "mamba2"])
def test_mixed_precision_becomes_the_widest(tmp_path, name):
    config = CASES[name]
    model = build(config).eval()
    save(model, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    halves = {key: value.half() for key, value in list(weights.items())[::2]}
    their_save_file(
        weights | halves,
        tmp_path / "model.safetensors",
        metadata={"model": json.dumps(asdict(config))},
    )
    loaded = load(tmp_path)
    assert {value.dtype for value in own(loaded).values()} == {torch.float32}
    tokens = torch.randint(config.vocab, (1, 9))
    with torch.no_grad():
        assert torch.isfinite(loaded(tokens)).all()
    for key, value in stored(own(loaded), config).items():
        assert torch.equal(value, halves[key].float() if key in halves else weights[key])


def test_sines_stay_wide_in_a_file_of_halves(tmp_path):
    config = replace(CASES["hyena"])
    save(build(config), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    told = {"model": json.dumps(asdict(config))}
    halves = {key: value.bfloat16() for key, value in weights.items()}
    their_save_file(halves, tmp_path / "model.safetensors", metadata=told)
    kinds = {".filter." in key: value.dtype for key, value in own(load(tmp_path)).items()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}


def test_autoencoders_are_bounded_too(tmp_path):
    probes.save(probes.autoencoder(TINY), tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    good = {"encoder": asdict(TINY), "decoder": asdict(TINY), "settings": {}}
    for record in (
        good | {"encoder": asdict(TINY) | {"depth": MAX_LAYERS}},
        good | {"decoder": {"depth": 10**9}},
        good | {"settings": {"colour": 3}},
        good | {"settings": 3},
        {"encoder": 5},
        [],
    ):
        their_save_file(weights, file, metadata={"autoencoder": json.dumps(record)})
        with pytest.raises(DamagedFile):
            probes.load(tmp_path)


def test_filters_of_a_damaged_file_are_not_read(folder):
    filters.read(folder)
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedFile, match="sha256"):
        filters.read(folder)


@pytest.mark.parametrize(
    "record",
    [
        {"model": {"depth": 10**9}},
        {"model": {"depth": "x"}},
        {"num_hidden_layers": 10**9},
        {"model": 5},
        {"model": {"vocab": 10**30}},
        {"vocab_size": -1},
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_sizes_in_a_configuration_of_the_hub_are_bounded(record):
    with pytest.raises(ValueError, match="must be"):
        ToeplixConfig(**record)
