"""Generation: the plain way is the truth, and company changes nothing."""

import pytest
import torch

from tests.models import small
from toeplix import build
from toeplix.architectures import ARCHITECTURES
from toeplix.inference.generation import generate, stream
from toeplix.inference.sampling import Sampling
from toeplix.mixers.short_convolution import short_convolution

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
    assert generate(model, PROMPTS, max_new_tokens=12) == expected
    assert generate(model, PROMPTS, max_new_tokens=12, chunk=4) == expected


def test_company_changes_nothing(model):
    how = {
        "max_new_tokens": 10,
        "sampling": Sampling(temperature=1.0, top_p=0.9),
        "seed": [5, 6, 7, 8],
    }
    together = generate(model, PROMPTS, **how)
    for row, prompt in enumerate(PROMPTS):
        assert generate(model, [prompt], **(how | {"seed": [5 + row]})) == [together[row]]


def test_stopping(model):
    full = generate(model, [PROMPTS[0]], max_new_tokens=10)[0]
    stopped = generate(model, [PROMPTS[0]], max_new_tokens=10, stop_tokens=[full[3]])[0]
    assert stopped == full[: full.index(full[3]) + 1]

    def decode(tokens):
        return "".join(chr(97 + token % 26) for token in tokens)

    wanted = decode(full)[1:3]
    by_text = generate(
        model, [PROMPTS[0]], max_new_tokens=10, stop_strings=[wanted], decode=decode
    )[0]
    assert decode(by_text).endswith(wanted)
    assert wanted not in decode(by_text)[:-1]


def test_streaming_yields_in_order(model):
    pairs = list(stream(model, PROMPTS[:1], max_new_tokens=4))
    assert [row for row, _ in pairs] == [0] * 4
    assert [token for _, token in pairs] == generate(model, PROMPTS[:1], max_new_tokens=4)[0]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"prompts": [[]]}, "prompt 0 is empty"),
        ({"prompts": [[1], [99]]}, "prompt 1 has tokens outside the vocabulary of 37"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
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
        generate(model, **({"prompts": [[1]], "max_new_tokens": 2} | how))


def test_a_model_in_training_generates_without_dropout_and_trains_on():
    torch.manual_seed(0)
    model = build(small(**SMALL, dropout=0.5))
    assert generate(model, PROMPTS, max_new_tokens=6) == generate(model, PROMPTS, max_new_tokens=6)
    assert model.training


def test_rows_are_sampled_differently_and_tiny_temperatures_are_greedy():
    torch.manual_seed(0)
    model = build(small(**SMALL))
    rows = generate(model, [[1]] * 4, max_new_tokens=8, sampling=Sampling(temperature=1.0))
    assert len({tuple(row) for row in rows}) > 1
    cold = generate(model, [[1]], max_new_tokens=8, sampling=Sampling(temperature=1e-45))
    assert cold == generate(model, [[1]], max_new_tokens=8)


def test_streams_of_a_model_in_training_may_take_turns():
    """No token is sampled with dropout, and between tokens the model is as it was."""
    torch.manual_seed(0)
    model = build(small(**SMALL, dropout=0.5))
    with torch.no_grad():
        model.head.weight.normal_()
    expected = generate(model, [[1, 2, 3]], max_new_tokens=20)[0]
    short, long = (
        stream(model, [prompt], max_new_tokens=count)
        for prompt, count in (([5], 3), ([1, 2, 3], 20))
    )
    next(short)
    found = [next(long)[1]]
    assert model.training
    list(short)
    found += [token for _, token in long]
    assert found == expected
    assert model.training


@pytest.mark.parametrize("size", [3, 8])
def test_hyena_reads_a_single_position_under_autocast(size):
    """After a chunk of several positions, whose inputs are kept in the dtype of autocast."""
    torch.manual_seed(0)
    model = build(small("hyena", **SMALL)).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (found,) = generate(model, [[1] * (size + 1)], max_new_tokens=4, chunk=size)
    assert len(found) == 4


def test_a_short_convolution_has_one_dtype():
    wide, weight, bias = torch.randn(2, 9, 6), torch.randn(6, 1, 3), torch.randn(6)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            whole = short_convolution(wide, weight, bias)
            last = short_convolution(wide[:, -3:], weight, bias)
        assert whole.dtype == last.dtype == dtype
        torch.testing.assert_close(last, whole[:, -1:], rtol=0.05, atol=0.05)
