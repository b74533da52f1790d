"""Responses in OpenAI's format: `/v1/completions` and `/v1/chat/completions`, whole or in chunks."""

import functools
import secrets
import time
from abc import ABC, abstractmethod
from typing import Any

from toeplix.data import Tokenizer
from toeplix.serving.answers import Piece, Scored

Json = dict[str, Any]


class Format(ABC):
    """The format of the responses of one endpoint."""

    prefix: str
    kinds: tuple[str, str]  # of a whole response, of a chunk

    def __init__(self, model: str, tokenizer: Tokenizer, logprobs: bool) -> None:
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        self._tokenizer, self._logprobs = tokenizer, logprobs

    def whole(self, pieces: list[Piece], usage: Json) -> Json:
        """Return the whole response from all pieces of all choices."""
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
        """Return the last chunk, which has only the usage."""
        return self._head | {"object": self.kinds[1], "choices": [], "usage": usage}

    def _choice(self, index: int, shown: Json, scored: list[Scored], ended: str | None) -> Json:
        logprobs = self.logprobs(scored) if self._logprobs else None
        return {"index": index, **shown, "logprobs": logprobs, "finish_reason": ended}

    def opening(self, choice: int) -> Json | None:
        """Return the chunk before the text of a choice; None if the format has none."""
        return None

    @abstractmethod
    def content(self, text: str) -> Json: ...

    @abstractmethod
    def delta(self, text: str) -> Json: ...

    @abstractmethod
    def logprobs(self, scored: list[Scored]) -> Json: ...

    def _bytes(self, token: int) -> bytes:
        return token_bytes(self._tokenizer, token)

    def _name(self, token: int) -> str:
        """Return the text of a token; if it is part of a character, its bytes."""
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

    def logprobs(self, scored: list[Scored]) -> Json:
        """Return four lists; `top_logprobs` has the top tokens and the token itself at each position."""
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

    def logprobs(self, scored: list[Scored]) -> Json:
        def entry(token: int, logprob: float) -> Json:
            raw = list(self._bytes(token))
            return {"token": self._name(token), "logprob": logprob, "bytes": raw}

        content = []
        for token, score, _ in scored:
            if score is not None:
                best = [entry(*each) for each in score.top_logprobs]
                content.append(entry(token, score.logprob) | {"top_logprobs": best})
        return {"content": content, "refusal": None}


@functools.cache
def byte_of() -> dict[str, int]:
    """Return the byte of each character of byte-level BPE: printable bytes stand for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


@functools.lru_cache(maxsize=2**16)
def token_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """Return the bytes of a token; exact for byte-level tokenizers."""
    name = tokenizer.backend.id_to_token(token)
    table = byte_of()
    added = name is None or token in tokenizer.backend.get_added_tokens_decoder()
    if tokenizer.byte_level and not added and all(letter in table for letter in name):
        return bytes(table[letter] for letter in name)
    return tokenizer.decode([token], control=True).encode()
