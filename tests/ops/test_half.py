"""Half precision: computed in float32 and rounded once, in every call and for the smallest shapes."""

import itertools

import pytest
import torch

from tests.ops.cpu_paths import CPU_PATHS
from tests.ops.oracle import magnitude, spelled_out
from toeplix import (
    decoder,
    toeplitz,
    toeplitz_continued,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_windowed,
)
from toeplix.ops import DECODERS
from toeplix.ops.decoding.ragged import RaggedDecoder

pytestmark = pytest.mark.slow

HALVES = [torch.bfloat16, torch.float16]
TIME, TAPS = 400, 90


def pair(channels, dtype, taps=TIME):
    generator = torch.Generator().manual_seed(channels)
    x = torch.randn(1, TIME, 1, channels, generator=generator)
    kernel = torch.randn(1, taps, generator=generator) / taps**0.5
    return x.to(dtype), kernel.to(dtype)


def assert_rounded_once(actual, exact, size):
    """Half a unit in the last place, and a few roundings of float32 of the numbers inside."""
    info = torch.finfo(actual.dtype)
    bound = 0.5 * info.eps * exact.abs() + 16 * torch.finfo(torch.float32).eps * size + info.tiny
    excess = ((actual.double() - exact).abs() / bound).max().item()
    assert excess <= 1, f"{excess:.2f} times the error of one rounding"


def calls(path):
    """Every call, and the same by the definition."""
    mask = torch.ones(1, TIME, dtype=torch.bool)
    mask[0, :37], mask[0, 380:] = False, False
    ends = [0, 37, 380, TIME]

    def apart(x, kernel):
        return torch.cat([spelled_out(x[:, a:b], kernel) for a, b in itertools.pairwise(ends)], 1)

    def inside(x, kernel):
        return apart(x, kernel) * mask[:, :, None, None]

    return {
        "whole": (lambda x, w: toeplitz(x, w, path=path), spelled_out, TIME),
        "windowed": (lambda x, w: toeplitz_windowed(x, w, path=path), spelled_out, TAPS),
        "long": (lambda x, w: toeplitz_windowed(x, w, path=path), spelled_out, 17),
        "packed": (lambda x, w: toeplitz_packed(x, w, ends, path=path), apart, TIME),
        "padded": (lambda x, w: toeplitz_padded(x, w, mask, path=path), inside, TIME),
        "continued": (
            lambda x, w: toeplitz_continued(x[:, 150:], w, x[:, :150], path=path),
            lambda x, w: spelled_out(x, w)[:, 150:],
            TIME,
        ),
        "continued window": (
            lambda x, w: toeplitz_continued(x[:, 30:], w, x[:, :30], path=path),
            lambda x, w: spelled_out(x, w)[:, 30:],
            TAPS,
        ),
    }


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("path", [*CPU_PATHS, "auto"])
def test_one_sequence_of_one_head(path, channels, dtype):
    for name, (call, definition, taps) in calls(path).items():
        x, kernel = pair(channels, dtype, taps)
        exact_x, exact_kernel = (u.double().requires_grad_() for u in (x, kernel))
        expected = definition(exact_x, exact_kernel)
        size = magnitude(x, kernel)
        with torch.no_grad():
            assert_rounded_once(call(x, kernel), expected.detach(), size)
        x.requires_grad_(), kernel.requires_grad_()
        y = call(x, kernel)
        assert_rounded_once(y.detach(), expected.detach(), size)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        y.backward(g)
        expected.backward(g.double())
        assert x.grad.dtype == kernel.grad.dtype == dtype, name
        assert_rounded_once(x.grad, exact_x.grad, magnitude(g, kernel))
        of_taps = float(g.double().norm() * x.detach().double().norm())
        assert_rounded_once(kernel.grad, exact_kernel.grad, of_taps)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [*DECODERS, "ragged"])
def test_one_row_of_a_decoder(kind, channels, dtype):
    x, kernel = pair(channels, dtype)
    past = x[:, :150]
    state = (
        RaggedDecoder(kernel, past, TIME) if kind == "ragged" else decoder(kernel, past, kind=kind)
    )
    y = torch.stack([state.step(part) for part in x[:, 150:].unbind(1)], 1)
    expected = spelled_out(x.double(), kernel.double())[:, 150:]
    assert_rounded_once(y, expected, magnitude(x, kernel))


@pytest.mark.parametrize("kind", [*DECODERS, "ragged", "continued"])
@torch.no_grad()
def test_autocast_does_not_reach_inside(kind):
    """What comes in float32 is computed in float32, in tiles of matmul and of FFT."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 600, 2, 3, generator=generator)
    kernel = torch.randn(2, 600, generator=generator) / 24
    past, rows = x[:, :200], torch.tensor([1, 0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if kind == "continued":
            y = toeplitz_continued(x[:, 200:], kernel, past)
        else:
            ragged = kind == "ragged"
            state = RaggedDecoder(kernel, past, 600) if ragged else decoder(kernel, past, kind=kind)
            first = [state.step(part) for part in x[:, 200:450].unbind(1)]
            state.select(rows)
            second = [state.step(part)[rows] for part in x[rows, 450:].unbind(1)]
            y = torch.stack(first + second, 1)
    expected = spelled_out(x.double(), kernel.double())[:, 200:]
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=1e-5)
