"""Tokens to text that can be shown: whole characters, nothing of a stop string.

    writer = Writer(tokenizer, ["\\n\\n"])
    shown = writer.add(token)      what has become certain
    shown = writer.end()           the rest, at the end of a row

A character of several tokens is shown when it is complete, and text that may be the beginning of a stop
string when it has turned out not to be. Only the last tokens are decoded again, so a long answer costs
no more per token than a short one.
"""

from collections.abc import Sequence

from toeplix.data import Tokenizer

UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # what the bytes of half a character decode to


class Writer:
    """The text of one row."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._stops = tokenizer, stops
        self._tokens: list[int] = []  # of the text known last, then of what is not complete yet
        self._known = 0  # how many of them are known
        self._held = ""  # text that may begin a stop string
        self.length = 0  # characters decoded so far, held back or not
        self.stopped = False

    def add(self, token: int) -> str:
        self._tokens.append(token)
        return self._show(self._decoded(complete=False))

    def end(self) -> str:
        """What was held back."""
        if self.stopped:
            return ""
        shown = self._show(self._decoded(complete=True))
        held, self._held = self._held, ""
        return shown if self.stopped else shown + held

    def _decoded(self, complete: bool) -> str:
        """Text that the tokens add, in the light of those before, on which spaces may depend."""
        before = self._tokenizer.decode(self._tokens[: self._known])
        text = self._tokenizer.decode(self._tokens)
        if text.endswith(UNKNOWN) and not complete:
            return ""
        self._tokens = self._tokens[self._known :]
        self._known = len(self._tokens)
        return text[len(before) :]

    def _show(self, text: str) -> str:
        self.length += len(text)
        text = self._held + text
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.stopped, self._held = True, ""
            self.length += min(places) - len(text)
            return text[: min(places)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """The longest end of the text that is a beginning of the stop string."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
