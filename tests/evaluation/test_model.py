"""A checkpoint inside the harness: the same for every batch, and the same as the harness's own class."""

import json

import pytest
import torch
from lm_eval.api.instance import Instance

from toeplix import Model, build, save
from toeplix.evaluation.model import Checkpoint, settings
from toeplix.evaluation.truncation import room

pytestmark = pytest.mark.slow

LONG = "the sun is hot, ice is not. " * 12


def asked(kind, *arguments, task="toy"):
    return [
        Instance(request_type=kind, doc={}, arguments=each, idx=0, metadata=(task, number, 1))
        for number, each in enumerate(arguments)
    ]


SCORED = [
    ("what is hot?", " the sun"),
    ("what is hot?", " ice"),
    ("what is hot? ", "that"),
    ("", "to be"),
    ("to be or not to be, that is the", " question"),
    (LONG, " hot"),
]
WRITTEN = [
    ("what is", {"until": ["\n"], "max_gen_toks": 8}),
    ("the sun is hot, ice", {"until": ["e", "t"], "max_gen_toks": 12}),
    ("to", {"until": [], "max_gen_toks": 5, "do_sample": False, "temperature": 1}),
    (LONG, {"until": "\n\n", "max_gen_toks": 10}),
    ("not to be", {"max_gen_toks": 6, "do_sample": True, "temperature": 1.0}),
]


@pytest.mark.parametrize("size", [1, 5, "auto"])
def test_results_do_not_depend_on_the_batch(checkpoint, size):
    first, other = Checkpoint(checkpoint, batch_size=2), Checkpoint(checkpoint, batch_size=size)
    for one, two in zip(
        first.loglikelihood(asked("loglikelihood", *SCORED)),
        other.loglikelihood(asked("loglikelihood", *SCORED[::-1]))[::-1],
        strict=True,
    ):
        assert one[0] == pytest.approx(two[0], rel=1e-5)
        assert one[1] == two[1]
    texts = first.generate_until(asked("generate_until", *WRITTEN))
    assert other.generate_until(asked("generate_until", *WRITTEN[::-1]))[::-1] == texts
    assert "\n" not in texts[0]
    assert not {"e", "t"} & set(texts[1])


def test_the_harness_s_own_class_agrees(checkpoint):
    """HFLM on the model as transformers loads it: other batching, other code, the same numbers."""
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import toeplix.hub  # noqa: F401

    ours = Checkpoint(checkpoint)
    theirs = HFLM(
        pretrained=AutoModelForCausalLM.from_pretrained(checkpoint),
        tokenizer=AutoTokenizer.from_pretrained(checkpoint),
        max_length=64,
        batch_size=3,
    )
    pairs = []
    for context, continuation in SCORED:
        start = ours.tok_encode(context.rstrip())
        pairs.append((None, start, ours.tok_encode(context + continuation)[len(start) :]))
    for one, two, three in zip(
        ours.loglikelihood(asked("loglikelihood", *SCORED)),
        theirs._loglikelihood_tokens(pairs, disable_tqdm=True),
        theirs.loglikelihood(asked("loglikelihood", *SCORED), disable_tqdm=True),
        strict=True,
    ):
        assert one[0] == pytest.approx(two[0], rel=1e-4)
        assert one[0] == pytest.approx(three[0], rel=1e-4)  # the tokenizer adds the start token
        assert one[1] == two[1] == three[1]


MERGED = [("the questio", "n"), ("not to be, tha", "t is"), ("what i", "s the sun")]


@pytest.mark.parametrize(("context", "continuation"), MERGED)
def test_tokens_that_span_context_and_continuation_are_scored(checkpoint, context, continuation):
    """All tokens from the first on that the context alone does not have, by the model itself."""
    lm = Checkpoint(checkpoint)
    start, whole = lm.tok_encode(context), lm.tok_encode(context + continuation)
    first = next(place for place, token in enumerate(whole) if start[place : place + 1] != [token])
    assert first < len(start)
    with torch.no_grad():
        logprobs = lm.model(torch.tensor([whole]))[0, first - 1 : -1].log_softmax(-1)
    expected = logprobs[range(len(whole) - first), whole[first:]].sum().item()
    ((found, _),) = lm.loglikelihood(asked("loglikelihood", (context, continuation)))
    assert found == pytest.approx(expected, rel=1e-5)
    assert found < 0


