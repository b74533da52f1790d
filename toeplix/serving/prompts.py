"""Prompts of requests as tokens: texts, tokens and conversations.

A text is preceded by the tokenizer's start token. A conversation is formatted by the tokenizer's chat
template (Jinja, in a sandbox, as Hugging Face does), or, without one, as

    user: ...
    assistant:

where the completion ends before the next turn. Control tokens are recognised in templates only: in
messages they stay text, so that a message cannot end a turn.
"""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toeplix.data.tokenizer import Tokenizer
from toeplix.files import DamagedFile, printable, read_json, reading
from toeplix.pretrained_files import TOKENIZER_CONFIG as CONFIG
from toeplix.serving.limits import RequestError

PLAIN = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
GUARD = "\ufdd0"  # not a character: separates the letters of control tokens in messages


class Conversations:
    """A chat template and the tokens of its control strings."""

    def __init__(self, tokenizer: Tokenizer, template: str | None) -> None:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        class Rejection(TemplateError):
            """Raised by the template's own `raise_exception`."""

        def reject(message: str) -> None:
            raise Rejection(message)

        self._tokenizer, self._rejection = tokenizer, Rejection
        self.stops = [] if template else ["\nuser:"]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = reject
        try:
            self._template = environment.from_string(template or PLAIN)
        except TemplateError as problem:
            raise ValueError(f"the tokenizer's chat template is damaged: {problem}") from problem
        added = tokenizer.backend.get_added_tokens_decoder()
        self._control = {token.content: number for number, token in added.items() if token.special}
        names = sorted(map(re.escape, self._control), key=len, reverse=True)
        self._names = re.compile(f"({'|'.join(names)})") if names else None

    def tokens(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Return the tokens of messages, pairs (role, text), up to the beginning of the completion."""
        try:
            text = self._written(messages)
        except Exception as problem:  # a template is a program, and may fail in any way
            words = printable(str(problem))[:200] or type(problem).__name__
            raise RequestError(
                400, f"the chat template failed: {words}", param="messages"
            ) from None
        start, tokens = self._tokenizer.start, []
        for part in self._names.split(text) if self._names else [text]:
            if part in self._control:
                tokens.append(self._control[part])
            elif part:
                tokens += self._tokenizer.encode(part.replace(GUARD, ""))
        return tokens if tokens[:1] == [start] else [start, *tokens]

    def check(self) -> None:
        """Format a conversation, so that a broken template fails now; its own rejection is no error."""
        with contextlib.suppress(self._rejection):
            self._written([("user", "Hello")]).encode()

    def _written(self, messages: Sequence[tuple[str, str]]) -> str:
        written = [{"role": role, "content": self._guarded(text)} for role, text in messages]
        control = self._tokenizer.control
        return self._template.render(
            messages=written,
            add_generation_prompt=True,
            bos_token=control["start"],
            eos_token=control["end"],
        )

    def _guarded(self, text: str) -> str:
        text = text.replace(GUARD, "")
        if self._names is None:
            return text
        return self._names.sub(lambda found: found[0][:1] + GUARD + found[0][1:], text)


def conversations_of(directory: Path, tokenizer: Tokenizer) -> Conversations:
    """Return the chat template of a directory; raise DamagedFile if it cannot be used."""
    template = chat_template(directory)
    try:
        found = Conversations(tokenizer, template)
        found.check()
    except Exception as problem:  # a template is a program, and may fail in any way
        words = " ".join(printable(str(problem)).split())[:200] or type(problem).__name__
        raise DamagedFile(
            f"{printable(directory)}: its chat template cannot be used: {words}; mend it, or remove it "
            "to have turns written as `role: text` lines"
        ) from problem
    return found


def chat_template(directory: Path) -> str | None:
    """Return the tokenizer's chat template, from its file or its configuration; None if there is none."""
    file = directory / "chat_template.jinja"
    if file.is_file():
        with reading(file):
            return file.read_text(encoding="utf-8")
    file = directory / CONFIG
    with reading(file):
        found: Any = read_json(file).get("chat_template")
        if isinstance(found, list):  # several by name
            found = {each["name"]: each["template"] for each in found}.get("default")
        if not isinstance(found, str | None):
            raise TypeError(f"field 'chat_template' must be a string, not {printable(found)[:40]}")
    return found


def end_tokens(directory: Path, tokenizer: Tokenizer, vocab: int | None = None) -> frozenset[int]:
    """Return the end tokens: the tokenizer's, and those of generation_config.json, which end chat turns.

    `vocab` is the vocabulary of the model, if it is larger than the tokenizer's.
    """
    vocab = tokenizer.vocab if vocab is None else vocab
    ends = {tokenizer.end}
    file = directory / "generation_config.json"
    if file.is_file():
        with reading(file, "remove it to end answers at the tokenizer's end token alone"):
            named: Any = read_json(file).get("eos_token_id")
            listed = named if isinstance(named, list) else [] if named is None else [named]
            for token in listed:
                if type(token) is not int or not 0 <= token < vocab:
                    shown = printable(token)[:40]
                    raise ValueError(f"field 'eos_token_id' has {shown}, not in 0 .. {vocab - 1}")
            ends |= set(listed)
    return frozenset(ends)
