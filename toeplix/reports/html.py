"""The HTML template of all reports: one self-contained file with tables and figures.

    page("filters of mine", [heading("Filters of mine"), table(["filter", "index"], rows), ...])

All text is escaped. The page contains its figures, follows the light or dark theme of the reader, and
forbids itself (Content-Security-Policy) to load anything or to run scripts. The `generator` of its header
is the mark of origin, by which toeplix recognises a file that it may replace.
"""

import base64
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from toeplix.files import MARK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#010203"  # what is drawn in this colour is shown in the colour of the page's text


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page; the parts are HTML."""
    return PAGE.format(title=escape(title), body="\n".join(parts), mark=MARK)


def heading(text: str, level: int = 1) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, kind: str = "") -> str:
    """Return a table with a line of headings.

    Args:
        columns: the headings.
        rows: the cells of each line.
        kind: classes of the style sheet: `tall` scrolls, `numbers` aligns to the right all columns but
            the first and the last.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = [
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    ]
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return _scrolling(f"<table>{body}</table>", kind)


def pairs(values: Mapping[str, Any]) -> str:
    """Return a table of two columns, names and values; underscores of names become spaces."""
    lines = (
        f"<tr><th>{escape(str(key).replace('_', ' '))}</th><td>{escape(str(value))}</td></tr>"
        for key, value in values.items()
    )
    return _scrolling(f"<table>{''.join(lines)}</table>")


def _scrolling(content: str, kind: str = "") -> str:
    """Return what may be wider than the page, so that it alone scrolls."""
    return f'<div class="{f"wide {kind}".strip()}">{content}</div>'


def figure(content: str, caption: str, link: str = "") -> str:
    """Return a figure with its caption; `link` names a file beside the page with the same figure."""
    ending = f' <a href="{escape(link)}">{escape(link)}</a>' if link else ""
    return f"<figure>{content}<figcaption>{escape(caption)}{ending}</figcaption></figure>"


def image(data: bytes, kind: str, description: str) -> str:
    """Return an image that is part of the page; `kind` is its media type, such as image/png."""
    return f'<img alt="{escape(description)}" src="{data_url(data, kind)}">'


def data_url(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def svg(drawing: "Figure") -> str:
    """Return a Matplotlib figure as an element of a page: without prolog, metadata or any URL."""
    from matplotlib import rc_context

    written = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "toeplix"}):
        drawing.savefig(written, format="svg", transparent=True, metadata=nothing)
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r' (width|height)="[^"]*pt"', "", text, count=2)
    return text.replace("xlink:href", "href").replace(INK, "currentColor")


def markdown(text: str) -> str:
    """Return a Markdown document as HTML. It is trusted: HTML inside is kept."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return re.sub(r"<table>.*?</table>", lambda match: _scrolling(match[0]), body, flags=re.DOTALL)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="{mark}">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #ddd; --soft: #5d6870; --link: #0b62a3 }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2328; background: #fff }}
@media (prefers-color-scheme: dark) {{ :root {{ --line: #39434a; --soft: #9aa7ae; --link: #8cf }}
  body {{ color: #e4e8ea; background: #14181b }} }}
h1, h2 {{ line-height: 1.2; overflow-wrap: anywhere }} h2 {{ margin-top: 2rem; font-size: 1.1rem }}
a {{ color: var(--link) }} code {{ font-size: 0.85em }}
.wide {{ overflow-x: auto }} .tall {{ max-height: 24rem; overflow-y: auto }}
table {{ border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0;
  border-bottom: 1px solid var(--line) }}
th {{ color: var(--soft); font-weight: 500 }}
.numbers :is(th, td):not(:first-child, :last-child) {{ text-align: right }}
figure {{ margin: 1.5rem 0 }} figure svg {{ width: 100%; height: auto }}
img {{ max-width: 100%; background: #fff }}
figcaption {{ color: var(--soft); font-size: 0.88rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; padding: 0.8rem;
  border: 1px solid var(--line); border-radius: 6px }}
</style></head><body>
{body}
</body></html>
"""
