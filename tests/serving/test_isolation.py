"""A request whose logits are no numbers: it is told so, and no other row changes, during and after."""

import json
import threading

import pytest
import torch

from tests.serving.raw import ask, exchange, post
from tests.serving.test_engine import model_of, sampled
from toeplix.inference.sampling import GREEDY, Sampling
from toeplix.inference.scheduler import Job, RequestFailed, TokenSampled
from toeplix.serving.engine import Engine
from toeplix.serving.limits import Limits
from toeplix.serving.server import running
from toeplix.serving.service import open_service

NEW = 40
WARM = Sampling(temperature=0.9)


def outcomes(engine, jobs):
    """Tokens of every job, and whether it failed, when all of them have ended."""
    seen, done, over = {}, [], threading.Event()

    def deliver(ticket, events):
        seen.setdefault(ticket, []).extend(events)
        done.extend(
            event for event in events if isinstance(event, RequestFailed) or event_ends(event)
        )
        if len(done) == len(jobs):
            over.set()

    tickets = engine.submit(jobs, deliver)
    assert over.wait(60)
    return [
        (
            sampled(seen[ticket], 0),
            [event for event in seen[ticket] if isinstance(event, RequestFailed)],
        )
        for ticket in tickets
    ]


def event_ends(event):
    return isinstance(event, TokenSampled) and event.finish_reason is not None


def spoiled(model, prompt, others, value):
    """Make a token bad that greedy decoding of this prompt reaches, and the others never see."""
    engine = Engine(model, max_batch=8, queue=50, max_new_tokens=NEW)
    (bad, _), *rest = outcomes(engine, [Job(prompt=prompt, max_new_tokens=NEW), *others])
    engine.close()
    used = {token for tokens, _ in rest for token in tokens}
    used |= {token for job in others for token in job.prompt} | set(prompt)
    place, token = next((i, t) for i, t in enumerate(bad) if i > 3 and t not in used)
    with torch.no_grad():
        model.get_parameter("embedding.weight")[token] = value
    return place, [tokens for tokens, _ in rest]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_a_row_that_goes_bad_among_others(value, sampling):
    model = model_of("toeplitz", vocab=211, heads=2, gate_bias=0.0)  # it does not repeat itself
    others = [
        Job(prompt=[5 + i, 9, 11], max_new_tokens=NEW, sampling=sampling, seeds=(i,))
        for i in range(4)
    ]
    place, expected = spoiled(model, [1, 2, 3], others, value)
    engine = Engine(model, max_batch=8, queue=50, max_new_tokens=NEW)
    jobs = [*others[:2], Job(prompt=[1, 2, 3], max_new_tokens=NEW, top_logprobs=2), *others[2:]]
    try:
        for _ in range(2):  # the second time in the places that the bad row left behind
            found = outcomes(engine, jobs)
            tokens, failures = found.pop(2)
            if value != 1e30:  # which a norm makes harmless
                assert len(tokens) == place + 1
                assert [failure.reason for failure in failures] == ["logits"]
            assert [tokens for tokens, _ in found] == expected
            assert not any(failures for _, failures in found)
    finally:
        engine.close()


@pytest.fixture
def damaged(checkpoint):
    """A server whose model is not a number after one token, which no text has."""
    service = open_service(checkpoint, "tiny", Limits(max_tokens=20))
    with torch.no_grad():
        service.model.embedding.weight[service.tokenizer.pad] = float("nan")
    with running(service) as server:
        yield server


@pytest.mark.parametrize("fields", [{}, {"temperature": 0}, {"logprobs": 2, "echo": True}])
def test_the_request_is_told(damaged, fields):
    pad = damaged.service.tokenizer.pad
    before = ask(damaged, prompt="to be", max_tokens=9, seed=1)[1]["choices"]
    asked = {"prompt": [5, pad, 6], "max_tokens": 5, **fields}
    status, body = ask(damaged, **asked)
    assert status == 500
    assert "logits that are not finite" in body["error"]["message"]
    text = json.dumps({"model": "tiny", "stream": True, **asked}).encode()
    status, _, streamed = exchange(damaged, post("/v1/completions", text))
    assert status == 200
    assert b"logits that are not finite" in streamed
    assert b"NaN" not in streamed
    assert b"[DONE]" not in streamed
    assert ask(damaged, prompt="to be", max_tokens=9, seed=1)[1]["choices"] == before
