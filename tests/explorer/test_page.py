"""The page in a real browser: it draws, follows keys, colours and widths, and talks to nobody else.

Debian's chromium, driven by playwright; `make test` installs it where it may. Without it these tests are
skipped, and say what to install.
"""

import json
import shutil

import pytest
from playwright.sync_api import expect

from tests.explorer.browsing import (
    CHANGED,
    ODD,
    REFUSED,
    VIEWS,
    entry,
    opened,
    show,
    wait_drawn,
    wait_for,
)
from tests.explorer.conftest import serving
from toeplix import Model, build, save
from toeplix.data import Tokenizer
from toeplix.explorer.app import explorer
from toeplix.training.logs import METRICS

pytestmark = pytest.mark.slow


def test_every_view_draws_and_nothing_moves(browser, place, record_property):
    with opened(browser, place[1]) as page:
        page.select_option("#model", "hybrid")
        for view in VIEWS[:-1]:
            show(page, view)
            expect(page.locator(f"#{view}")).to_be_visible()
        page.click("#tab-claims")
        page.wait_for_selector("#claims-table tbody tr:nth-child(20)")
        page.wait_for_selector("#claims-figures figure img")
        assert page.locator("#claims-table .verdict").count() >= 1
        paints = page.evaluate(
            "performance.getEntriesByType('paint').map((e) => [e.name, e.startTime])"
        )
        record_property("paint", json.dumps(paints))
        assert [name for name, _ in paints] == ["first-paint", "first-contentful-paint"]
        moved = page.evaluate("window.shifts")
        assert sum(size for size, _ in moved) < 0.01, moved


def test_tabs_by_keyboard(browser, place):
    with opened(browser, place[1]) as page:
        page.focus("#tab-runs")
        for view in VIEWS[1:5]:
            page.keyboard.press("ArrowRight")
            assert page.get_attribute(f"#tab-{view}", "aria-selected") == "true"
            expect(page.locator(f"#{view}")).to_be_visible()
            assert page.evaluate("document.activeElement.id") == f"tab-{view}"
            assert len(page.query_selector_all("main > section:not([hidden])")) == 1
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Home")
        expect(page.locator("#runs")).to_be_visible()
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#claims")).to_be_visible()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#runs")).to_be_visible()
        wait_drawn(page, "runs-chart")
        page.focus("#runs-chart")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#runs-read")).to_contain_text("24 steps")


def test_light_and_dark(browser, place):
    with opened(browser, place[1]) as page:
        wait_drawn(page, "runs-chart")
        look = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        pixels = "document.getElementById('runs-chart').toDataURL()"
        light, drawn = page.evaluate(look), page.evaluate(pixels)
        page.emulate_media(color_scheme="dark")
        wait_for(page, CHANGED, arg=["runs-chart", drawn])
        dark = page.evaluate(look)
        assert light[0] != dark[0]
        assert brightness(light[0]) > brightness(light[1])
        assert brightness(dark[0]) < brightness(dark[1])


def brightness(colour):
    return sum(int(part) for part in colour[4:-1].split(","))


def test_on_a_phone(browser, place):
    with opened(browser, place[1], viewport={"width": 360, "height": 740}) as page:
        page.select_option("#model", "hybrid")
        for view in VIEWS:
            show(page, view)
            if view == "claims":
                page.wait_for_selector("#claims-table tbody tr")
            wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide <= window, view


def test_a_growing_run_is_followed(browser, place):
    folder, address = place
    with opened(browser, address) as page:
        wait_drawn(page, "runs-chart")
        live = entry(page, ODD)
        assert "24 of 24" not in live.inner_text()
        before = page.evaluate("document.getElementById('runs-chart').toDataURL()")
        with open(folder / ODD / METRICS, "a") as file:
            for step in range(15, 24):
                row = {"step": step, "tokens": 128 * step, "seconds": step / 9, "loss": 9.0}
                file.write(json.dumps(row) + "\n")
        live.filter(has_text="23 of 24").wait_for()
        wait_for(page, CHANGED, arg=["runs-chart", before])
        assert page.query_selector("#runs-list i") is None


