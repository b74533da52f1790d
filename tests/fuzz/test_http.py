"""A slice of the hostile requests: no 5xx, no hang, no fault in the log, and good answers as before."""

import logging
from contextlib import contextmanager

import pytest

from tests.fuzz.http_cases import FAILURES, FINE, campaign, explored, tiny
from tests.fuzz.http_requests import SERVER, made
from toeplix.serving.limits import Limits
from toeplix.serving.server import running
from toeplix.serving.service import open_service

pytestmark = pytest.mark.slow

CASES, SECONDS = 320, 6.0  # of each: whatever is over first


class Faults(logging.Handler):
    """Errors that a server logs: exceptions that nobody foresaw."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.told = []

    def emit(self, record):
        self.told.append(self.format(record))


@contextmanager
def faults():
    """To be entered when the server has started: uvicorn then has set up its loggers."""
    handler = Faults()
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "toeplix.serving", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.told
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.fixture
def server(tmp_path):
    limits = Limits(max_batch=16, max_tokens=20, max_prompt=400, max_body=40_000, body_timeout=5.0)
    with running(open_service(tiny(tmp_path / "model"), "tiny", limits)) as server:
        yield server.url


@pytest.fixture
def explorer(tmp_path):
    with explored(tmp_path) as address:
        yield address


@pytest.mark.parametrize("kind", ["server", "explorer"])
def test_hostile_requests(kind, request, tmp_path):
    address, out = request.getfixturevalue(kind), tmp_path / "found"
    with faults() as told:
        counts = campaign(address, seed="slice", cases=CASES, seconds=SECONDS, out=out)
    assert not any(counts[word] for word in FAILURES), (
        counts,
        list(out.iterdir()),
    )
    assert set(counts) <= set(FINE)
    assert counts["2xx"] >= 5
    assert counts["4xx"] >= 20
    assert told == []


def test_a_case_is_made_again_from_its_number():
    for number in range(300):
        assert made(SERVER, "x", number) == made(SERVER, "x", number)
