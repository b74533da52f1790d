"""Tokens and probabilities: the same as the library gives without a page."""

import threading

import pytest
import torch

from toeplix import load
from toeplix.data import Tokenizer
from toeplix.explorer.generation import CHUNK, MAX_PROMPT_TOKENS, write
from toeplix.inference.generation import generate
from toeplix.inference.sampling import Sampling

PROMPTS = ["", "7: one two", "one " * CHUNK]


@pytest.fixture(scope="module")
def loaded(trained):
    checkpoint = trained / "first" / "model"
    return load(checkpoint), Tokenizer.load(checkpoint)


def written(loaded, prompt, new=12, seed=5, **how):
    alone = threading.Lock()
    return list(write(*loaded, prompt, new=new, seed=seed, sampling=Sampling(**how), alone=alone))


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("how", [{}, {"temperature": 1.3, "top_p": 0.9, "top_k": 40}])
def test_it_draws_what_generate_draws(loaded, prompt, how):
    model, tokenizer = loaded
    tokens = [tokenizer.start, *tokenizer.encode(prompt)]
    ends = [tokenizer.end]
    (row,) = generate(
        model, [tokens], max_new_tokens=12, sampling=Sampling(**how), seed=5, stop_tokens=ends
    )
    events = written(loaded, prompt, **how)
    assert [event["token"] for event in events if event["kind"] == "prompt"] == tokens[1:]
    assert [event["token"] for event in events if event["kind"] == "model"] == row
    text = "".join(event["text"] for event in events)
    assert text == prompt + tokenizer.decode(row)


def test_chances_are_those_of_one_forward_pass(loaded):
    model, tokenizer = loaded
    events = [e for e in written(loaded, "one two three", temperature=0.9) if e["kind"] != "rest"]
    tokens = [tokenizer.start, *(event["token"] for event in events)]
    with torch.no_grad():
        probs = model(torch.tensor([tokens]))[0].softmax(1)
    for place, event in enumerate(events):
        here = probs[place]
        assert event["p"] == pytest.approx(float(here[event["token"]]), rel=1e-4)
        assert event["bits"] == pytest.approx(-float(here[event["token"]].log2()), abs=1e-3)
        best = here.sort(descending=True).values[: len(event["top"])]
        assert [p for _, p in event["top"]] == pytest.approx(best.tolist(), rel=1e-4)
        assert event["rank"] == 1 + int((here > here[event["token"]]).sum())


def test_nobody_is_kept_waiting_between_tokens(loaded):
    alone = threading.Lock()
    for _ in write(*loaded, "one", new=5, seed=0, sampling=Sampling(), alone=alone):
        assert alone.acquire(blocking=False)
        alone.release()


def test_too_long_a_prompt(loaded):
    with pytest.raises(ValueError, match=f"at most {MAX_PROMPT_TOKENS}"):
        written(loaded, "one two " * MAX_PROMPT_TOKENS)
