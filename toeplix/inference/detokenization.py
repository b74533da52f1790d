"""Incremental detokenization: text that can be shown, token by token.

    detokenizer = Detokenizer(tokenizer.decode, stop_strings=["\\n\\n"])
    text = detokenizer.add(token)    what has become certain
    text = detokenizer.end()         the rest, at the end of a sequence

A character of several tokens is shown when it is complete, and text that may be the beginning of a stop
string when it has turned out not to be. Of a long run of invalid bytes only the last are held back. Only
the last tokens are decoded again, so the work per token does not grow with the text.
"""

from collections.abc import Callable, Sequence

MAX_CHARACTER = 4  # bytes, so also tokens, of a character
MAX_PENDING = 16  # tokens without a complete character at the end, until invalid ones are shown
UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # what the bytes of half a character decode to


class Detokenizer:
    """The text of one sequence, up to the first stop string."""

    def __init__(
        self, decode: Callable[[list[int]], str], stop_strings: Sequence[str] = ()
    ) -> None:
        self._decode, self._stop_strings = decode, stop_strings
        self._tokens: list[int] = []  # of the text known last, then of what is not complete yet
        self._known = 0  # how many of them are known
        self._held = ""  # text that may begin a stop string
        self.length = 0  # characters decoded so far, held back or not
        self.stopped = False  # whether a stop string has appeared

    def add(self, token: int) -> str:
        """Return the text that this token makes certain."""
        self._tokens.append(token)
        return self._show(self._decoded(complete=False))

    def end(self) -> str:
        """Return what was held back."""
        if self.stopped:
            return ""
        shown = self._show(self._decoded(complete=True))
        held, self._held = self._held, ""
        return shown if self.stopped else shown + held

    def _decoded(self, complete: bool) -> str:
        """Return the text that the last tokens add; spaces may depend on the tokens before them."""
        before = self._decode(self._tokens[: self._known])
        text = self._decode(self._tokens)
        held = 0
        if text.endswith(UNKNOWN) and not complete:
            held = self._incomplete(text[len(before) :])
            if held == len(self._tokens) - self._known:
                return ""
        last = len(self._tokens) - held
        shown = text[len(before) :]
        if held:
            shown = self._decode(self._tokens[self._known : last])
        self._tokens, self._known = self._tokens[self._known :], last - self._known
        return shown

    def _incomplete(self, text: str) -> int:
        """Return how many last tokens may belong to a character that is not complete.

        Of many tokens whose `text` ends with invalid bytes the last few may be: a character has at most
        four bytes. They begin where the parts on both sides decode to what they are together.
        """
        new = self._tokens[self._known :]
        if len(new) < MAX_PENDING or self._decode(new) != text:
            return len(new)
        for held in range(1, MAX_CHARACTER + 1):
            tail = self._decode(new[-held:])
            if tail and self._decode(new[:-held]) + tail == text:
                return held
        return len(new)

    def _show(self, text: str) -> str:
        self.length += len(text)
        text = self._held + text
        # the one that ends first, however the text is cut into tokens; of several, the longest
        found = [
            (place + len(stop), place)
            for stop in self._stop_strings
            if (place := text.find(stop)) >= 0
        ]
        if found:
            _, place = min(found)
            self.stopped, self._held = True, ""
            self.length += place - len(text)
            return text[:place]
        keep = max((_overlap(text, stop) for stop in self._stop_strings), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of the text that is a prefix of the stop string."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
