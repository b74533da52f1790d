"""An extension of Griffe, which reads docstrings for the API reference: doctests become code blocks."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^|(?<=\n\n))( *)>>> .*?(?=\n\s*\n|\Z)", re.DOTALL)


class Doctests(griffe.Extension):
    """Fence paragraphs that begin with `>>>`, which Markdown would join to one line."""

    def on_instance(self, *, obj: griffe.Object, **other: Any) -> None:
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(fenced, obj.docstring.value)


def fenced(found: re.Match[str]) -> str:
    indent = found[1]
    return f"{indent}```pycon\n{found[0].rstrip()}\n{indent}```"
