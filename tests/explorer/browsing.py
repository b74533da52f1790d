"""The page in Debian's chromium, driven by playwright: what its tests share."""

import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

VIEWS = ("runs", "generate", "weights", "filters", "spectral", "contributions", "lookup", "claims")
CANVASES = {
    "runs": ["runs-chart", "runs-lr", "runs-grad_norm", "runs-tokens_per_second"],
    "filters": ["filters-curve", "filters-matrix"],
    "spectral": ["spectral-plane"],
    "contributions": ["contributions-strip", "contributions-pairs"],
    "lookup": ["lookup-strip", "lookup-pairs"],
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
    fetched = [url for url in asked if not url.startswith("blob:")]  # what the page made itself
    assert {urlsplit(url).netloc for url in fetched} == {urlsplit(address).netloc}
    context.close()


def entry(page, name):
    """The entry of a run in the list; others may name this run too."""
    return page.locator("#runs-list label", has=page.locator(f".name[title='{name}']"))


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
