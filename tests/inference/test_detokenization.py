"""Pieces of text: together they are the whole text, and no piece shows what it must not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving.conftest import TEXT
from toeplix.data import Tokenizer
from toeplix.inference.detokenization import UNKNOWN, Detokenizer

TOKENIZER = Tokenizer.train([TEXT] * 20, 280)
SHOWN = [
    *range(33, 127),
    *range(161, 173),
    *range(174, 256),
]  # GPT-2's names of bytes are they themselves
HIDDEN = [byte for byte in range(256) if byte not in SHOWN]
NAMES = {byte: chr(byte) for byte in SHOWN} | {byte: chr(256 + i) for i, byte in enumerate(HIDDEN)}


def byte_tokens(text):
    return [TOKENIZER.backend.token_to_id(NAMES[byte]) for byte in text]


def pieces(tokens, stops=()):
    detokenizer = Detokenizer(TOKENIZER.decode, stops)
    shown = []
    for token in tokens:
        shown.append(detokenizer.add(token))
        if detokenizer.stopped:
            return shown, detokenizer
    shown.append(detokenizer.end())
    return shown, detokenizer


@given(st.lists(st.integers(0, TOKENIZER.vocab - 1), max_size=40))
def test_any_tokens(tokens):
    """Of bytes that are no characters too, the text is that of all tokens at once."""
    shown, detokenizer = pieces(tokens)
    assert "".join(shown) == TOKENIZER.decode(tokens)
    assert detokenizer.length == len(TOKENIZER.decode(tokens))


@given(
    st.text("ab漢 \n", max_size=30),
    st.lists(st.text("ab漢 \n", min_size=1, max_size=4), max_size=3),
)
def test_stops(text, stops):
    shown, detokenizer = pieces(TOKENIZER.encode(text), stops)
    places = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text[: min(places)[1]] if places else text
    assert "".join(shown) == expected
    assert detokenizer.stopped == bool(places)
    assert detokenizer.length == len(expected)
    assert not any(UNKNOWN in piece for piece in shown)


def test_long_answers_are_not_decoded_again_and_again(monkeypatch):
    lengths = []
    decode = TOKENIZER.decode
    monkeypatch.setattr(
        TOKENIZER,
        "decode",
        lambda tokens, **how: lengths.append(len(tokens)) or decode(tokens, **how),
    )
    pieces(TOKENIZER.encode(TEXT * 50))
    assert max(lengths) < 20


@pytest.mark.parametrize("stop", ["be, that", "q", "déjà"])
def test_nothing_of_a_stop_string_is_shown_before_it_is_known(stop):
    tokens = TOKENIZER.encode(TEXT)
    detokenizer, shown = Detokenizer(TOKENIZER.decode, [stop]), ""
    for token in tokens:
        shown += detokenizer.add(token)
        assert TEXT.startswith(shown)
        assert len(shown) <= TEXT.index(stop)
        if detokenizer.stopped:
            break
    assert detokenizer.stopped


def test_characters_of_several_tokens_come_whole():
    text = "déjà 漢字 \N{GRINNING FACE}!"
    shown, _ = pieces(TOKENIZER.encode(text))
    assert "".join(shown) == text
    assert "" in shown


RUNS = [b"\x80", b"\xff", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xe6\xbc\x80\xc3", b"\xc3\xa9\x80"]


@pytest.mark.parametrize("run", RUNS)
def test_invalid_bytes_are_shown_and_decoded_a_few_times(run, monkeypatch):
    text = b"be " + run * 200 + "déjà 漢".encode()
    tokens = byte_tokens(text)
    lengths, decode = [], TOKENIZER.decode
    whole = decode(tokens)
    monkeypatch.setattr(
        TOKENIZER, "decode", lambda some, **how: lengths.append(len(some)) or decode(some, **how)
    )
    shown, _ = pieces(tokens)
    assert "".join(shown) == whole == text.decode(errors="replace")
    assert max(lengths) < 50
    early = "".join(shown[: len(tokens) // 2])
    assert early.count(UNKNOWN) > 50


@given(st.lists(st.sampled_from([*b"a\x80\xff\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98"]), max_size=120))
def test_any_bytes(given_bytes):
    shown, _ = pieces(byte_tokens(given_bytes))
    assert "".join(shown) == bytes(given_bytes).decode(errors="replace")