def test_an_empty_continuation_is_rejected(checkpoint):
    with pytest.raises(ValueError, match="a request of toy has no continuation"):
        Checkpoint(checkpoint).loglikelihood(asked("loglikelihood", ("what is", "")))


def test_rolling_scores_every_token_once(tmp_path, tokenizer):
    """With an output of zeros every token costs log(vocab)."""
    model = build(Model(vocab=tokenizer.vocab, context=16, dim=8, depth=1))
    with torch.no_grad():
        model.head.weight.zero_()
    save(model, tmp_path)
    tokenizer.save(tmp_path)
    lm = Checkpoint(tmp_path)
    texts = ["hot", LONG, "to be or not"]
    found = lm.loglikelihood_rolling(asked("loglikelihood_rolling", *((text,) for text in texts)))
    each = torch.log(torch.tensor(float(tokenizer.vocab))).item()
    for text, value in zip(texts, found, strict=True):
        assert value == pytest.approx(-len(tokenizer.encode(text)) * each, rel=1e-5)
    assert lm.truncations.lines() == ["toy: texts read in several windows 1 of 3"]


def test_rolling_reads_a_short_text_from_its_start(checkpoint):
    lm = Checkpoint(checkpoint)
    (rolling,) = lm.loglikelihood_rolling(asked("loglikelihood_rolling", ("the sun is hot",)))
    ((whole, _),) = lm.loglikelihood(asked("loglikelihood", ("", "the sun is hot")))
    assert rolling == pytest.approx(whole, rel=1e-6)


def test_truncations_are_counted_by_task(checkpoint):
    lm = Checkpoint(checkpoint)
    lm.loglikelihood(asked("loglikelihood", *SCORED, task="scored"))
    lm.loglikelihood(asked("loglikelihood", ("", LONG), task="long"))
    lm.generate_until(
        asked("generate_until", *WRITTEN, ("hot", {"max_gen_toks": 1280}), task="written")
    )
    assert lm.truncations.lines() == [
        "long: continuations truncated 1 of 1",
        "scored: contexts truncated 1 of 6",
        "written: completions truncated 1 of 6",
        "written: prompts truncated 1 of 6",
    ]


@pytest.mark.parametrize("context", [2, 3, 64, 1024])
@pytest.mark.parametrize("prompt", [1, 30, 64, 5000])
@pytest.mark.parametrize("new", [1, 48, 1280])
def test_room(context, prompt, new):
    kept, allowed = room(context, prompt, new)
    assert 1 <= kept <= prompt
    assert 1 <= allowed <= new
    assert kept + allowed - 1 <= context  # the last token is written, never read
    assert allowed >= min(new, context // 2)
    if prompt + new <= context:
        assert (kept, allowed) == (prompt, new)


def test_settings_as_tasks_write_them():
    stops, new, sampling = settings({"until": ["\n", ""], "temperature": 1, "do_sample": False})
    assert (stops, new, sampling.temperature) == (("\n",), 256, 0)
    sampled = settings({"do_sample": True, "temperature": 0.7, "top_p": 0.9, "max_gen_toks": 3})
    assert (sampled[1], sampled[2].temperature, sampled[2].top_p) == (3, 0.7, 0.9)


def test_repeated_requests_draw_anew(checkpoint):
    lm = Checkpoint(checkpoint)
    (request,) = asked("generate_until", ("be", {"do_sample": True, "max_gen_toks": 20}))
    texts = lm.generate_until([request] * 3)
    assert len(set(texts)) == 3
    assert lm.generate_until([request] * 3) == texts


@pytest.mark.parametrize("size", [0, "many", -1])
def test_bad_batch_sizes(checkpoint, size):
    with pytest.raises(ValueError, match="batch size"):
        Checkpoint(checkpoint, batch_size=size)


def test_a_tokenizer_that_is_too_large(tmp_path, tokenizer):
    save(build(Model(vocab=50, context=8, dim=8, depth=1)), tmp_path)
    tokenizer.save(tmp_path)
    with pytest.raises(ValueError, match="tokens, the model 50"):
        Checkpoint(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model"]["vocab"] == 50
