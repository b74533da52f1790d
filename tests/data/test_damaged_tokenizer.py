"""Tokenizer files that are not what they should be: one error, at once, before anything is built."""

import copy
import json
import random
import time

import numpy as np
import pytest

from toeplix.data import Recipe, Tokenizer, build, fetch
from toeplix.data.encoding import Encoder
from toeplix.data.tokenizer import MAX_VOCAB
from toeplix.files import DamagedFile

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def saved(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def with_id(described, number):
    described["model"]["vocab"]["Zebra"] = number


CHANGES = {
    "id of 10**9": lambda each: with_id(each, 10**9),
    "id beyond the bound": lambda each: with_id(each, MAX_VOCAB),
    "negative": lambda each: with_id(each, -1),
    "fraction": lambda each: with_id(each, 1.5),
    "bool": lambda each: with_id(each, True),
    "text": lambda each: with_id(each, "7"),
    "added id of 10**9": lambda each: each["added_tokens"][0].update(id=10**9),
    "added id missing": lambda each: each["added_tokens"][0].pop("id"),
    "added is no list": lambda each: each.update(added_tokens=5),
    "added holds no records": lambda each: each.update(added_tokens=[5]),
    "no model": lambda each: each.pop("model"),
    "model of another kind": lambda each: each.update(model=[1]),
    "no vocabulary": lambda each: each["model"].pop("vocab"),
    "vocabulary of another kind": lambda each: each["model"].update(vocab=5),
    "empty": lambda each: (each["model"].update(vocab={}, merges=[]), each.update(added_tokens=[])),
    "merges of what is not there": lambda each: each["model"].update(merges=[["q", "zzz"]]),
    "dropout": lambda each: each["model"].update(dropout=7),
}


@pytest.mark.parametrize("name", CHANGES)
def test_sizes_are_bounded_before_anything_is_built(saved, name):
    described = json.loads((saved / "tokenizer.json").read_text())
    CHANGES[name](described)
    (saved / "tokenizer.json").write_text(json.dumps(described))
    begun = time.monotonic()
    with pytest.raises(DamagedFile, match=r"damaged tokenizer: tokenizer\.json is damaged: .*; "):
        Tokenizer.load(saved)
    with pytest.raises(ValueError, match="cannot be loaded: "):
        fetch(str(saved), saved.parent / "copy")
    assert time.monotonic() - begun < 20
    assert not (saved.parent / "copy").exists()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "text", ["", "{", "5", "null", "[]", "\x00", DEEP, '{"a": ' + DEEP + "}", b"\xff\xfe", "{}"]
)
def test_files_of_another_kind(saved, name, text):
    (saved / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DamagedFile, match=rf"{name} is damaged: .*; copy the tokenizer again"):
        Tokenizer.load(saved)


@pytest.mark.parametrize("value", [5, ["<|eos|>"], {"content": 5}, {}, True, "\ud800"])
def test_control_tokens_of_another_kind(saved, value):
    for key in ("bos_token", "eos_token", "pad_token"):
        config = json.loads((saved / "tokenizer_config.json").read_text())
        written = json.dumps(config | {key: value})
        (saved / "tokenizer_config.json").write_text(written)
        with pytest.raises(DamagedFile, match=r"tokenizer_config\.json is damaged: "):
            Tokenizer.load(saved)
        (saved / "tokenizer_config.json").write_text(json.dumps(config))


def test_flipped_bits_raise_nothing_else(saved, texts):
    """What loads also encodes, counts and goes back."""
    chosen, outcomes = random.Random(0), {True: 0, False: 0}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        whole = (saved / name).read_bytes()
        for _ in range(150):
            content = bytearray(whole)
            content[chosen.randrange(len(whole))] ^= 1 << chosen.randrange(8)
            (saved / name).write_bytes(content)
            try:
                found = Tokenizer.load(saved)
            except DamagedFile:
                outcomes[False] += 1
                continue
            assert found.vocab <= MAX_VOCAB
            found.decode(found.encode(texts[0]))
            Encoder(found)(texts[:2])
            outcomes[True] += 1
        (saved / name).write_bytes(whole)
    assert min(outcomes.values()) > 10


def test_text_that_a_tokenizer_cannot_encode_is_told(saved):
    described = json.loads((saved / "tokenizer.json").read_text())
    words = copy.deepcopy(described)
    words["model"] = {
        "type": "WordPiece",
        "unk_token": "[gone]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"a": 3},
    }
    (saved / "tokenizer.json").write_text(json.dumps(words))
    found = Tokenizer.load(saved)
    with pytest.raises(ValueError, match=r"the tokenizer cannot encode this text: .*UNK"):
        found.encode("b")
    with pytest.raises(ValueError, match="the tokenizer cannot encode this text"):
        Encoder(found)(["b"])


def test_a_directory_whose_name_is_not_utf8(tokenizer, lines, tmp_path):
    tokenizer.save(tmp_path / "\udcff")
    assert Tokenizer.load(tmp_path / "\udcff").encode("text") == tokenizer.encode("text")
    store = build(Recipe(sources=(lines,), vocab=300), tmp_path / "\udcfe")
    assert np.asarray(store.train.tokens).max() < 300
