"""The public leak test passes what is causal and fails what is not."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from toeplix import toeplitz
from toeplix.testing import assert_causal

KERNEL = torch.randn(1, 64, generator=torch.Generator().manual_seed(1)) / 8
X = torch.randn(2, 64, 6, generator=torch.Generator().manual_seed(2))


def ours(x, **how):
    return toeplitz(x[:, :, None], KERNEL, **how)[:, :, 0]


def circular(x):
    """A convolution by FFT that forgot the padding: the end wraps to the beginning."""
    spectrum = torch.fft.rfft(KERNEL[0], n=x.shape[1])[:, None]
    return torch.fft.irfft(torch.fft.rfft(x, dim=1) * spectrum, n=x.shape[1], dim=1)


class OneAhead(nn.Module):
    """Leaks from a single position only, and only a little."""

    def forward(self, x):
        y = x.clone()
        y[:, 10] = y[:, 10] + 1e-3 * x[:, 11]
        return y


def test_ours_is_causal():
    assert_causal(ours, X)
    assert_causal(lambda x: ours(x, path="fft"), X)
    assert_causal(lambda x: ours(x, path="fft"), X, scale=1e4)


def test_the_exact_path_bit_for_bit():
    assert_causal(lambda x: ours(x, exact=True), X, scale=1e10, tolerance=0)


def test_rounding_fails_a_demand_for_equality():
    with pytest.raises(AssertionError, match="where 0 is allowed"):
        assert_causal(lambda x: ours(x, path="fft"), X, tolerance=0)


def test_a_circular_convolution_fails():
    with pytest.raises(AssertionError, match=r"not causal: changing positions 1 \.\. 63"):
        assert_causal(circular, X)


@pytest.mark.parametrize(
    "leak", [OneAhead(), lambda x: x - x.mean(1, keepdim=True), lambda x: x.flip(1)]
)
def test_other_leaks_fail(leak):
    with pytest.raises(AssertionError, match="not causal"):
        assert_causal(leak, X, positions=range(1, 64))


def test_a_leak_of_nan_fails():
    def poisoned(x):
        return x / (x[:, -1:, :1] == X[:, -1:, :1])

    with pytest.raises(AssertionError, match="not causal"):
        assert_causal(poisoned, X)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: y,
        lambda y: (y, None),
        lambda y: {"loss": None, "y": y},
        lambda y: SimpleNamespace(logits=y),
    ],
)
def test_tokens_and_every_kind_of_output(wrap):
    embedding = nn.Embedding(11, 4)
    tokens = torch.randint(11, (2, 20))
    assert_causal(lambda t: wrap(embedding(t).cumsum(1)), tokens, vocabulary=11)
    with pytest.raises(AssertionError, match="not causal"):
        assert_causal(lambda t: wrap(embedding(t).flip(1).cumsum(1)), tokens)


def test_what_cannot_be_tested_is_refused():
    with pytest.raises(ValueError, match="t >= 2"):
        assert_causal(ours, X[:, :1])
    with pytest.raises(ValueError, match="output must be"):
        assert_causal(lambda x: x.sum(1), X)
    with pytest.raises(ValueError, match="not finite"):
        assert_causal(lambda x: x / 0, X)
    with pytest.raises(TypeError, match="no tensor in a int"):
        assert_causal(lambda x: 3, X)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_tenth_of_the_next_position_is_a_leak_in_every_dtype(dtype):
    x = X.to(dtype)
    assert_causal(lambda x: x * 2, x)
    with pytest.raises(AssertionError, match="not causal"):
        assert_causal(lambda x: x + 0.1 * x.roll(-1, 1), x)


def test_an_input_of_zeros_still_shows_a_leak():
    with pytest.raises(AssertionError, match="not causal"):
        assert_causal(lambda x: x.flip(1), torch.zeros(2, 8, 3))


def test_functions_that_reuse_memory():
    buffer = torch.empty_like(X)

    def flipped(x):
        return buffer.copy_(x.flip(1))

    with pytest.raises(AssertionError, match="not causal"):
        assert_causal(flipped, X)
    assert_causal(lambda x: x.mul_(2), X)


def test_every_small_token_changes():
    tokens = torch.full((1, 200), 249, dtype=torch.uint8)
    with pytest.raises(AssertionError, match="not causal"):
        assert_causal(lambda t: t.flip(1), tokens, vocabulary=250, positions=[199])


def test_what_could_only_pass_is_refused():
    for positions in ([], [0], [64], [1000]):
        with pytest.raises(ValueError, match="positions must lie between 1 and 63"):
            assert_causal(ours, X, positions=positions)
    with pytest.raises(ValueError, match="x is not finite"):
        assert_causal(ours, X / 0)
    with pytest.raises(ValueError, match="not repeatable"):
        assert_causal(nn.Dropout(0.5), X)
