"""Every path against the definition: values, gradients, dtypes, layouts, exactness."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from tests.ops.cpu_paths import CPU_PATHS
from tests.ops.oracle import assert_near, magnitude, random_pair, spelled_out
from toeplix import toeplitz
from toeplix.ops import toeplitz_matrix

SIZES = [1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 97, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1021]
INEXACT = [name for name, path in CPU_PATHS.items() if not path.exact]
EXACT = [name for name, path in CPU_PATHS.items() if path.exact]


def test_the_matrix_by_hand():
    matrix = toeplitz_matrix(torch.tensor([[1.0, 2.0, 3.0]]))
    assert matrix.tolist() == [[[1, 0, 0], [2, 1, 0], [3, 2, 1]]]


@pytest.mark.parametrize("path", CPU_PATHS)
@pytest.mark.parametrize("time", SIZES)
def test_values_equal_the_definition(path, time):
    x, kernel = random_pair(2, time, 2, 3)
    assert_near(
        toeplitz(x, kernel, path=path), spelled_out(x, kernel), magnitude(x, kernel), x.dtype
    )


@pytest.mark.parametrize("path", CPU_PATHS)
@pytest.mark.parametrize("time", [1, 2, 31, 64, 65, 129, 256, 700, 1300])
@pytest.mark.parametrize("channels", [1, 4])
def test_gradients_equal_those_of_the_definition(path, time, channels):
    """The witness is autograd through the loop of the definition."""
    x, kernel = (part.requires_grad_() for part in random_pair(2, time, 2, channels, time + 5))
    g, _ = random_pair(2, time, 2, channels, seed=1)
    dx, dkernel = torch.autograd.grad(toeplitz(x, kernel, path=path), (x, kernel), g)
    ex, ekernel = torch.autograd.grad(spelled_out(x, kernel), (x, kernel), g)
    assert_near(dx, ex, magnitude(g, kernel[:, :time]), x.dtype)
    # a correlation summed over batch and channels: by Cauchy and Schwarz again
    size = g.norm() * x.detach().norm()
    assert_near(dkernel, ekernel, size, x.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("path", CPU_PATHS)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 5, 2, 4), (1, 33, 1, 2), (2, 67, 2, 1)])
def test_gradcheck(path, shape):
    x, kernel = (part.requires_grad_() for part in random_pair(*shape, shape[1] + 2))
    assert gradcheck(lambda x, k: toeplitz(x, k, path=path), (x, kernel))


@pytest.mark.parametrize("path", CPU_PATHS)
def test_derivatives_of_derivatives(path):
    x, kernel = (part.requires_grad_() for part in random_pair(1, 9, 2, 2, 11))
    assert gradgradcheck(lambda x, k: toeplitz(x, k, path=path), (x, kernel))


def test_third_derivatives():
    x, kernel = (part.requires_grad_() for part in random_pair(1, 4, 1, 2))

    def second(x, kernel):
        y = toeplitz(x, kernel).square().sum()
        dx, dkernel = torch.autograd.grad(y, (x, kernel), create_graph=True)
        return dx.square().sum() + (dkernel**3).sum()

    assert gradgradcheck(second, (x, kernel))


@given(
    batch=st.integers(1, 3),
    time=st.integers(1, 300),
    heads=st.integers(1, 4),
    channels=st.integers(1, 6),
    extra=st.integers(0, 40),
    path=st.sampled_from(["auto", *CPU_PATHS]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
)
def test_any_shape_any_dtype(batch, time, heads, channels, extra, path, dtype):
    x, kernel = random_pair(batch, time, heads, channels, time + extra, dtype)
    y = toeplitz(x, kernel, path=path)
    exact = spelled_out(x.double(), kernel.double())
    assert (y.dtype, y.shape) == (dtype, x.shape)
    assert y.is_contiguous()
    work = torch.promote_types(dtype, torch.float32)
    size = magnitude(x, kernel[:, :time])
    # computed in the working precision, rounded once to the dtype of x
    rounding = torch.finfo(dtype).eps / torch.finfo(work).eps * exact.abs().max().item()
    assert_near(y, exact, size + rounding, work)


@pytest.mark.parametrize("path", CPU_PATHS)
def test_taps_beyond_the_sequence_are_not_read(path):
    x, kernel = random_pair(1, 70, 2, 2, 100)
    poisoned = kernel.clone()
    poisoned[:, 70:] = float("nan")
    assert torch.equal(toeplitz(x, poisoned, path=path), toeplitz(x, kernel, path=path))


@pytest.mark.parametrize("path", CPU_PATHS)
def test_layouts(path):
    """Transposed, sliced, expanded and flipped inputs, and a gradient that is expanded."""
    x, kernel = random_pair(3, 40, 2, 4)
    expected = spelled_out(x, kernel)
    transposed = x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    sliced = torch.cat([x, x], -1)[..., :4]
    size = magnitude(x, kernel)
    for same in (transposed, sliced):
        assert not same.is_contiguous()
        assert_near(toeplitz(same, kernel, path=path), expected, size, x.dtype)
    expanded = x[:1].expand(3, -1, -1, -1)
    y = toeplitz(expanded, kernel[:1].expand(2, -1), path=path)
    assert_near(y, spelled_out(expanded, kernel[:1].expand(2, -1)), size, x.dtype)
    x.requires_grad_()
    (dx,) = torch.autograd.grad(toeplitz(x, kernel, path=path).sum(), x)
    (ex,) = torch.autograd.grad(spelled_out(x, kernel).sum(), x)
    assert_near(dx, ex, kernel.abs().sum(1).max() * 40**0.5, x.dtype)


@pytest.mark.parametrize("path", EXACT)
@pytest.mark.parametrize("time", [65, 300, 1100])
def test_exact_paths_let_nothing_back(path, time):
    x, kernel = random_pair(1, time, 1, 4, dtype=torch.float32)
    cut = time // 2 + 1
    spiked = x.clone()
    spiked[:, cut:] *= 1e20
    before, after = (toeplitz(v, kernel, path=path, exact=True) for v in (x, spiked))
    assert torch.equal(before[:, :cut], after[:, :cut])


@pytest.mark.parametrize("path", INEXACT)
def test_the_others_leak_rounding_and_no_more(path):
    """A spike of 1e4 moves the past, by about 1e-4: the docstring says so."""
    x, kernel = random_pair(1, 1024, 1, 4, dtype=torch.float32)
    kernel = kernel / 32
    spiked = x.clone()
    spiked[:, 900] += 1e4
    before, after = (toeplitz(v, kernel, path=path) for v in (x, spiked))
    moved = (after - before)[:, :900].abs().max().item()
    assert 2e-5 < moved < 1e-3


def test_exact_holds_for_auto_at_every_length():
    for time in (64, 1024, 1500):
        x, kernel = random_pair(1, time, 1, 2, dtype=torch.float32)
        spiked = x.clone()
        spiked[:, -1] = 1e30
        before, after = (toeplitz(v, kernel, exact=True) for v in (x, spiked))
        assert torch.equal(before[:, :-1], after[:, :-1])


def test_only_the_gradient_that_is_needed():
    x, kernel = random_pair(1, 20, 1, 2)
    y = toeplitz(x.clone().requires_grad_(), kernel)
    assert y.grad_fn.saved_tensors[0] is None, "a frozen kernel must not keep x alive"
    kernel.requires_grad_()
    (dkernel,) = torch.autograd.grad(toeplitz(x, kernel).sum(), kernel)
    assert dkernel.shape == kernel.shape


@pytest.mark.parametrize("path", ["auto", *CPU_PATHS])
def test_autocast_keeps_full_precision_inside(path):
    x, kernel = random_pair(1, 200, 2, 4, dtype=torch.float32)
    x.requires_grad_()
    kernel.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = toeplitz(x, kernel, path=path)
        low = toeplitz(x.bfloat16(), kernel, path=path)
    assert y.dtype == torch.float32
    assert low.dtype == torch.bfloat16
    exact = spelled_out(x.double(), kernel.double())
    assert_near(y, exact, magnitude(x, kernel), torch.float32)
    dx, dkernel = torch.autograd.grad(low.float().sum(), (x, kernel))
    assert dx.dtype == dkernel.dtype == torch.float32


def test_empty_batches_pass():
    x = torch.empty(0, 5, 2, 3, requires_grad=True)
    kernel = torch.randn(2, 5, requires_grad=True)
    y = toeplitz(x, kernel)
    y.sum().backward()
    assert y.shape == x.shape
    assert kernel.grad.tolist() == torch.zeros(2, 5).tolist()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_forward_mode_is_refused_not_lost():
    """A plain call would drop the tangent on some paths and answer zero."""
    x, kernel = random_pair(1, 512, 1, 2)
    with pytest.raises(RuntimeError):
        torch.func.jvp(lambda x: toeplitz(x, kernel), (x,), (torch.ones_like(x),))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(RuntimeError):
            toeplitz(dual, kernel)


@pytest.mark.parametrize("path", CPU_PATHS)
def test_fake_and_meta_tensors_leave_no_trace(path):
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, kernel = random_pair(1, 61, 1, 2)
    with FakeTensorMode() as mode:
        assert toeplitz(mode.from_tensor(x), mode.from_tensor(kernel), path=path).shape == x.shape
    assert toeplitz(x.to("meta"), kernel.to("meta"), path=path).shape == x.shape
    assert_near(
        toeplitz(x, kernel, path=path), spelled_out(x, kernel), magnitude(x, kernel), x.dtype
    )


@pytest.mark.parametrize("path", CPU_PATHS)
def test_what_inference_mode_prepared_serves_training(path):
    x, kernel = random_pair(1, 53, 1, 2)
    with torch.inference_mode():
        toeplitz(x, kernel, path=path)
    toeplitz(x, kernel.requires_grad_(), path=path).sum().backward()
    assert kernel.grad is not None
