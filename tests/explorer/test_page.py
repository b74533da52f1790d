"""The page in a real browser: it draws, follows keys, colours and widths, and talks to nobody else.

Debian's chromium, driven by playwright; `make test` installs it where it may. Without it these tests are
skipped, and say what to install.
"""

import json
import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.explorer.conftest import serving
from toeplix import Model, build, save
from toeplix.data import Tokenizer
from toeplix.explorer.app import explorer
from toeplix.training.logs import METRICS

pytestmark = pytest.mark.slow

VIEWS = ("runs", "generate", "symbols", "filters", "reach", "claims")
CANVASES = {
    "runs": ["runs-chart"],
    "symbols": ["symbols-plane"],
    "filters": ["filters-curve", "filters-matrix"],
    "reach": ["reach-strip", "reach-pairs"],
}
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --no-first-run "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)
CHANGED = "([id, before]) => document.getElementById(id).toDataURL() !== before"
REFUSED = "Failed to load resource: the server responded with a status of 400 (Bad Request)"
ODD = "<i>live"  # a name that must stay text
ROOT = Path(__file__).parent.parent.parent


def chromium():
    names = ("chromium", "chromium-browser", "google-chrome")
    given = os.environ.get("TOEPLIX_CHROMIUM")
    return given or next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser():
    program = chromium()
    if program is None:
        pytest.skip("no chromium: apt-get install chromium, or name one in TOEPLIX_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=FLAGS.split(), timeout=120_000
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def place(trained, tmp_path_factory):
    """Runs of its own, one of which grows in a test; results are the repository's of one experiment."""
    folder = tmp_path_factory.mktemp("shown") / "runs"
    shutil.copytree(trained, folder)
    (folder / "deeper" / "second").rename(folder / ODD)
    results = folder.parent / "results"
    shutil.copytree(ROOT / "results" / "index", results / "index")
    app = explorer(folder, results=results, figures=ROOT / "figures")
    with serving(app) as address:
        yield folder, address


@contextmanager
def opened(browser, address, view="runs", expected=(), **how):
    """A page; afterwards it must have complained of nothing and asked nobody else."""
    said, asked = [], []
    how = {"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce"} | how
    context = browser.new_context(**how)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.on(
        "console", lambda message: said.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.add_init_script(
        """window.shifts = [];
        const named = ({ node }) => node?.id || node?.parentElement?.id;
        const seen = (each) => each.hadRecentInput || shifts.push([each.value, each.sources.map(named)]);
        const observer = new PerformanceObserver((list) => list.getEntries().forEach(seen));
        observer.observe({ type: "layout-shift", buffered: true });"""
    )
    page.goto(f"{address}/#{view}")
    page.wait_for_selector(f"#tab-{view}[aria-selected=true]")
    wait_for(page, "() => document.getElementById('root').textContent.length > 1")
    yield page
    assert [words for words in said if words not in expected] == []
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(address).netloc}
    context.close()


def wait_for(page, condition, arg=None):
    """Ask until it is true. Playwright's own waiting evaluates strings later, which the page forbids."""
    until = time.monotonic() + 60
    while not page.evaluate(condition, arg):
        assert time.monotonic() < until, f"not within a minute: {condition}"
        page.wait_for_timeout(20)


def wait_drawn(page, canvas):
    wait_for(
        page,
        """(id) => { const canvas = document.getElementById(id);
        if (!canvas.width || !canvas.clientWidth) return false;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size > 20; }""",
        arg=canvas,
    )


def show(page, view):
    page.click(f"#tab-{view}")
    for canvas in CANVASES.get(view, []):
        wait_drawn(page, canvas)


def test_every_view_draws_and_nothing_moves(browser, place, record_property):
    with opened(browser, place[1]) as page:
        for view in VIEWS[:-1]:
            show(page, view)
            assert page.is_visible(f"#{view}")
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
            assert page.is_visible(f"#{view}")
            assert page.evaluate("document.activeElement.id") == f"tab-{view}"
            assert len(page.query_selector_all("main > section:not([hidden])")) == 1
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Home")
        assert page.is_visible("#runs")
        page.keyboard.press("ArrowLeft")
        assert page.is_visible("#claims")
        page.keyboard.press("ArrowRight")
        assert page.is_visible("#runs")
        wait_drawn(page, "runs-chart")
        page.focus("#runs-chart")
        page.keyboard.press("ArrowLeft")
        assert "24 steps" in page.inner_text("#runs-read")


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
        entry = page.locator("#runs-list label", has_text=ODD)
        assert "24 of 24" not in entry.inner_text()
        before = page.evaluate("document.getElementById('runs-chart').toDataURL()")
        with open(folder / ODD / METRICS, "a") as file:
            for step in range(15, 24):
                row = {"step": step, "tokens": 128 * step, "seconds": step / 9, "loss": 9.0}
                file.write(json.dumps(row) + "\n")
        entry.filter(has_text="23 of 24").wait_for()
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
        assert page.locator("#generate-side tbody tr").count() == 8


def test_the_curve_goes_round_as_often_as_is_proven(browser, place):
    with opened(browser, place[1], "symbols") as page:
        wait_drawn(page, "symbols-plane")
        for row in page.query_selector_all("#symbols-table tbody tr"):
            row.query_selector("button").click()
            page.wait_for_selector("#symbols-table tr.chosen")
            name = row.query_selector("button").inner_text()
            wait_for(
                page,
                "(name) => document.querySelector('#symbols-table tr.chosen').dataset.name === name",
                arg=name,
            )
            proven = int(row.query_selector_all("td")[1].inner_text())
            facts = page.locator("#symbols-facts dd").all_inner_texts()
            assert int(facts[0]) == proven
            assert float(facts[-1]) == pytest.approx(proven, abs=0.01)
        assert page.input_value("#symbols-theta") == "1000"  # nothing moves by itself


def test_motion_only_where_it_is_welcome(browser, place):
    with opened(browser, place[1], "symbols", reduced_motion="no-preference") as page:
        # it is seen to move, and stopped, within one frame: on a slow machine a round has few of them
        wait_for(
            page,
            """() => {
                const value = Number(document.getElementById("symbols-theta").value);
                const before = window.seen ?? value;
                window.seen = value;
                if (value <= before || value > 900) return false;
                document.getElementById("symbols-play").click();
                return true;
            }""",
        )
        rested = page.input_value("#symbols-theta")
        page.wait_for_timeout(100)
        assert page.input_value("#symbols-theta") == rested


def test_reach_by_keyboard(browser, place):
    with opened(browser, place[1], "reach") as page:
        page.select_option("#model", "first")
        wait_drawn(page, "reach-strip")
        page.focus("#reach-text span[tabindex='0']")
        page.keyboard.press("Home")
        assert "position 0" in page.inner_text("#reach-read")
        page.keyboard.press("ArrowRight")
        assert "position 1" in page.inner_text("#reach-read")
        assert (
            page.locator("#reach-text span.later").count()
            == page.locator("#reach-text span").count() - 2
        )


def test_a_problem_is_said(browser, place):
    """A checkpoint of an unfinished run has no tokenizer: its filters are shown, text is not."""
    with opened(browser, place[1], "filters", expected=[REFUSED]) as page:
        page.select_option("#model", f"{ODD}, step-24")
        wait_drawn(page, "filters-curve")
        assert page.is_hidden("#problem")
        page.click("#tab-generate")
        page.click("#generate-go")
        page.wait_for_selector("#problem:not([hidden])")
        assert "holds no tokenizer" in page.inner_text("#problem")


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
        bad = page.locator("#runs-list label", has_text="bad")
        bad.filter(has_text="damaged").wait_for()
        assert "field 'model' must be an object, not 5" in bad.inner_text()
        rows = page.locator("#runs-list label", has_text="rows")
        rows.filter(has_text="2 lines of metrics.jsonl are damaged").wait_for()
        good = page.locator("#runs-list label", has_text="good")
        assert "finished" in good.inner_text()
        assert "damaged" not in good.inner_text()
        page.wait_for_selector("#runs-settings tbody tr")


def test_a_problem_stays_in_its_own_tab(browser, mixed):
    with opened(browser, mixed[1], "reach", expected=[REFUSED]) as page:
        page.select_option("#model", "plain")
        page.wait_for_selector("#problem:not([hidden])")
        words = page.inner_text("#problem")
        assert "only Toeplitz models have a linear path" in words
        for view in ("runs", "generate", "claims"):
            page.click(f"#tab-{view}")
            assert page.is_hidden("#problem"), view
        page.click("#tab-reach")
        assert page.inner_text("#problem") == words
        page.select_option("#model", "good")
        wait_drawn(page, "reach-strip")
        assert page.is_hidden("#problem")
        page.select_option("#model", "plain")
        page.wait_for_selector("#problem:not([hidden])")
        assert page.locator("#reach-text span").count() == 0, "what another model gave"
        page.click("#tab-generate")
        page.select_option("#model", "good")
        page.click("#tab-reach")
        wait_drawn(page, "reach-strip")
        assert page.is_hidden("#problem")
