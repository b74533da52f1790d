"""Texts written in batches of uneven prompts are those that every prompt gets alone."""

import pytest
import torch

from tests.models import small
from toeplix import build
from toeplix.evaluation.writing import Job, batches, write
from toeplix.inference.generation import generate
from toeplix.inference.sampling import Sampling

ARCHITECTURES = ("toeplitz", "masked", "hyena", "linear", "llama", "window", "mamba2")


def model_of(tokenizer, arch):
    sizes = {"vocab": tokenizer.vocab, "context": 48, "dim": 16, "depth": 2, "window": 6}
    model = build(small(arch, **sizes)).eval()
    with torch.no_grad():
        model.head.weight.normal_(std=1.0)  # no two tokens nearly as likely
    return model


def jobs_of(tokenizer, **how):
    texts = ("t", "what is", "the question is not", "hot", "ice is not hot, the sun is", "be", "or")
    return [
        Job(prompt=(tokenizer.start, *tokenizer.encode(text)), new=6 + number % 3, **how)
        for number, text in enumerate(texts)
    ]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_texts_do_not_depend_on_the_batch(tokenizer, arch):
    model, jobs = model_of(tokenizer, arch), jobs_of(tokenizer)
    wanted = []
    for job in jobs:
        (row,) = generate(model, [job.prompt], max_new_tokens=job.new, stop_tokens=[tokenizer.end])
        wanted.append(row[:-1] if row[-1] == tokenizer.end else row)
    for size in (1, 5, None):
        assert write(model, tokenizer, jobs, batch=size) == wanted
    assert write(model, tokenizer, jobs[::-1], batch=3) == wanted[::-1]


def test_sampled_texts_do_not_depend_on_the_batch_either(tokenizer):
    model = model_of(tokenizer, "toeplitz")
    sampling = Sampling(temperature=1.5, top_k=40)
    jobs = jobs_of(tokenizer, sampling=sampling, seed=7)
    first = write(model, tokenizer, jobs, batch=1)
    assert write(model, tokenizer, jobs[::-1], batch=5)[::-1] == first
    assert first != write(model, tokenizer, jobs_of(tokenizer, sampling=sampling, seed=8))


def test_stop_sequences_end_a_text(tokenizer):
    """Also those that span tokens: any two letters in a row of what would be written."""
    model = model_of(tokenizer, "toeplitz")
    prompt = (tokenizer.start, *tokenizer.encode("what is"))
    (whole,) = write(model, tokenizer, [Job(prompt=prompt, new=30)])
    text = tokenizer.decode(whole)
    for place in range(2, len(text) - 2, 3):
        stop = text[place : place + 2]
        (row,) = write(model, tokenizer, [Job(prompt=prompt, new=30, stops=("never", stop))])
        assert row == whole[: len(row)]
        assert stop in tokenizer.decode(row)
        assert stop not in tokenizer.decode(row[:-1])


def test_the_end_token_ends_a_text(tokenizer):
    model = model_of(tokenizer, "toeplitz")
    prompt = (tokenizer.start, *tokenizer.encode("hot"))
    (whole,) = write(model, tokenizer, [Job(prompt=prompt, new=9)])
    # from the third token on, nothing is as likely as the end
    tokenizer_end = tokenizer.end
    try:
        tokenizer.end = whole[2]
        (row,) = write(model, tokenizer, [Job(prompt=prompt, new=9)])
    finally:
        tokenizer.end = tokenizer_end
    assert row == whole[: whole.index(whole[2])]


def test_prompts_that_differ_much_stay_apart():
    jobs = [Job(prompt=(1,) * length, new=8) for length in (100, 3, 4, 99, 50)]
    assert list(batches(jobs, 32)) == [[0, 3], [4], [2, 1]]
    assert list(batches(jobs, 1)) == [[0], [3], [4], [2], [1]]
