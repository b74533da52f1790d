"""The path "triton" in Triton's interpreter, against the definition in float64.

Not collected by itself: test_interpreted.py runs this file in a process with TRITON_INTERPRET=1, which
must be set before Triton is imported.
"""

from itertools import pairwise

import pytest
import torch

from tests.ops.oracle import random_pair
from toeplix import toeplitz, toeplitz_packed, toeplitz_padded
from toeplix.ops import paths, toeplitz_matrix
from toeplix.ops.triton import product

# the interpreter rounds float32 to bfloat16 towards zero where a GPU rounds to nearest
ROUNDING = {torch.bfloat16: 1.0, torch.float16: 0.5, torch.float32: 0.5}
SIZES = [1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257]


def definition(x, kernel):
    return torch.einsum("hts,bshc->bthc", toeplitz_matrix(kernel[:, : x.shape[1]]), x)


def assert_rounded_once(actual, exact, size):
    """Within one rounding to the dtype, and a few roundings of float32 of the numbers inside."""
    info = torch.finfo(actual.dtype)
    inside = 8 * torch.finfo(torch.float32).eps * float(size)
    bound = ROUNDING[actual.dtype] * info.eps * exact.abs() + inside + info.tiny
    excess = ((actual.double() - exact).abs() / bound).max().item()
    assert excess <= 1, f"{excess:.2f} times the error of one rounding"


def assert_equals_definition(x, kernel, call, reference, seed=1):
    """Compare values and gradients of `call(x, kernel)` with those of `reference` in float64."""
    x, kernel = x.detach().requires_grad_(), kernel.detach().requires_grad_()
    exact = [part.detach().double().requires_grad_() for part in (x, kernel)]
    y, expected = call(x, kernel), reference(*exact)
    generator = torch.Generator().manual_seed(seed)
    g = torch.randn(x.shape, generator=generator).to(x.dtype)
    got = torch.autograd.grad(y, (x, kernel), g)
    wanted = torch.autograd.grad(expected, exact, g.double())
    assert (y.dtype, y.shape, y.is_contiguous()) == (x.dtype, x.shape, True)
    norms = [part.detach().double().norm(dim=1).max() for part in (x, kernel, g)]
    assert_rounded_once(y.detach(), expected.detach(), norms[0] * norms[1])
    assert got[0].dtype == x.dtype
    assert_rounded_once(got[0], wanted[0], norms[2] * norms[1])
    assert got[1].dtype == kernel.dtype
    assert_rounded_once(got[1], wanted[1], g.double().norm() * x.detach().double().norm())


def fused(x, kernel):
    return toeplitz(x, kernel, path="triton")


@pytest.mark.parametrize(
    ("time", "dtype"),
    [(time, torch.float32) for time in SIZES]
    + [(time, dtype) for time in (1, 33, 64, 129) for dtype in (torch.bfloat16, torch.float16)],
)
def test_lengths(time, dtype):
    assert_equals_definition(*random_pair(2, time, 2, 3, time + 5, dtype), fused, definition)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("channels", [1, 16, 31, 32, 33, 65, 130])
def test_channels(channels, dtype):
    """Tiles over rows, over channels, narrow and wide, full and not."""
    assert_equals_definition(*random_pair(2, 70, 1, channels, 70, dtype), fused, definition)


def test_many_rows_of_one_channel():
    assert_equals_definition(
        *random_pair(140, 33, 2, 1, 33, dtype=torch.float16), fused, definition
    )


@pytest.mark.parametrize("channels", [4, 40])
def test_layouts(channels):
    """Strided, transposed and expanded inputs, filters that are not contiguous, expanded gradients."""
    x, kernel = random_pair(3, 40, 2, channels, dtype=torch.float32)
    transposed = x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    sliced = torch.cat([x, x], -1)[..., ::2]
    later = torch.cat([x, x], 1)[:, 7:47]
    expanded = x[:1, :, :1].expand(3, 40, 2, channels)
    filters = kernel.t().contiguous().t()
    for other in (transposed, sliced, later, expanded):
        assert not other.is_contiguous()
        assert_equals_definition(other, filters, fused, definition)
    x.requires_grad_(), kernel.requires_grad_()
    got = torch.autograd.grad(fused(x, kernel).sum(), (x, kernel))
    wanted = torch.autograd.grad(definition(x.double(), kernel.double()).sum(), (x, kernel))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("programs", [1, 7, 512])
def test_splits_of_the_correlation(programs, monkeypatch):
    """However the columns are divided among programs, the gradient of the filter is their sum."""
    monkeypatch.setattr(product, "CORRELATION_PROGRAMS", programs)
    for shape in ((9, 65, 1, 33), (70, 65, 2, 3)):
        assert_equals_definition(*random_pair(*shape, dtype=torch.float32), fused, definition)


def by_document(offsets):
    def reference(x, kernel):
        parts = [definition(x[:, a:b], kernel) for a, b in pairwise(offsets) if b > a]
        return torch.cat(parts, 1)

    return reference


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("channels", [3, 70])
def test_packed_documents(channels, dtype):
    """Documents that end within tiles and at their borders; some are empty."""
    lengths = [0, 1, 63, 0, 64, 65, 129, 2, 0]
    offsets = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    pair = random_pair(1, offsets[-1], 2, channels, 150, dtype)
    assert_equals_definition(
        *pair, lambda x, w: toeplitz_packed(x, w, offsets, path="triton"), by_document(offsets)
    )


