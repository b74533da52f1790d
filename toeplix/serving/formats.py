"""Answers as OpenAI writes them: `/v1/completions` and `/v1/chat/completions`, whole or in chunks."""

import functools
import secrets
import time
from abc import ABC, abstractmethod
from typing import Any

from toeplix.data import Tokenizer
from toeplix.serving.answers import Piece, Scored

Json = dict[str, Any]


class Format(ABC):
    """One answer in one form."""

    prefix: str
    kinds: tuple[str, str]  # of a whole answer, of a chunk

    def __init__(self, model: str, tokenizer: Tokenizer, chances: bool) -> None:
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        self._tokenizer, self._chances = tokenizer, chances

    def whole(self, pieces: list[Piece], usage: Json) -> Json:
        """Of all pieces of all choices."""
        choices = []
        for index in sorted({piece.choice for piece in pieces}):
            own = [piece for piece in pieces if piece.choice == index]
            text = "".join(piece.text for piece in own)
            scored = [each for piece in own for each in piece.scored]
            choices.append(self._choice(index, self.content(text), scored, own[-1].ended))
        return self._head | {"object": self.kinds[0], "choices": choices, "usage": usage}

    def chunk(self, piece: Piece) -> Json:
        choice = self._choice(piece.choice, self.delta(piece.text), piece.scored, piece.ended)
        return self._head | {"object": self.kinds[1], "choices": [choice]}

    def last(self, usage: Json) -> Json:
        """A chunk of counts alone."""
        return self._head | {"object": self.kinds[1], "choices": [], "usage": usage}

    def _choice(self, index: int, shown: Json, scored: list[Scored], ended: str | None) -> Json:
        chances = self.chances(scored) if self._chances else None
        return {"index": index, **shown, "logprobs": chances, "finish_reason": ended}

    def opening(self, choice: int) -> Json | None:
        """A chunk before all text, if there is one."""
        return None

    @abstractmethod
    def content(self, text: str) -> Json: ...

    @abstractmethod
    def delta(self, text: str) -> Json: ...

    @abstractmethod
    def chances(self, scored: list[Scored]) -> Json: ...

    def _bytes(self, token: int) -> bytes:
        return token_bytes(self._tokenizer, token)

    def _name(self, token: int) -> str:
        """The token's text; of parts of a character, their bytes."""
        raw = self._bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{each:02x}" for each in raw)


class Completions(Format):
    prefix, kinds = "cmpl", ("text_completion", "text_completion")

    def content(self, text: str) -> Json:
        return {"text": text}

    delta = content

    def chances(self, scored: list[Scored]) -> Json:
        """Four lists; a dictionary of the most likely tokens and the token itself at each position."""
        best: list[Json | None] = []
        for token, score, _ in scored:
            if score is None:
                best.append(None)
            else:
                listed = [*score.top_logprobs, (token, score.logprob)]
                best.append({self._name(each): logprob for each, logprob in listed})
        return {
            "tokens": [self._name(each.token) for each in scored],
            "token_logprobs": [each.score and each.score.logprob for each in scored],
            "top_logprobs": best,
            "text_offset": [each.offset for each in scored],
        }


class Chats(Format):
    prefix, kinds = "chatcmpl", ("chat.completion", "chat.completion.chunk")

    def content(self, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def delta(self, text: str) -> Json:
        return {"delta": {"content": text} if text else {}}

    def opening(self, choice: int) -> Json:
        first = {"delta": {"role": "assistant", "content": ""}}
        shown = self._choice(choice, first, [], None) | {"logprobs": None}
        return self._head | {"object": self.kinds[1], "choices": [shown]}

    def chances(self, scored: list[Scored]) -> Json:
        def entry(token: int, chance: float) -> Json:
            raw = list(self._bytes(token))
            return {"token": self._name(token), "logprob": chance, "bytes": raw}

        content = []
        for token, score, _ in scored:
            if score is not None:
                best = [entry(*each) for each in score.top_logprobs]
                content.append(entry(token, score.logprob) | {"top_logprobs": best})
        return {"content": content, "refusal": None}


@functools.cache
def byte_of() -> dict[str, int]:
    """Byte-level BPE writes bytes as characters: printable ones as themselves, others from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


@functools.lru_cache(maxsize=2**16)
def token_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """What a token stands for; exact for byte-level tokenizers."""
    name = tokenizer.backend.id_to_token(token)
    table = byte_of()
    added = name is None or token in tokenizer.backend.get_added_tokens_decoder()
    if tokenizer.byte_level and not added and all(letter in table for letter in name):
        return bytes(table[letter] for letter in name)
    return tokenizer.decode([token], control=True).encode()
