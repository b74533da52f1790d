"""What each view of the page shows, in a real browser: values, histograms, filters, lookups, claims."""

import csv
import json
import xml.etree.ElementTree

import pytest
from playwright.sync_api import expect

from tests.explorer.browsing import CHANGED, ODD, entry, opened, show, wait_drawn, wait_for
from toeplix import load
from toeplix.training.logs import METRICS, read

pytestmark = pytest.mark.slow

PIXELS = "(id) => document.getElementById(id).toDataURL()"


def drag(page, canvas, start, end):
    """Select a part of a chart's width."""
    box = page.locator(f"#{canvas}").bounding_box()
    left, right = 52, 14  # edges of the chart
    inner = box["width"] - left - right
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + left + start * inner, height)
    page.mouse.down()
    page.mouse.move(box["x"] + left + end * inner, height, steps=4)
    page.mouse.up()


def downloaded(page, button):
    with page.expect_download() as coming:
        page.click(button)
    return coming.value.path().read_text()


def test_zoom_and_export(browser, place):
    rows = read(place[0] / "first")
    with opened(browser, place[1], accept_downloads=True) as page:
        wait_drawn(page, "runs-chart")
        entry(page, ODD).locator("input").uncheck()
        names = ["run", *(name for name in rows[0] if name != "waiting")]
        found = list(csv.DictReader(downloaded(page, "#runs-csv").splitlines()))
        assert set(names) <= set(found[0])
        assert [int(row["step"]) for row in found] == [row["step"] for row in rows]
        assert {row["run"] for row in found} == {"first"}
        assert page.is_disabled("#runs-reset")
        before = page.evaluate(PIXELS, "runs-chart"), page.evaluate(PIXELS, "runs-lr")
        drag(page, "runs-chart", 0.52, 0.98)
        assert page.is_enabled("#runs-reset")
        for canvas, pixels in zip(("runs-chart", "runs-lr"), before, strict=True):
            wait_for(page, CHANGED, arg=[canvas, pixels])
        part = list(csv.DictReader(downloaded(page, "#runs-csv").splitlines()))
        steps = [int(row["step"]) for row in part]
        assert steps == [row["step"] for row in rows if 13 <= row["step"] <= 23]
        drawing = xml.etree.ElementTree.fromstring(downloaded(page, "#runs-svg"))
        kinds = [child.tag.rpartition("}")[2] for child in drawing.iter()]
        assert kinds.count("path") > 5
        assert "nats per token" in "".join(drawing.itertext())
        page.click("#runs-reset")
        assert page.is_disabled("#runs-reset")
        page.focus("#runs-chart")
        for key, zoomed in (("+", True), ("0", False), ("+", True)):
            page.keyboard.press(key)
            assert page.is_enabled("#runs-reset") == zoomed, key
        page.select_option("#runs-by", "tokens")  # another unit: all of it
        assert page.is_disabled("#runs-reset")


def test_legend_values_and_search(browser, place):
    rows = [row for row in read(place[0] / "first") if "val_loss" in row]
    best = min(rows, key=lambda row: row["val_loss"])
    with opened(browser, place[1]) as page:
        wait_drawn(page, "runs-chart")
        legend = page.inner_text("#runs-legend")
        assert "training (thin)" in legend
        assert "validation (thick)" in legend
        line = page.locator("#runs-values tbody tr", has_text="first").locator("td")
        line.first.wait_for()
        assert line.nth(0).inner_text() == f"{best['val_loss']:.4f} (step {best['step']})"
        assert line.nth(1).inner_text() == f"{rows[-1]['val_loss']:.4f}"
        labels = page.locator("#runs-list label:visible")
        expect(labels).to_have_count(2)
        texts = labels.all_inner_texts()
        assert sum("same settings as" in text for text in texts) == 1
        page.fill("#runs-search", "FIRST finished")
        assert [text.splitlines()[0] for text in labels.all_inner_texts()] == ["first"]
        page.fill("#runs-search", "nothing of the kind")
        expect(labels).to_have_count(0)
        expect(page.locator("#runs-none")).to_be_visible()


