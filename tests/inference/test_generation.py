"""Generation: the plain way is the truth, and company changes nothing."""

import pytest
import torch

from tests.models import small
from toeplix import build
from toeplix.architectures import ARCHITECTURES
from toeplix.inference.generation import Sampling, drawn, generate, probabilities, stream

SMALL = {"vocab": 37, "context": 24, "dim": 32, "depth": 2, "state_size": 16, "window": 7}
PROMPTS = [[1, 2, 3, 4, 5], [7], [9, 8, 7, 6, 5], list(range(30))]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request):
    torch.manual_seed(0)
    model = build(small(request.param, **SMALL)).eval()
    with torch.no_grad():  # larger logits, so that rounding decides no argmax
        for parameter in model.parameters():
            if parameter.shape == (37, 32):
                parameter.mul_(20)
    return model


@torch.no_grad()
def plain(model, prompt, new):
    tokens = list(prompt)
    for _ in range(new):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


def test_greedy_is_the_plain_way(model):
    expected = [plain(model, prompt, 12) for prompt in PROMPTS]
    assert generate(model, PROMPTS, new=12) == expected
    assert generate(model, PROMPTS, new=12, chunk=4) == expected


def test_company_changes_nothing(model):
    how = {"new": 10, "sampling": Sampling(temperature=1.0, top_p=0.9), "seed": [5, 6, 7, 8]}
    together = generate(model, PROMPTS, **how)
    for row, prompt in enumerate(PROMPTS):
        assert generate(model, [prompt], **(how | {"seed": [5 + row]})) == [together[row]]


def test_stopping(model):
    full = generate(model, [PROMPTS[0]], new=10)[0]
    stopped = generate(model, [PROMPTS[0]], new=10, stop_tokens=[full[3]])[0]
    assert stopped == full[: full.index(full[3]) + 1]

    def decode(tokens):
        return "".join(chr(97 + token % 26) for token in tokens)

    wanted = decode(full)[1:3]
    by_text = generate(model, [PROMPTS[0]], new=10, stop_strings=[wanted], decode=decode)[0]
    assert decode(by_text).endswith(wanted)
    assert wanted not in decode(by_text)[:-1]


def test_streaming_yields_in_order(model):
    pairs = list(stream(model, PROMPTS[:1], new=4))
    assert [row for row, _ in pairs] == [0] * 4
    assert [token for _, token in pairs] == generate(model, PROMPTS[:1], new=4)[0]


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


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"prompts": [[]]}, "prompt 0 is empty"),
        ({"prompts": [[1], [99]]}, "prompt 1 has tokens outside the vocabulary of 37"),
        ({"new": 0}, "new=0"),
        ({"seed": [1, 2]}, "2 seeds for 1 prompts"),
        ({"stop_strings": ["x"]}, "need decode"),
        ({"chunk": 0}, "chunk=0"),
        ({"stop_strings": [""], "decode": str}, "none of them empty"),
        ({"stop_strings": "ab", "decode": str}, "a list of strings"),
        ({"stop_tokens": 5}, "a list of tokens"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_requests(how, words):
    model = build(small(**SMALL))
    with pytest.raises(ValueError, match=words):
        generate(model, **({"prompts": [[1]], "new": 2} | how))


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p", "min_p", "repetition_penalty"])
def test_bad_sampling(field):
    with pytest.raises(ValueError, match=f"{field}=-1"):
        Sampling(**{field: -1})


def test_a_model_in_training_generates_without_dropout_and_trains_on():
    torch.manual_seed(0)
    model = build(small(**SMALL, dropout=0.5))
    assert generate(model, PROMPTS, new=6) == generate(model, PROMPTS, new=6)
    assert model.training


def test_rows_draw_differently_and_tiny_temperatures_are_greedy():
    torch.manual_seed(0)
    model = build(small(**SMALL))
    rows = generate(model, [[1]] * 4, new=8, sampling=Sampling(temperature=1.0))
    assert len({tuple(row) for row in rows}) > 1
    cold = generate(model, [[1]], new=8, sampling=Sampling(temperature=1e-45))
    assert cold == generate(model, [[1]], new=8)


def test_tokens_are_drawn_by_their_chances():
    chances = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0])
    generator = torch.Generator().manual_seed(0)
    found = torch.tensor([drawn(chances, generator) for _ in range(4000)]).bincount(minlength=6)
    assert found[chances == 0].sum() == 0
    # four deviations of a binomial
    spread = (4000 * chances * (1 - chances)).sqrt()
    assert ((found - 4000 * chances).abs() <= 4 * spread).all()
    again = torch.Generator().manual_seed(0)
    assert drawn(chances, again) == drawn(chances, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("number", "wanted"), [(0.0, 1), (0.5, 3), (1 - 2**-53, 4)])
@pytest.mark.parametrize("scale", [1.0, 1 / 3, 1 + 2**-52, 0.7])
def test_the_ends_of_the_interval_draw_no_token_without_chance(monkeypatch, number, wanted, scale):
    monkeypatch.setattr(
        torch, "rand", lambda *size, dtype, generator: torch.tensor(number, dtype=dtype)
    )
    chances = scale * torch.tensor([0.0, 0.5, 0.0, 0.25, 0.25, 0.0], dtype=torch.float64)
    assert drawn(chances, torch.Generator()) == wanted


def test_chances_that_are_no_numbers_are_refused():
    with pytest.raises(RuntimeError, match="no numbers"):
        drawn(torch.tensor([0.5, float("nan")]), torch.Generator())
