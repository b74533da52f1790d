"""A directory of real runs, small ones, the explorer over it on a port of its own, and a browser."""

import shutil
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn

from tests.explorer.browsing import FLAGS, ODD, ROOT, chromium
from tests.toy import toy_run, toy_store
from toeplix import Model, build, save
from toeplix.data import Tokenizer
from toeplix.explorer.app import explorer
from toeplix.training.logs import METRICS
from toeplix.training.loop import CHECKPOINTS, MODEL, fit


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Runs `first` (finished) and `second` (stopped half-way, with a checkpoint)."""
    folder = tmp_path_factory.mktemp("explored")
    store = toy_store(folder)
    run = toy_run(store)
    run = replace(run, model=replace(run.model, heads=2, depth=2))
    fit(run, folder / "runs" / "first")
    second = folder / "runs" / "deeper" / "second"
    shutil.copytree(folder / "runs" / "first", second)
    shutil.rmtree(second / MODEL)
    rows = (second / METRICS).read_text().splitlines(keepends=True)
    (second / METRICS).write_text("".join(rows[: len(rows) // 2]))
    assert list((second / CHECKPOINTS).iterdir())
    return folder / "runs"


@pytest.fixture(scope="session")
def served(trained, tmp_path_factory):
    """The address of the explorer; there are no results where it looks for them."""
    nowhere = tmp_path_factory.mktemp("nowhere") / "results"
    with serving(explorer(trained, results=nowhere, figures=nowhere)) as address:
        yield address


@contextmanager
def serving(app):
    """The application behind a real server, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        settings = uvicorn.Config(app, lifespan="off", log_level="warning", ws="none")
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser():
    """A browser for one file of tests: playwright keeps an event loop running in this thread, in which
    the tests of other files could not start theirs.
    """
    program = chromium()
    if program is None:
        pytest.skip("no chromium: apt-get install chromium, or name one in TOEPLIX_CHROMIUM")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=FLAGS.split(), timeout=120_000
        )
        yield started
        started.close()


@pytest.fixture(scope="session")
def place(trained, tmp_path_factory):
    """Runs of its own, one of which grows in a test; results are the repository's of one experiment."""
    folder = tmp_path_factory.mktemp("shown") / "runs"
    shutil.copytree(trained, folder)
    (folder / "deeper" / "second").rename(folder / ODD)
    tokenizer = Tokenizer.load(folder / "first" / "model")
    tokenizer.save(folder / "hybrid")
    blocks = {"blocks": ("toeplitz", "lookup"), "heads": 2, "depth": 2}
    save(build(Model(**blocks, vocab=tokenizer.vocab, context=64, dim=16)), folder / "hybrid")
    results = folder.parent / "results"
    shutil.copytree(ROOT / "results" / "index", results / "index")
    app = explorer(folder, results=results, figures=ROOT / "figures")
    with serving(app) as address:
        yield folder, address
