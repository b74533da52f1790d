"""The template of reports: all text is escaped, and a page needs and loads nothing else."""

import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from toeplix.experiments.engine import report
from toeplix.files import MARK
from toeplix.reports import html, spectrum_page

HOSTILE = "<script>alert(\"1\")</script> & 'so on'"


class Reader(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.append(dict(attributes))

    def handle_data(self, data):
        self.words.append(data)


PARTS = {
    "heading": html.heading(HOSTILE, 2),
    "paragraph": html.paragraph(HOSTILE),
    "preformatted": html.preformatted(HOSTILE),
    "heading of a table": html.table([HOSTILE], [["x"]]),
    "cell": html.table(["x"], [[HOSTILE]]),
    "name": html.pairs({HOSTILE: 1}),
    "value": html.pairs({"x": HOSTILE}),
    "caption": html.figure("", HOSTILE),
}


@pytest.mark.parametrize("part", PARTS)
def test_text_stays_text(part):
    page = Reader(PARTS[part])
    assert "script" not in page.tags
    assert HOSTILE in page.words


def test_a_title_and_attributes_are_escaped():
    page = Reader(
        html.page(HOSTILE, [html.image(b"x", "image/png", HOSTILE), html.figure("", "", HOSTILE)])
    )
    assert "script" not in page.tags
    assert HOSTILE in page.words
    values = [value for each in page.attributes for value in each.values()]
    assert values.count(HOSTILE) == 2  # the description of the image, and the link


def pages(folder):
    """One page of each report that has no run."""
    (folder / "x.svg").write_text("<svg/>")
    row = {
        "layer": "a",
        "head": 0,
        "heads": 1,
        "kernel": 0,
        "kernels": 1,
        "taps": 4,
        "kind": "free",
    }
    row |= {"index": None, "status": "zero filter"}
    yield spectrum_page.page([row], folder, "a model")
    yield report.page("| a |\n|---|\n| b |\n\n![x](x.svg)\n", folder)


def test_every_report_has_the_policy_and_the_mark(tmp_path):
    for text in pages(tmp_path):
        meta = [each for each in Reader(text).attributes if "content" in each]
        policy = next(each["content"] for each in meta if "http-equiv" in each)
        assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        assert {"name": "generator", "content": MARK} in meta
        assert "http:" not in text
        assert "https:" not in text


def test_tables_of_markdown_scroll_by_themselves():
    text = html.markdown("| a |\n|---|\n| b |\n\nand\n\n| c |\n|---|\n| d |\n")
    assert re.findall(r'<div class="wide"><table>', text) == ['<div class="wide"><table>'] * 2


def test_a_drawing_has_no_address_and_the_colour_of_the_text():
    drawing = Figure()
    drawing.subplots().plot([0, 1], color=html.INK)
    text = html.svg(drawing)
    assert text.startswith("<svg")
    assert "://" not in text
    assert "currentColor" in text
    assert html.INK not in text


def test_spectrum_cells_are_escaped(tmp_path):
    row = {
        "layer": HOSTILE,
        "head": 0,
        "heads": 1,
        "kernel": 0,
        "kernels": 1,
        "taps": 4,
        "kind": "free",
    }
    row |= {"index": None, "status": "zero filter"}
    assert HOSTILE in Reader(spectrum_page.page([row], tmp_path, "it")).words
