"""Shared contexts, branches and batches give what every pair gives alone."""

import pytest
import torch

from tests.models import small
from toeplix import build
from toeplix.evaluation.scoring import POSITIONS, batches, families, score

ARCHITECTURES = ("toeplitz", "masked", "hyena", "linear", "llama", "window", "mamba2")


def model_of(arch, dtype=torch.float64):
    sizes = {"vocab": 50, "context": 32, "dim": 16, "depth": 2, "window": 6}
    return build(small(arch, **sizes)).eval().to(dtype)


def questions(seed=0):
    """Contexts with one to five continuations, some of them of one token, some equal to others."""
    draw = torch.Generator().manual_seed(seed)

    def tokens(length):
        return torch.randint(50, (length,), generator=draw).tolist()

    pairs = []
    for length in (1, 2, 3, 8, 9, 11, 11, 20):
        context = tokens(length)
        pairs += [(context, tokens(size)) for size in (1, 1, 4, 7, 2)[: 1 + length % 5]]
    return [*pairs, pairs[3]]


@torch.no_grad()
def alone(model, context, continuation):
    """The definition."""
    logits = model(torch.tensor([context + continuation]))[0]
    logprobs = logits[len(context) - 1 : -1].log_softmax(-1)
    picked = logprobs[range(len(continuation)), continuation]
    return picked.sum().item(), logprobs.argmax(-1).tolist() == continuation


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_scores_are_those_of_every_pair_alone(arch):
    model, pairs = model_of(arch), questions()
    wanted = [alone(model, *pair) for pair in pairs]
    for size in (1, 5, None):
        found = score(model, pairs, batch=size)
        assert [greedy for _, greedy in found] == [greedy for _, greedy in wanted]
        # logits are taken in float32, which also rounds what is compared here
        torch.testing.assert_close(
            torch.tensor([value for value, _ in found]),
            torch.tensor([value for value, _ in wanted]),
            rtol=1e-5,
            atol=1e-5,
        )


def test_the_order_of_requests_does_not_matter():
    model, pairs = model_of("toeplitz"), questions()
    turned = pairs[::-1]
    first, second = score(model, pairs), score(model, turned)[::-1]
    for (value, greedy), (other, same) in zip(first, second, strict=True):
        assert value == pytest.approx(other, abs=1e-5)
        assert greedy == same


def test_what_greedy_decoding_would_write_is_greedy():
    from toeplix.inference.generation import generate

    model = model_of("toeplitz", torch.float32)
    prompt = [3, 1, 4]
    (written,) = generate(model, [prompt], max_new_tokens=4)
    other = [*written[:-1], (written[-1] + 1) % 50]
    assert [greedy for _, greedy in score(model, [(prompt, written), (prompt, other)])] == [
        True,
        False,
    ]


def test_a_context_is_read_once(monkeypatch):
    model = model_of("toeplitz")
    context = list(range(20))
    pairs = [(context, [first, 2, 3]) for first in range(4)]
    seen = []
    advance = type(model).advance
    monkeypatch.setattr(
        type(model),
        "advance",
        lambda self, tokens, state: seen.append(tokens) or advance(self, tokens, state),
    )
    score(model, pairs)
    assert [tuple(tokens.shape) for tokens in seen] == [(1, 19)] + [(1, 3)] * 4


def test_choices_of_one_token_need_one_row():
    pairs = [([1, 2, 3], [token]) for token in range(4)]
    (family,) = families(model_of("mamba2"), pairs)
    assert family.alone
    assert len(family.branches[1, 2, 3]) == 4


def test_batches_hold_similar_lengths_and_the_longest_come_first():
    pairs = [([1] * length, [2, 3]) for length in (4000, 3900, 9, 5, 5000)]
    sizes = [
        [len(next(iter(family.branches))) for family in group]
        for group in batches(families(model_of("toeplitz"), pairs), None)
    ]
    assert [size for group in sizes for size in group] == [5001, 4001, 3901, 10, 6]
    assert all(len(group) * group[0] <= POSITIONS for group in sizes)


def test_an_empty_context_or_continuation_is_rejected():
    for pair, part in ((([], [2]), "context"), (([2], []), "continuation")):
        with pytest.raises(ValueError, match=f"pair 1 has an empty {part}"):
            score(model_of("toeplitz"), [([1], [2]), pair])
