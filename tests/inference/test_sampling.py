"""Sampling: distributions by hand, and tokens that follow them."""

import pytest
import torch

from toeplix.inference.sampling import Sampling, probabilities, sample

LOGITS = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.1]))


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [1, 0, 0, 0]),
        (Sampling(temperature=1.0), [0.5, 0.25, 0.15, 0.1]),
        (Sampling(temperature=0.5), [25 / 34.5, 6.25 / 34.5, 2.25 / 34.5, 1 / 34.5]),
        (Sampling(temperature=1.0, top_k=2), [2 / 3, 1 / 3, 0, 0]),
        (Sampling(temperature=1.0, top_p=0.75), [2 / 3, 1 / 3, 0, 0]),
        (Sampling(temperature=1.0, top_p=0.76), [5 / 9, 2.5 / 9, 1.5 / 9, 0]),
        (Sampling(temperature=1.0, min_p=0.29), [5 / 9, 2.5 / 9, 1.5 / 9, 0]),
    ],
)
def test_distributions_by_hand(sampling, expected):
    torch.testing.assert_close(probabilities(LOGITS, sampling), torch.tensor(expected) * 1.0)


def test_repetition_penalty_by_hand():
    logits = torch.tensor([2.0, -1.0, 1.0])
    sampling = Sampling(temperature=1.0, repetition_penalty=2.0)
    expected = torch.softmax(torch.tensor([1.0, -2.0, 1.0]), 0)
    torch.testing.assert_close(probabilities(logits, sampling, {0, 1}), expected)


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p", "min_p", "repetition_penalty"])
def test_bad_sampling(field):
    with pytest.raises(ValueError, match=f"{field}=-1"):
        Sampling(**{field: -1})


def test_tokens_are_sampled_by_their_probabilities():
    probs = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0])
    generator = torch.Generator().manual_seed(0)
    found = torch.tensor([sample(probs, generator) for _ in range(4000)]).bincount(minlength=6)
    assert found[probs == 0].sum() == 0
    # four deviations of a binomial
    spread = (4000 * probs * (1 - probs)).sqrt()
    assert ((found - 4000 * probs).abs() <= 4 * spread).all()
    again = torch.Generator().manual_seed(0)
    assert sample(probs, again) == sample(probs, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("number", "wanted"), [(0.0, 1), (0.5, 3), (1 - 2**-53, 4)])
@pytest.mark.parametrize("scale", [1.0, 1 / 3, 1 + 2**-52, 0.7])
def test_the_ends_of_the_interval_sample_no_token_of_probability_zero(
    monkeypatch, number, wanted, scale
):
    monkeypatch.setattr(
        torch, "rand", lambda *size, dtype, generator: torch.tensor(number, dtype=dtype)
    )
    probs = scale * torch.tensor([0.0, 0.5, 0.0, 0.25, 0.25, 0.0], dtype=torch.float64)
    assert sample(probs, torch.Generator()) == wanted


def test_probabilities_that_are_no_numbers_are_refused():
    with pytest.raises(RuntimeError, match="no numbers"):
        sample(torch.tensor([0.5, float("nan")]), torch.Generator())