def test_padded_rows():
    mask = torch.zeros(4, 150, dtype=torch.bool)
    for row, (first, last) in enumerate([(0, 150), (0, 70), (33, 150), (64, 129)]):
        mask[row, first:last] = True

    def reference(x, kernel):
        rows = []
        for row in range(4):
            real = mask[row]
            part = x.new_zeros(x[row : row + 1].shape)
            rows.append(
                part.index_put(
                    (torch.tensor([0]).expand(int(real.sum())), real.nonzero()[:, 0]),
                    definition(x[row : row + 1, real], kernel)[0],
                )
            )
        return torch.cat(rows)

    pair = random_pair(4, 150, 2, 3, dtype=torch.float32)
    assert_equals_definition(
        *pair, lambda x, w: toeplitz_padded(x, w, mask, path="triton"), reference
    )


@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul")  # inf times zero
@pytest.mark.parametrize("value", [1e20, float("inf"), float("nan")])
@pytest.mark.parametrize("channels", [3, 40])
def test_no_row_or_document_touches_another(channels, value):
    x, kernel = random_pair(3, 80, 1, channels, dtype=torch.float32)
    offsets = [0, 80, 160, 240]
    calls = (
        fused,
        lambda u, w: toeplitz_packed(u.reshape(1, 240, 1, -1), w, offsets, path="triton"),
    )
    for call in calls:
        results = []
        for poison in (0.5, value):
            u = x.clone()
            u[1, 10:70:3] = poison
            u.requires_grad_()
            y = call(u, kernel)
            y.backward(u.detach().view_as(y))
            results.append([part.detach().view_as(x)[[0, 2]] for part in (y, u.grad)])
        for one, other in zip(*results, strict=True):
            assert one.isfinite().all()
            assert torch.equal(one, other)


def test_nothing_comes_back_from_the_future():
    x, kernel = random_pair(1, 150, 1, 4, dtype=torch.float32)
    spiked = x.clone()
    spiked[:, 77:] *= 1e20
    before, after = (toeplitz(u, kernel, path="triton", exact=True) for u in (x, spiked))
    assert torch.equal(before[:, :77], after[:, :77])


def test_taps_beyond_the_sequence_are_not_read():
    x, kernel = random_pair(1, 70, 2, 2, 100, dtype=torch.float32)
    poisoned = kernel.clone()
    poisoned[:, 70:] = float("nan")
    assert torch.equal(fused(x, poisoned), fused(x, kernel))
    kernel.requires_grad_()
    (gradient,) = torch.autograd.grad(fused(x, kernel).sum(), kernel)
    assert torch.equal(gradient[:, 70:], torch.zeros(2, 30))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_float32_filter_is_rounded_to_the_dtype_of_x(dtype):
    x, kernel = random_pair(2, 40, 2, 3, dtype=torch.float32)
    y = fused(x.to(dtype), kernel)
    assert torch.equal(y, fused(x.to(dtype), kernel.to(dtype)))
    kernel.requires_grad_()
    (gradient,) = torch.autograd.grad(fused(x.to(dtype), kernel).float().sum(), kernel)
    assert gradient.dtype == torch.float32


def test_derivatives_of_derivatives():
    x, kernel = (u.requires_grad_() for u in random_pair(1, 9, 2, 2, 11, dtype=torch.float32))
    results = []
    for call, to in ((fused, torch.float32), (definition, torch.float64)):
        y = (call(x.to(to), kernel.to(to)) ** 3).sum()
        dx, dkernel = torch.autograd.grad(y, (x, kernel), create_graph=True)
        second = (dx**2).sum() + (dkernel**2).sum()
        results.append(torch.autograd.grad(second, (x, kernel)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


@pytest.mark.parametrize("shape", [(0, 5, 2, 3), (2, 5, 0, 3), (2, 5, 2, 0)])
def test_nothing_in_nothing_out(shape):
    x = torch.ones(shape, requires_grad=True)
    kernel = torch.ones(shape[2], 5, requires_grad=True)
    y = fused(x, kernel)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape
    assert torch.equal(kernel.grad, torch.zeros_like(kernel))


def test_float64_takes_another_path():
    x, kernel = random_pair(2, 70, 2, 3)
    assert torch.equal(fused(x, kernel), toeplitz(x, kernel, path="blocked"))
    assert not paths.PATHS["triton"].supports(x)
    assert paths.PATHS["triton"].supports(x.float())
    offsets = [0, 30, 70]
    torch.testing.assert_close(
        toeplitz_packed(x[:1], kernel, offsets, path="triton"),
        by_document(offsets)(x[:1], kernel),
    )


def test_documents_longer_than_the_filter_are_rejected():
    x, kernel = random_pair(1, 70, 1, 3, 20, dtype=torch.float32)
    with pytest.raises(ValueError, match="a document has 40 positions and kernel 20 taps"):
        toeplitz_packed(x, kernel, [0, 40, 70], path="triton")
