"""Tokenizers give every string back, keep control tokens out of text, and load in Hugging Face."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from toeplix.data import Tokenizer, fetch
from toeplix.data.encoding import Encoder, cut
from toeplix.data.tokenizer import digest

AWKWARD = ["", "{", "\r", "\x00\x1c\x85", "<|eos|>", "a <|bos|>b", " \u2028 x", "  a\n \n b \n"]
STRINGS = st.one_of(
    st.text(),
    st.text(alphabet="ab .,'<|>eos\n\t\r \u3000é1"),
    st.lists(st.sampled_from([*AWKWARD, "<|pad|>", " ", "\n", "don't", "x"])).map("".join),
)


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def reloaded(saved):
    return Tokenizer.load(saved)


@pytest.fixture(scope="module")
def auto(saved):
    return AutoTokenizer.from_pretrained(str(saved))


@pytest.fixture(scope="module")
def encoder(reloaded):
    return Encoder(reloaded)


@pytest.mark.slow
@given(text=STRINGS)
def test_every_string_comes_back(tokenizer, reloaded, auto, text):
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert reloaded.encode(text) == tokens
    assert reloaded.decode(np.array(tokens, np.uint16)) == text
    assert auto(text)["input_ids"] == [tokenizer.start, *tokens]
    assert auto(text, add_special_tokens=False)["input_ids"] == tokens
    assert auto.decode(tokens) == text


@given(text=STRINGS)
def test_control_tokens_in_a_text_stay_text(tokenizer, text):
    assert not {tokenizer.start, tokenizer.end, tokenizer.pad} & set(tokenizer.encode(text))


@given(text=STRINGS)
def test_the_fast_way_gives_the_same_tokens(tokenizer, encoder, text):
    """The library's own encoding of the whole string is the witness."""
    assert "".join(cut(text)) == text
    assert np.frombuffer(encoder([text])[0], np.uint16).tolist() == tokenizer.encode(text)


@pytest.mark.slow
def test_the_fast_way_beside_every_character(tokenizer, encoder):
    """Whatever counts as white space, a letter or a digit, on both sides of a cut."""
    kept = [chr(code) for code in range(0x3100)] + list("\ufeff\U00010330\U0001f642\U0001d7d8")
    text = [f"a{c} b {c}c\n{c} {c}\n\n{c}x {c}" for c in kept]
    for one, coded in zip(text, encoder(text), strict=True):
        assert np.frombuffer(coded, np.uint16).tolist() == tokenizer.encode(one), repr(one)


def test_the_memory_of_pieces_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr("toeplix.data.encoding.MAX_CACHED_PIECES", 10)
    encoder = Encoder(tokenizer)
    long = "x" * 1000
    for number in range(50):
        encoder([f"{number} {number + 1} {long}"])
    assert len(encoder._pieces) <= 13
    assert max(map(len, encoder._pieces)) < 1000


def test_all_bytes_are_in_the_alphabet_and_counted(tokenizer):
    text = "".join(map(chr, range(0x250))) + "東京 🙂 <|eos|> the model"
    lengths = tokenizer.token_bytes()
    assert lengths[tokenizer.encode(text)].sum() == len(text.encode())
    assert (lengths == 1).sum() == 256
    assert lengths[[tokenizer.start, tokenizer.end, tokenizer.pad]].tolist() == [0, 0, 0]
    assert len({tokenizer.start, tokenizer.end, tokenizer.pad}) == 3


def test_training_is_a_function(texts, tokenizer, saved, tmp_path):
    Tokenizer.train(texts, 400).save(tmp_path)
    assert digest(tmp_path) == digest(saved)
    assert tokenizer.vocab == 400
    assert tokenizer.dtype == np.uint16


def test_the_vocabulary_may_stay_small(tmp_path):
    assert Tokenizer.train(["aa"], 5000).vocab == 260
    with pytest.raises(ValueError, match="vocab=259 must be at least 260"):
        Tokenizer.train(["aa"], 259)


def test_a_tokenizer_of_hugging_face_by_name(saved, tmp_path):
    auto = AutoTokenizer.from_pretrained(str(saved))
    auto.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    auto.save_pretrained(str(tmp_path / "foreign"))
    found = fetch(str(tmp_path / "foreign"), tmp_path / "copy")
    assert (found.start, found.end) == tuple(auto.convert_tokens_to_ids(["<s>", "</s>"]))
    assert found.vocab == 402
    assert found.decode(found.encode("a </s>")) == "a </s>"
    with pytest.raises(ValueError, match=r"tokenizer .*gone cannot be loaded"):
        fetch(str(tmp_path / "gone"), tmp_path / "copy")


def test_without_pad_or_start_the_end_serves(saved, tmp_path):
    text = (saved / "tokenizer_config.json").read_text()
    (tmp_path / "tokenizer.json").write_bytes((saved / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|eos|>"}}')
    found = Tokenizer.load(tmp_path)
    assert found.start == found.end == found.pad == 1
    (tmp_path / "tokenizer_config.json").write_text(text.replace("eos_token", "other"))
    with pytest.raises(ValueError, match="has no eos_token"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<none>"}')
    with pytest.raises(ValueError, match="'<none>' is not in the tokenizer's vocabulary"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="damaged tokenizer"):
        Tokenizer.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no tokenizer: there is no tokenizer\.json"):
        Tokenizer.load(tmp_path / "gone")


def test_tokenizers_of_another_kind_take_the_ordinary_way(texts):
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers, trainers

    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = ["[UNK]", "[END]"]
    backend.train_from_iterator(
        texts, trainers.WordPieceTrainer(special_tokens=names, show_progress=False)
    )
    other = Tokenizer(backend, start="[END]", end="[END]", pad="[END]")
    assert not other.byte_level
    coded = Encoder(other)(texts[:20])
    expected = [other.encode(text) for text in texts[:20]]
    assert [np.frombuffer(each, other.dtype).tolist() for each in coded] == expected
    with pytest.raises(ValueError, match="not byte-level"):
        other.token_bytes()