def test_text_is_written_looked_at_and_stopped(browser, place):
    with opened(browser, place[1], "generate") as page:
        prompt = "one <img src=x onerror=alert(1)>"
        page.fill("#generate-prompt", prompt)
        page.fill("#generate-new", "2000")
        page.fill("#generate-temperature", "0")  # this model then never ends
        page.select_option("#model", "first")
        page.click("#generate-go")
        written = "#generate-text span:not(.prompt)"
        page.wait_for_selector(f"{written}:nth-of-type(n+40)", state="attached")
        page.click("#generate-stop")
        page.wait_for_selector("#generate-stop:disabled")
        count = page.locator(written).count()
        page.wait_for_timeout(200)
        assert page.locator(written).count() == count < 2000
        given = page.locator("#generate-text span.prompt").all_inner_texts()
        assert "".join(given) == prompt
        assert page.query_selector("#generate-text img") is None
        page.focus("#generate-text span:first-child")
        page.keyboard.press("ArrowRight")
        second = page.inner_text("#generate-side")
        page.keyboard.press("End")
        assert page.inner_text("#generate-side") != second
        expect(page.locator("#generate-side tbody tr")).to_have_count(8)


def test_the_curve_goes_round_as_often_as_is_proven(browser, place):
    with opened(browser, place[1], "spectral") as page:
        wait_drawn(page, "spectral-plane")
        for row in page.query_selector_all("#spectral-table tbody tr"):
            row.query_selector("button").click()
            page.wait_for_selector("#spectral-table tr.chosen")
            name = row.query_selector("button").inner_text()
            wait_for(
                page,
                "(name) => document.querySelector('#spectral-table tr.chosen').dataset.name === name",
                arg=name,
            )
            proven = int(row.query_selector_all("td")[1].inner_text())
            facts = page.locator("#spectral-facts dd").all_inner_texts()
            assert int(facts[0]) == proven
            assert float(facts[-1]) == pytest.approx(proven, abs=0.01)
        expect(page.locator("#spectral-theta")).to_have_value("1000")  # nothing moves by itself


def test_motion_only_where_it_is_welcome(browser, place):
    with opened(browser, place[1], "spectral", reduced_motion="no-preference") as page:
        # it is seen to move, and stopped, within one frame: on a slow machine a round has few of them
        wait_for(
            page,
            """() => {
                const value = Number(document.getElementById("spectral-theta").value);
                const before = window.seen ?? value;
                window.seen = value;
                if (value <= before || value > 900) return false;
                document.getElementById("spectral-play").click();
                return true;
            }""",
        )
        rested = page.input_value("#spectral-theta")
        page.wait_for_timeout(100)
        assert page.input_value("#spectral-theta") == rested


def test_contributions_by_keyboard(browser, place):
    with opened(browser, place[1], "contributions") as page:
        page.select_option("#model", "first")
        wait_drawn(page, "contributions-strip")
        page.focus("#contributions-text span[tabindex='0']")
        page.keyboard.press("Home")
        expect(page.locator("#contributions-read")).to_contain_text("position 0")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#contributions-read")).to_contain_text("position 1")
        assert (
            page.locator("#contributions-text span.later").count()
            == page.locator("#contributions-text span").count() - 2
        )


def test_a_problem_is_said(browser, place):
    """A checkpoint of an unfinished run has no tokenizer: its filters are shown, text is not."""
    with opened(browser, place[1], "filters", expected=[REFUSED]) as page:
        page.select_option("#model", f"{ODD}, step-24")
        wait_drawn(page, "filters-curve")
        expect(page.locator("#problem")).to_be_hidden()
        page.click("#tab-generate")
        page.click("#generate-go")
        page.wait_for_selector("#problem:not([hidden])")
        expect(page.locator("#problem")).to_contain_text("holds no tokenizer")


