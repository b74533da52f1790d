"""Jobs with settings of their own in one ragged batch: each gets the tokens that it gets alone."""

import itertools

import pytest
import torch

from tests.models import small
from toeplix import build
from toeplix.data import Tokenizer
from toeplix.inference.detokenization import UNKNOWN
from toeplix.inference.generation import complete, generate
from toeplix.inference.sampling import BadLogits, Sampling
from toeplix.inference.scheduler import Job, PromptRead, RequestFailed, Scheduler, TokenSampled

ARCHITECTURES = ("toeplitz", "masked", "hyena", "linear", "llama", "window", "mamba2")
TEXTS = ("t", "what is", "the question is not", "hot", "ice is not hot, the sun is", "be", "or")
TOKENIZER = Tokenizer.train([*TEXTS, "to be or not to be, that is the question"] * 20, 280)


def model_of(arch="toeplitz", **other):
    torch.manual_seed(0)
    sizes = {"vocab": TOKENIZER.vocab, "context": 48, "dim": 16, "depth": 2, "window": 6}
    model = build(small(arch, **sizes, **other)).eval()
    with torch.no_grad():
        model.head.weight.normal_(std=1.0)  # no two tokens nearly as likely
    return model


def jobs_of(**how):
    return [
        Job(
            prompt=[TOKENIZER.start, *TOKENIZER.encode(text)],
            max_new_tokens=6 + number % 3,
            stop_tokens=frozenset([TOKENIZER.end]),
            **how,
        )
        for number, text in enumerate(TEXTS)
    ]


def completed(model, jobs, **how):
    rows = [[] for _ in jobs]
    for number, event in complete(model, jobs, **how):
        rows[number].append(event.token)
    return rows


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_texts_do_not_depend_on_the_batch(arch):
    model, jobs = model_of(arch), jobs_of()
    wanted = [
        generate(
            model,
            [job.prompt],
            max_new_tokens=job.max_new_tokens,
            stop_tokens=[TOKENIZER.end],
        )[0]
        for job in jobs
    ]
    for size in (1, 5, 64):
        assert completed(model, jobs, max_batch=size) == wanted
    assert completed(model, jobs[::-1], max_batch=3, chunk=4) == wanted[::-1]


def test_sampled_texts_do_not_depend_on_the_batch_either():
    model, sampling = model_of(), Sampling(temperature=1.5, top_k=40)
    jobs = jobs_of(sampling=sampling, seeds=(7,))
    first = completed(model, jobs, max_batch=1)
    assert completed(model, jobs[::-1], max_batch=5)[::-1] == first
    assert first != completed(model, jobs_of(sampling=sampling, seeds=(8,)))


def test_stop_strings_end_a_row():
    """Also those that span tokens: any two letters in a row of what would be written."""
    model = model_of(embedding_norm=0.0)  # it does not repeat itself
    prompt = [TOKENIZER.start, *TOKENIZER.encode("what is")]
    (whole,) = completed(model, [Job(prompt=prompt, max_new_tokens=30)])
    text = TOKENIZER.decode(whole)
    pairs = {text[place : place + 2] for place in range(2, len(text) - 2)}
    pairs = sorted(pair for pair in pairs if UNKNOWN not in pair)  # bytes that are no characters
    assert len(pairs) > 5
    for stop in pairs:
        stops = {"stop_strings": ("never", stop), "decode": TOKENIZER.decode}
        (row,) = completed(model, [Job(prompt=prompt, max_new_tokens=30, **stops)])
        assert row == whole[: len(row)]
        assert stop in TOKENIZER.decode(row)
        assert stop not in TOKENIZER.decode(row[:-1])


def test_reasons_and_scores():
    model = model_of()
    prompt = [TOKENIZER.start, *TOKENIZER.encode("hot")]
    (whole,) = completed(model, [Job(prompt=prompt, max_new_tokens=9)])
    for stops, reason in ((frozenset(), "length"), (frozenset([whole[2]]), "stop")):
        scheduler = Scheduler(model, max_batch=2, max_new_tokens=9, chunk=2)
        job = Job(prompt=prompt, max_new_tokens=9, stop_tokens=stops, top_logprobs=3)
        ticket, events = scheduler.add(job), []
        while scheduler.busy:
            events += scheduler.turn().get(ticket, [])
        assert events[0] == PromptRead([])
        assert all(isinstance(event, TokenSampled) for event in events[1:])
        assert [event.finish_reason for event in events[1:-1]] == [None] * (len(events) - 2)
        assert events[-1].finish_reason == reason
        tokens = [event.token for event in events[1:]]
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([prompt + tokens]))[0], 1)
        for place, event in enumerate(events[1:], len(prompt) - 1):
            expected = float(logprobs[place, event.token])
            assert event.score.logprob == pytest.approx(expected, abs=1e-4)
            assert event.score.rank == 1
            assert event.score.top_logprobs[0][0] == event.token
    assert tokens == whole[: whole.index(whole[2]) + 1]


def test_a_failed_turn_ends_its_jobs_and_no_others(monkeypatch):
    model = model_of()
    scheduler = Scheduler(model, max_batch=1, max_new_tokens=5)
    first, second = (scheduler.add(Job(prompt=[1, 2], max_new_tokens=3)) for _ in range(2))
    with monkeypatch.context() as broken:
        broken.setattr(model, "advance", lambda *given, **how: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scheduler.turn()
    assert scheduler.give_up() == {first: [RequestFailed()]}
    events = []
    while scheduler.busy:
        events += scheduler.turn().get(second, [])
    assert events[-1].finish_reason == "length"
    assert scheduler.counts.waiting == scheduler.counts.running == 0


def test_logits_that_are_no_numbers_are_named():
    model = model_of()
    with torch.no_grad():
        model.get_parameter("embedding.weight")[7] = torch.nan
    with pytest.raises(BadLogits, match="prompt 1: the largest logit is nan: weights are damaged"):
        generate(model, [[1, 2, 3], [6, 7]], max_new_tokens=5)


@pytest.mark.parametrize("arch", ["toeplitz", "mamba2"])
def test_a_turn_reads_at_most_a_chunk(arch):
    """Chunks of a prompt do not depend on other prompts, which would change how numbers are rounded."""
    model, sizes = model_of(arch), (7, 8, 8, 3, 21, 2)
    scheduler = Scheduler(model, max_batch=9, max_new_tokens=30, chunk=8)
    for size in sizes:
        scheduler.add(Job(prompt=[1] * size, max_new_tokens=30))
    read = [0]
    while scheduler.counts.waiting:
        scheduler.turn()
        read.append(scheduler.counts.prompt_tokens)
    turns = [after - before for before, after in itertools.pairwise(read)]
    assert max(turns) <= 8
    assert turns == [7, 8, 8, 3, 8, 8, 5 + 2]
