"""From requests to the tokens that the model reads: texts, tokens as they are, and conversations.

A text gets the tokenizer's start token in front. A conversation is written out by the chat template that
came with the tokenizer (Jinja, in a sandbox, as Hugging Face does), or, without one, as

    user: ...
    assistant:

and an answer then ends where the next turn would begin. In templates control tokens are control
tokens; in what people write they stay text, so that nobody can end a turn in another's name.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toeplix.data.tokenizer import CONFIG, Tokenizer
from toeplix.serving.limits import Refusal

PLAIN = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
GUARD = "\ufdd0"  # no character: breaks up control tokens in what people write


class Conversations:
    """A chat template and the tokens of its control strings."""

    def __init__(self, tokenizer: Tokenizer, template: str | None) -> None:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise TemplateError(message)

        self._tokenizer, self._problem = tokenizer, TemplateError
        self.stops = [] if template else ["\nuser:"]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        try:
            self._template = environment.from_string(template or PLAIN)
        except TemplateError as problem:
            raise ValueError(f"the tokenizer's chat template is damaged: {problem}") from problem
        added = tokenizer.backend.get_added_tokens_decoder()
        self._control = {token.content: number for number, token in added.items() if token.special}
        names = sorted(map(re.escape, self._control), key=len, reverse=True)
        self._names = re.compile(f"({'|'.join(names)})") if names else None

    def tokens(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Of pairs (role, text), up to where the assistant is to speak."""
        written = [{"role": role, "content": self._guarded(text)} for role, text in messages]
        control = self._tokenizer.control
        try:
            text = self._template.render(
                messages=written,
                add_generation_prompt=True,
                bos_token=control["start"],
                eos_token=control["end"],
            )
        except (self._problem, TypeError) as problem:
            raise Refusal(400, f"the chat template refuses: {problem}", param="messages") from None
        start, tokens = self._tokenizer.start, []
        for part in self._names.split(text) if self._names else [text]:
            if part in self._control:
                tokens.append(self._control[part])
            elif part:
                tokens += self._tokenizer.encode(part.replace(GUARD, ""))
        return tokens if tokens[:1] == [start] else [start, *tokens]

    def _guarded(self, text: str) -> str:
        text = text.replace(GUARD, "")
        if self._names is None:
            return text
        return self._names.sub(lambda found: found[0][:1] + GUARD + found[0][1:], text)


def chat_template(directory: Path) -> str | None:
    """What came with the tokenizer: a file of its own, or an entry of its configuration."""
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = json.loads((directory / CONFIG).read_text(encoding="utf-8")).get("chat_template")
    if isinstance(found, list):  # several by name
        found = {each.get("name"): each.get("template") for each in found}.get("default")
    return found if isinstance(found, str) else None


def end_tokens(directory: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """The tokenizer's, and those of generation_config.json, which ends turns of a chat."""
    ends = {tokenizer.end}
    file = directory / "generation_config.json"
    if file.is_file():
        named: Any = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        listed = named if isinstance(named, list) else [named]
        ends |= {token for token in listed if isinstance(token, int)}
    return frozenset(ends)