def test_every_metric_of_a_run_is_plotted(browser, place):
    """Also one that a run does not have: its chart says so and draws nothing."""
    (place[0] / "bare").mkdir(exist_ok=True)
    (place[0] / "bare" / "run.json").write_text(json.dumps({"steps": 3, "model": {"arch": "x"}}))
    (place[0] / "bare" / METRICS).write_text('{"step": 1, "loss": 2.0}\n{"step": 3, "loss": 1.0}\n')
    try:
        with opened(browser, place[1]) as page:
            page.wait_for_selector("#runs-settings tbody tr")  # written when the curves are drawn
            page.focus("#runs-chart")
            page.keyboard.press("Home")
            expect(page.locator("#runs-read")).to_contain_text("first, training")
            for name in (
                "first",
                ODD,
            ):  # the chart keeps its focus, and what it says is of its lines
                entry(page, name).locator("input").evaluate("(box) => box.click()")
            expect(page.locator("#runs-read")).to_have_text("1 steps: bare, training 2")
            page.focus("#runs-lr")
            page.keyboard.press("Home")
            assert "bare" not in page.inner_text("#runs-read")
    finally:
        for file in (place[0] / "bare").iterdir():
            file.unlink()
        (place[0] / "bare").rmdir()


def test_the_tree_has_all_parameters(browser, place):
    model = load(place[0] / "hybrid")
    count = sum(value.numel() for value in model.parameters())
    stored = sum(value.numel() for value in model.state_dict().values())
    assert stored > count, "decays are buffers"
    with opened(browser, place[1], "weights") as page:
        page.select_option("#model", "hybrid")
        words = f"{count:,} parameters; {stored:,} numbers"
        page.locator("#weights-total", has_text=words).wait_for()
        expect(page.locator("#weights-part")).to_have_text("blocks.0")
        panels = page.locator("#weights-histograms figure")
        names = [name for name in model.state_dict() if name.startswith("blocks.0.")]
        expect(panels).to_have_count(len(names))
        page.click('#weights-tree button[data-part="embedding"]')
        page.locator("#weights-part", has_text="embedding").wait_for()
        expect(panels).to_have_count(1)
        weight = model.embedding.weight
        words = panels.first.inner_text()
        assert f"{weight.shape[0]} \N{MULTIPLICATION SIGN} {weight.shape[1]}" in words
        drawn = panels.first.locator("path.bars").get_attribute("d")
        page.check("#weights-log")
        assert panels.first.locator("path.bars").get_attribute("d") != drawn


def test_all_filters_at_a_glance_then_one(browser, place):
    with opened(browser, place[1], "filters") as page:
        page.select_option("#model", "first")
        wait_drawn(page, "filters-curve")
        page.locator("#filters-glance button").nth(1).wait_for()
        expect(page.locator("#filters-glance button")).to_have_count(2)
        expect(page.locator("#filters-glance path.band")).to_have_count(4)
        page.click("#filters-glance button:nth-of-type(2)")
        assert page.input_value("#filters-filter").startswith("blocks.1")
        assert page.locator("#filters-glance .chosen").inner_text().startswith("blocks.1")


def test_what_a_query_reads(browser, place):
    with opened(browser, place[1], "filters") as page:
        page.select_option("#model", "hybrid")
        show(page, "lookup")
        expect(page.locator("#lookup-block option")).to_have_text(["1"])
        expect(page.locator("#lookup-head option")).to_have_text(["0", "1"])
        page.focus("#lookup-text span[tabindex='0']")
        page.keyboard.press("Home")
        expect(page.locator("#lookup-read")).to_contain_text('position 0, reads "<|bos|>" ')
        page.keyboard.press("ArrowRight")
        expect(page.locator("#lookup-read")).to_contain_text("position 1")
        before = page.evaluate(PIXELS, "lookup-pairs")
        page.select_option("#lookup-head", "1")
        wait_for(page, CHANGED, arg=["lookup-pairs", before])
        expect(page.locator("#lookup-head")).to_have_value("1")


def test_the_index_is_explained(browser, place):
    with opened(browser, place[1], "spectral") as page:
        expect(page.locator("#spectral-meaning")).to_contain_text("singular values")


@pytest.mark.parametrize("width", [390, 1280])
def test_claims_have_the_verdict_first(browser, place, width):
    with opened(browser, place[1], "claims", viewport={"width": width, "height": 800}) as page:
        page.wait_for_selector("#claims-table tbody tr:nth-child(20)")
        first = page.locator("#claims-table tbody tr").filter(has=page.locator(".verdict.holds"))
        cells = first.first.locator("td")
        assert cells.nth(0).inner_text().startswith("holds")
        boxes = [cells.nth(number).bounding_box() for number in (0, 1)]
        below = boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"] + 1
        assert below == (width == 390)
        expect(page.locator("#claims-note")).to_contain_text("holds")
        if width == 390:
            inner = "(box) => box.scrollWidth <= box.clientWidth + 1"
            assert page.locator(".cards").evaluate(inner)
            assert max(box["x"] + box["width"] for box in boxes) <= width