@pytest.fixture(scope="module")
def mixed(place, tmp_path_factory):
    """A good run, a damaged one, one with damaged rows, and a model without filters."""
    folder = tmp_path_factory.mktemp("mixed")
    shutil.copytree(place[0] / "first", folder / "good")
    shutil.copytree(place[0] / "first", folder / "rows")
    with open(folder / "rows" / METRICS, "ab") as file:
        file.write(b"\xff\xff\n{\n")
    shutil.copytree(place[0] / "first", folder / "bad", ignore=shutil.ignore_patterns("model"))
    (folder / "bad" / "run.json").write_text('{"model": 5}')
    Tokenizer.load(folder / "good" / "model").save(folder / "plain")
    save(build(Model(arch="linear", vocab=600, context=32, dim=16, depth=1)), folder / "plain")
    results = folder.parent / "results"
    with serving(explorer(folder, results=results, figures=results)) as address:
        yield folder, address


def test_a_damaged_run_is_marked_and_the_others_are_drawn(browser, mixed):
    with opened(browser, mixed[1], expected=[REFUSED]) as page:
        wait_drawn(page, "runs-chart")
        bad = entry(page, "bad")
        bad.filter(has_text="damaged").wait_for()
        assert "field 'model' must be an object, not 5" in bad.inner_text()
        rows = entry(page, "rows")
        rows.filter(has_text="2 lines of metrics.jsonl are damaged").wait_for()
        good = entry(page, "good")
        assert "finished" in good.inner_text()
        assert "damaged" not in good.inner_text()
        page.wait_for_selector("#runs-settings tbody tr")


def test_a_problem_stays_in_its_own_tab(browser, mixed):
    with opened(browser, mixed[1], "contributions", expected=[REFUSED]) as page:
        page.select_option("#model", "plain")
        page.wait_for_selector("#problem:not([hidden])")
        words = page.inner_text("#problem")
        assert "only those of toeplitz and lookup are linear maps" in words
        for view in ("runs", "generate", "claims"):
            page.click(f"#tab-{view}")
            expect(page.locator("#problem")).to_be_hidden()
        page.click("#tab-contributions")
        assert page.inner_text("#problem") == words
        page.select_option("#model", "good")
        wait_drawn(page, "contributions-strip")
        expect(page.locator("#problem")).to_be_hidden()
        page.select_option("#model", "plain")
        page.wait_for_selector("#problem:not([hidden])")
        expect(page.locator("#contributions-text span")).to_have_count(0)
        page.click("#tab-generate")
        page.select_option("#model", "good")
        page.click("#tab-contributions")
        wait_drawn(page, "contributions-strip")
        expect(page.locator("#problem")).to_be_hidden()


def test_a_late_response_does_not_replace_a_newer_one(browser, mixed):
    """The response for one model is held back until the page shows what was asked for after it."""
    held = []

    def hold(route):
        if route.request.post_data_json["model"] == "good":
            held.append(route)
        else:
            route.continue_()

    with opened(browser, mixed[1], "contributions", expected=[REFUSED]) as page:
        page.select_option("#model", "rows")
        wait_drawn(page, "contributions-strip")
        page.route("**/api/contributions", hold)
        with page.expect_request("**/api/contributions"):  # the page asks a moment after the choice
            page.select_option("#model", "good")
        page.select_option("#model", "plain")
        page.wait_for_selector("#problem:not([hidden])")
        expect(page.locator("#contributions-text span")).to_have_count(0)
        assert len(held) == 1
        held[0].fulfill(
            response=page.request.post(held[0].request.url, data=held[0].request.post_data_json)
        )
        page.wait_for_timeout(300)
        assert page.locator("#contributions-text span").count() == 0
        expect(page.locator("#problem")).to_be_visible()
