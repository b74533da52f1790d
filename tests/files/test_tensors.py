"""Files of tensors: for Hugging Face's reader, equal bytes for equal tensors, no silent damage."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from safetensors.torch import save_file as their_save_file

from tests.toy import toy_store
from toeplix import Model, build, load, save
from toeplix.data import Tokenizer
from toeplix.files import DamagedFile
from toeplix.files.tensors import read_file, save_file

ROOT = Path(__file__).parents[2]
TINY = Model(vocab=11, context=8, dim=8, depth=1, heads=2)
TENSORS = {
    "b": torch.randn(3, 5),
    "a": torch.randn(7).double(),
    'é "quoted"\n': torch.randn(2, 2).bfloat16(),
    "none": torch.zeros(0, 4),
    "one": torch.tensor(3.5),
    "half": torch.randn(3).half(),
    "count": torch.arange(5),
    "turned": torch.randn(4, 6).t(),
}


def test_their_reader_reads_it(tmp_path):
    metadata = {"z": "1", "model": json.dumps({"a": "ü"}), "format": "pt"}
    save_file(TENSORS, tmp_path / "ours", metadata)
    found = load_file(tmp_path / "ours")
    assert set(found) == set(TENSORS)
    for name, value in TENSORS.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)
    with safe_open(tmp_path / "ours", framework="pt") as opened:
        known = opened.metadata()
    assert {name: known[name] for name in metadata} == metadata
    again, same = read_file(tmp_path / "ours")
    assert same == known
    assert all(torch.equal(again[name], value) for name, value in TENSORS.items())


def test_the_data_lie_as_their_writer_puts_them(tmp_path):
    """The header aside: it has a checksum more."""
    their_save_file({k: v.contiguous() for k, v in TENSORS.items()}, tmp_path / "theirs")
    save_file(TENSORS, tmp_path / "ours")

    def data(name):
        content = (tmp_path / name).read_bytes()
        return content[8 + int.from_bytes(content[:8], "little") :]

    assert data("ours") == data("theirs")
    assert int.from_bytes((tmp_path / "ours").read_bytes()[:8], "little") % 8 == 0


@pytest.mark.slow
def test_no_flipped_bit_is_loaded(tmp_path):
    """Every third byte of a whole checkpoint, one bit of it."""
    save(build(TINY), tmp_path)
    file = tmp_path / "model.safetensors"
    whole, truth = file.read_bytes(), load(tmp_path).state_dict()
    chosen = random.Random(0)
    silent = 0
    for place in range(0, len(whole), 3):
        content = bytearray(whole)
        content[place] ^= 1 << chosen.randrange(8)
        file.write_bytes(content)
        try:
            found = load(tmp_path).state_dict()
        except ValueError:
            continue
        silent += 1  # in the checksum's own name, which leaves a file without a checksum
        assert all(torch.equal(found[name], value) for name, value in truth.items())
    assert silent <= len("sha256")


def test_a_flipped_weight_is_named_and_may_be_loaded_if_asked(tmp_path):
    save(build(TINY), tmp_path)
    file = tmp_path / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 64
    file.write_bytes(content)
    with pytest.raises(
        DamagedFile, match=r"model\.safetensors is damaged: its sha256 is .*copy it"
    ):
        load(tmp_path)
    load(tmp_path, check=False)


def test_files_of_others_have_no_checksum(tmp_path):
    """Of an earlier version, as it wrote them."""
    model = build(TINY)
    save(model, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    record = {"toeplix": "0.1", "model": json.dumps(vars(TINY)), "format": "pt"}
    their_save_file(weights, tmp_path / "model.safetensors", metadata=record)
    tokens = torch.randint(11, (1, 6))
    assert torch.equal(load(tmp_path)(tokens), model.eval()(tokens))


def test_what_lies_beside_the_weights_must_agree(tmp_path):
    tokenizer = Tokenizer.train(["to be or not to be"] * 9, 270)
    tokenizer.save(tmp_path / "tokenizer")
    folder = tmp_path / "model"
    save(build(TINY), folder, tokenizer=tmp_path / "tokenizer")
    load(folder)
    assert Tokenizer.load(folder).vocab == tokenizer.vocab
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": "{{ x }}"}))
    load(folder)  # which anybody may add
    for name, change in (
        ("config.json", lambda text: text.replace('"dim": 8', '"dim": 9')),
        ("config.json", lambda text: "[" * 100_000),
        ("config.json", lambda text: '{"model": 5}'),
        ("tokenizer.json", lambda text: text.replace("<|pad|>", "<|paf|>")),
        ("tokenizer_config.json", lambda text: text.replace("<|bos|>", "<|eos|>")),
        ("tokenizer_config.json", lambda text: "null"),
    ):
        before = (folder / name).read_text()
        (folder / name).write_text(change(before))
        with pytest.raises(DamagedFile, match=name):
            load(folder)
        load(folder, check=False)
        (folder / name).write_text(before)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    load(folder)  # the weights' file alone is a checkpoint


TRAIN = """
import sys, torch
from tests.toy import toy_run
from toeplix.data import Store
from toeplix.training.loop import fit
torch.set_num_threads(1)
fit(toy_run(Store.open(sys.argv[1]), steps=12), sys.argv[2])
"""
TIMED = {"metrics.jsonl", "summary.md", "state.json", "manifest.json"}  # of state.json, its sha256


@pytest.mark.slow
def test_two_equal_runs_write_equal_bytes(tmp_path):
    """In processes that hash differently. What holds times is excepted."""
    store = toy_store(tmp_path)
    found = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        command = [sys.executable, "-c", TRAIN, str(store.directory), str(out)]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        files = [file for file in sorted(out.rglob("*")) if file.is_file()]
        found.append({str(file.relative_to(out)): file.read_bytes() for file in files})
    one, other = found
    assert set(one) == set(other)
    names = {name for name in one if Path(name).name not in TIMED}
    assert {name for name in names if one[name] != other[name]} == set()
    assert {"run.json", "samples.txt", "model/model.safetensors", "model/tokenizer.json"} <= names
    assert any(name.endswith("optimizer.safetensors") for name in names)
