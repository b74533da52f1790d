"""A server of quantized weights: its completions are those of the library with the same weights."""

import json

import pytest

from tests.serving.raw import exchange, post
from toeplix.inference import generate, load_pretrained
from toeplix.mixers.quantized import SCHEMES, quantization_of
from toeplix.serving.server import running
from toeplix.serving.service import open_service

PROMPT = "to be or not"


def completion(url, **options):
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "logprobs": 2, **options}
    status, _, body = exchange(url, post("/v1/completions", json.dumps(asked).encode()))
    assert status == 200, body
    return json.loads(body)["choices"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_equal_requests_alone_have_equal_completions(checkpoint, scheme):
    expected = load_pretrained(checkpoint, quantize=scheme, decoding_layout=True)
    tokenizer = expected.tokenizer
    prompt = [tokenizer.start, *tokenizer.encode(PROMPT)]
    ends = [tokenizer.end]
    (new,) = generate(expected.model, [prompt], max_new_tokens=12, stop_tokens=ends)
    with running(open_service(checkpoint, "tiny", quantize=scheme)) as server:
        assert quantization_of(server.service.model) == scheme
        (first,) = completion(server.url, temperature=0)
        assert [first] == completion(server.url, temperature=0)
        sampled = completion(server.url, temperature=1.0, seed=3)
        assert sampled == completion(server.url, temperature=1.0, seed=3)
    assert first["text"] == tokenizer.decode([each for each in new if each not in ends])
