"""The real client of OpenAI against a real server: its answers are those of `generate`."""

import math
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import torch

from toeplix.inference.generation import generate
from toeplix.inference.sampling import Sampling

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def alone(service, text, new, *, temperature=0.0, seed=0, **how):
    """Tokens by the library, without a server."""
    prompt = [service.tokenizer.start, *service.tokenizer.encode(text)]
    how |= {"sampling": Sampling(temperature=temperature), "seed": seed}
    return generate(
        service.model, [prompt], max_new_tokens=new, stop_tokens=[service.tokenizer.end], **how
    )[0]


def written(service, tokens):
    return service.tokenizer.decode(tokens)


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "toeplix"


def test_a_completion_is_what_the_library_writes(client, service):
    found = client.completions.create(model="tiny", prompt="to be", max_tokens=30, temperature=0)
    tokens = alone(service, "to be", 30)
    assert found.choices[0].text == written(service, tokens)
    assert found.choices[0].finish_reason == ("length" if len(tokens) == 30 else "stop")
    assert found.usage.completion_tokens == len(tokens)
    assert found.usage.prompt_tokens == 1 + len(service.tokenizer.encode("to be"))


def test_seeds(client, service):
    asked = {"model": "tiny", "prompt": "that", "max_tokens": 40, "temperature": 1.2}
    found = client.completions.create(**asked, seed=11, n=3)
    for choice in found.choices:
        expected = alone(service, "that", 40, temperature=1.2, seed=11 + choice.index)
        assert choice.text == written(service, expected)
    assert len({choice.text for choice in found.choices}) == 3
    unseeded = [client.completions.create(**asked).choices[0].text for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_a_stream_is_the_whole_in_pieces(client):
    asked = {"model": "tiny", "prompt": ["to", "or not"], "max_tokens": 50, "seed": 1, "n": 2}
    whole = client.completions.create(**asked)
    texts, ended, usage = [""] * 4, {}, None
    for chunk in client.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    ):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.finish_reason:
                ended[choice.index] = choice.finish_reason
        usage = chunk.usage or usage
    assert texts == [choice.text for choice in whole.choices]
    assert ended == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage


def test_requests_that_come_together_are_answered_as_alone(client, service):
    """More than there are rows, of all lengths, at the same time."""
    texts = ["to be or not " * count for count in range(1, 21)]
    before = service.engine.counts.steps, service.engine.counts.row_steps

    def ask(number):
        return client.completions.create(
            model="tiny",
            prompt=texts[number],
            max_tokens=5 + 3 * number,
            temperature=0.9,
            seed=number,
        )

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(ask, range(20)))
    for number, answer in enumerate(found):
        expected = alone(service, texts[number], 5 + 3 * number, temperature=0.9, seed=number)
        assert answer.choices[0].text == written(service, expected), number
    steps, rows = (
        service.engine.counts.steps - before[0],
        service.engine.counts.row_steps - before[1],
    )
    assert rows > 1.5 * steps, "they were not decoded together"


def test_stop_strings_are_never_shown(client, service):
    text = written(service, alone(service, "be", 60))
    stop = text[20:23]
    asked = {"model": "tiny", "prompt": "be", "max_tokens": 60, "temperature": 0, "stop": stop}
    found = client.completions.create(**asked)
    assert found.choices[0].text == text[: text.index(stop)]
    assert found.choices[0].finish_reason == "stop"
    pieces = [chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)]
    assert "".join(pieces) == text[: text.index(stop)]
    both = client.completions.create(**(asked | {"stop": ["nowhere at all", stop]}))
    assert both.choices[0].text == found.choices[0].text


@torch.no_grad()
def test_chances_are_the_models(client, service):
    found = client.completions.create(
        model="tiny", prompt="to be", max_tokens=12, temperature=0, logprobs=3, echo=True
    )
    tokenizer = service.tokenizer
    tokens = [tokenizer.start, *tokenizer.encode("to be"), *alone(service, "to be", 12)]
    logprobs = torch.log_softmax(service.model(torch.tensor([tokens]))[0], 1)
    shown = [token for token in tokens[1:] if token not in service.ends]
    expected = [float(logprobs[place, token]) for place, token in enumerate(shown)]
    told = found.choices[0].logprobs
    assert told.token_logprobs == pytest.approx(expected, abs=1e-3)
    assert found.choices[0].text.startswith("to be")
    assert told.text_offset[0] == 0
    assert len(told.top_logprobs) == len(shown)
    for place, best in enumerate(told.top_logprobs):
        assert max(best.values()) == pytest.approx(float(logprobs[place].max()), abs=1e-3)
    only = client.completions.create(
        model="tiny", prompt="to be", max_tokens=0, logprobs=0, echo=True
    )
    assert only.choices[0].text == "to be"
    assert only.choices[0].logprobs.token_logprobs == pytest.approx(
        expected[: len(tokenizer.encode("to be"))], abs=1e-3
    )


def test_chat(client, service):
    asked = {"model": "tiny", "max_completion_tokens": 25, "temperature": 0}
    asked["messages"] = [{"role": "system", "content": "be"}, {"role": "user", "content": "or?"}]
    found = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    tokens = alone(service, "system: be\nuser: or?\nassistant:", 25)
    assert found.choices[0].message.content == written(service, tokens)
    told = found.choices[0].logprobs.content
    assert b"".join(bytes(each.bytes) for each in told).decode(errors="replace") == (
        found.choices[0].message.content
    )
    assert all(each.logprob == each.top_logprobs[0].logprob for each in told)
    assert all(math.exp(each.logprob) <= 1 for each in told)
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == found.choices[0].message.content
    parts = [{"role": "user", "content": [{"type": "text", "text": "or"}]}]
    assert client.chat.completions.create(**(asked | {"messages": parts})).choices


def test_errors_reach_the_client_as_its_own(client):
    with pytest.raises(openai.NotFoundError, match="no model 'other' here, only 'tiny'"):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.BadRequestError, match="401 is more than the 400"):
        client.completions.create(model="tiny", prompt="x", max_tokens=401)
    with pytest.raises(openai.BadRequestError, match="the server reads at most 300"):
        client.completions.create(model="tiny", prompt="x" * 900)
