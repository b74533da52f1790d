"""Pieces of text: together they are the whole text, and no piece shows what it must not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving.conftest import TEXT
from toeplix.data import Tokenizer
from toeplix.serving.writing import UNKNOWN, Writer

TOKENIZER = Tokenizer.train([TEXT] * 20, 280)


def pieces(tokens, stops=()):
    writer = Writer(TOKENIZER, stops)
    shown = []
    for token in tokens:
        shown.append(writer.add(token))
        if writer.stopped:
            return shown, writer
    shown.append(writer.end())
    return shown, writer


@given(st.lists(st.integers(0, TOKENIZER.vocab - 1), max_size=40))
def test_any_tokens(tokens):
    """Of bytes that are no characters too, the text is that of all tokens at once."""
    shown, writer = pieces(tokens)
    assert "".join(shown) == TOKENIZER.decode(tokens)
    assert writer.length == len(TOKENIZER.decode(tokens))


@given(
    st.text("ab漢 \n", max_size=30),
    st.lists(st.text("ab漢 \n", min_size=1, max_size=4), max_size=3),
)
def test_stops(text, stops):
    shown, writer = pieces(TOKENIZER.encode(text), stops)
    places = [text.find(stop) for stop in stops if stop in text]
    expected = text[: min(places)] if places else text
    assert "".join(shown) == expected
    assert writer.stopped == bool(places)
    assert writer.length == len(expected)
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
    writer, shown = Writer(TOKENIZER, [stop]), ""
    for token in tokens:
        shown += writer.add(token)
        assert TEXT.startswith(shown)
        assert len(shown) <= TEXT.index(stop)
        if writer.stopped:
            break
    assert writer.stopped
