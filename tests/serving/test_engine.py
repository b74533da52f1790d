"""The engine alone: what it writes is what `generate` writes, whatever else goes on."""

import threading

import pytest
import torch

from tests.models import small
from toeplix import build
from toeplix.inference.generation import generate
from toeplix.inference.sampling import GREEDY, Sampling
from toeplix.inference.scheduler import Job, PromptRead, RequestFailed, TokenSampled
from toeplix.serving.engine import Draining, Engine, Full

SIZES = {"vocab": 37, "context": 24, "dim": 16, "depth": 1, "state_size": 8, "window": 7}


def model_of(arch, **more):
    torch.manual_seed(0)
    model = build(small(arch, **(SIZES | more))).eval()
    with torch.no_grad():
        model.head.weight.mul_(20)
    return model


def finished(engine, jobs):
    """Events of every job, once all of its rows have ended."""
    seen = {}
    over = threading.Event()
    wanted = sum(len(job.seeds) for job in jobs)

    def deliver(ticket, events):
        seen.setdefault(ticket, []).extend(events)
        ends = [event for each in seen.values() for event in each]
        done = sum(
            isinstance(event, TokenSampled) and event.finish_reason is not None for event in ends
        )
        if done == wanted or any(isinstance(event, RequestFailed) for event in ends):
            over.set()

    tickets = engine.submit(jobs, deliver)
    assert over.wait(60)
    return [seen[ticket] for ticket in tickets]


def sampled(events, row):
    return [event.token for event in events if isinstance(event, TokenSampled) and event.row == row]


@pytest.fixture
def engine_of():
    engines = []

    def start(model, **how):
        engines.append(Engine(model, **({"max_batch": 4, "queue": 50, "max_new_tokens": 60} | how)))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("arch", ["toeplitz", "hyena", "llama"])
def test_rows_are_as_alone(arch, engine_of):
    """Prompts in pieces of 7, several rows of one prompt, more rows than there is room for."""
    model = model_of(arch)
    engine = engine_of(model, chunk=7)
    jobs = [
        Job(
            prompt=[(3 * i + j) % 37 for j in range(length)],
            max_new_tokens=3 + 3 * i,
            sampling=GREEDY if i % 2 else Sampling(temperature=0.9, top_p=0.9),
            seeds=range(i, i + 1 + i % 3),
        )
        for i, length in enumerate((1, 8, 15, 30, 2))
    ]
    for job, events in zip(jobs, finished(engine, jobs), strict=True):
        assert isinstance(events[0], PromptRead)
        for row, seed in enumerate(job.seeds):
            how = {"max_new_tokens": job.max_new_tokens, "sampling": job.sampling, "seed": seed}
            assert sampled(events, row) == generate(model, [list(job.prompt)], **how)[0]
    assert engine.counts.running == engine.counts.waiting == 0


def test_rows_end_at_end_tokens_and_are_cancelled_one_by_one(engine_of):
    model = model_of("toeplitz")
    full = generate(model, [[1, 2]], max_new_tokens=30)[0]
    engine = engine_of(model)
    (events,) = finished(
        engine, [Job(prompt=[1, 2], max_new_tokens=30, stop_tokens=frozenset([full[4]]))]
    )
    assert sampled(events, 0) == full[: full.index(full[4]) + 1]
    assert events[-1].finish_reason == "stop"

    over = threading.Event()
    seen = []

    def deliver(ticket, events):
        seen.extend(event for event in events if isinstance(event, TokenSampled))
        ticket.cancel(1)
        if any(event.finish_reason for event in seen):
            over.set()

    engine.submit([Job(prompt=[1, 2], max_new_tokens=30, seeds=(0, 1))], deliver)
    assert over.wait(60)
    assert sampled(seen, 0) == full
    assert len(sampled(seen, 1)) < 30


@torch.no_grad()
def test_logprobs_of_prompts_in_chunks(engine_of):
    model = model_of("toeplitz")
    prompt = [(5 * i) % 37 for i in range(20)]
    engine = engine_of(model, chunk=6)
    (events,) = finished(
        engine, [Job(prompt=prompt, max_new_tokens=1, top_logprobs=2, echo_logprobs=True)]
    )
    logprobs = torch.log_softmax(model(torch.tensor([prompt]))[0], 1)
    expected = [float(logprobs[place, token]) for place, token in enumerate(prompt[1:])]
    told = events[0].scores
    assert [score.logprob for score in told] == pytest.approx(expected, abs=1e-4)
    for place, score in enumerate(told):
        assert [token for token, _ in score.top_logprobs] == logprobs[place].topk(
            2
        ).indices.tolist()


def test_no_more_than_the_queue_holds_and_none_when_draining(engine_of, monkeypatch):
    model = model_of("toeplitz")
    held = threading.Event()
    advance = model.advance
    monkeypatch.setattr(
        model, "advance", lambda *given, **how: (held.wait(60), advance(*given, **how))[1]
    )
    engine = engine_of(model, queue=3)
    job = Job(prompt=[1], max_new_tokens=2, seeds=(0, 1))
    taken = []
    engine.submit([job], lambda ticket, events: taken.extend(events))
    with pytest.raises(Full):
        engine.submit([job], lambda ticket, events: None)
    engine.drain()
    with pytest.raises(Draining):
        engine.submit([Job(prompt=[1], max_new_tokens=2)], lambda ticket, events: None)
    held.set()
    while sum(isinstance(event, TokenSampled) for event in taken) < 4:
        pass
    assert [event.finish_reason for event in taken if isinstance(event, TokenSampled)].count(
        "length"
    ) == 2


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.7)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("arch", ["toeplitz", "masked", "hyena", "linear", "llama", "mamba2"])
def test_a_row_that_is_no_longer_numbers_is_alone_with_it(arch, sampling, engine_of):
    """Its prompt has a token of NaN: it is told so, and the others do not notice."""
    model = model_of(arch, context=200)
    with torch.no_grad():
        next(m for m in model.modules() if isinstance(m, torch.nn.Embedding)).weight[7] = torch.nan
        model.head.weight[7] = 0  # no row samples it
    found = []
    for token in (6, 7):
        events, both = {}, threading.Semaphore(0)

        def deliver(ticket, news, events=events, both=both):
            events.setdefault(ticket, []).extend(news)
            if ticket.job.max_new_tokens == 40 and any(
                isinstance(n, TokenSampled) and n.finish_reason for n in news
            ):
                both.release()

        first, wrong, last = engine_of(model).submit(
            [
                Job(prompt=[1, 2, 3], max_new_tokens=40),
                Job(prompt=[4, token], max_new_tokens=30, sampling=sampling),
                Job(prompt=[8] * 9, max_new_tokens=40),
            ],
            deliver,
        )
        assert both.acquire(timeout=60)
        assert both.acquire(timeout=60)
        found.append([sampled(events[ticket], 0) for ticket in (first, last)])
    assert found[0] == found[1]
    assert events[wrong][-1] == RequestFailed("logits", "the largest logit is nan")
