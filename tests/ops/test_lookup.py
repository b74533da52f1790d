"""Lookup equals its definition, forward and backward, however it is computed and whatever follows."""

import pytest
import torch

from toeplix.ops import toeplitz_lookup, toeplitz_lookup_recurrent
from toeplix.ops.lookup import lookup_dense, lookup_recurrent_whole, lookup_step

SIZES = [1, 2, 3, 31, 63, 64, 65, 127, 128, 129, 200]
DECAYS = torch.tensor([0.3, 0.9, 0.999], dtype=torch.float64)


def parts(time, batch=2, heads=3, keys=5, channels=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(time)
    return [
        torch.randn(batch, time, heads, size, generator=generator, dtype=torch.float64).to(dtype)
        for size in (keys, keys, channels)
    ]


def spelled_out(q, k, v, kernel):
    """`y[t] = sum over l < n of kernel[l] (q[t] . k[t - l]) v[t - l]`, one lag after the other."""
    y = torch.zeros_like(v)
    for lag in range(min(v.shape[1], kernel.shape[1])):
        last = v.shape[1] - lag
        scores = (q[:, lag:] * k[:, :last]).sum(-1, keepdim=True)
        y[:, lag:] = y[:, lag:] + kernel[:, lag, None] * scores * v[:, :last]
    return y


def gradients(found, inputs):
    torch.manual_seed(1)
    upper = [torch.randn(each.shape, dtype=each.dtype) for each in found]
    return torch.autograd.grad(found, inputs, upper, retain_graph=True, allow_unused=True)


def same(one, other):
    for mine, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("path", "time"),
    [("tiles", time) for time in SIZES] + [("products", time) for time in (1, 64, 129)],
)
def test_free_filters_by_the_definition(path, time):
    for taps in {1, 40, time}:
        kernel = torch.randn(3, taps, dtype=torch.float64).requires_grad_()
        inputs = [each.requires_grad_() for each in parts(time)] + [kernel]
        expected = spelled_out(*inputs)
        torch.testing.assert_close(lookup_dense(*inputs), expected)
        found = toeplitz_lookup(*inputs, path=path)
        torch.testing.assert_close(found, expected)
        same(gradients([found], inputs), gradients([expected], inputs))


@pytest.mark.parametrize("time", SIZES)
def test_recurrent_filters_by_the_definition(time):
    weights = torch.randn(3, 3, dtype=torch.float64).requires_grad_()
    inputs = [each.requires_grad_() for each in parts(time)] + [weights]
    powers = DECAYS[:, None] ** torch.arange(time)
    y = spelled_out(*inputs[:3], weights @ powers)
    sums = torch.einsum("rs,bshe,bshc->brhec", powers.flip(-1), inputs[1], inputs[2])
    found = toeplitz_lookup_recurrent(*inputs, DECAYS)
    same(found, (y, sums))
    same(gradients(found, inputs), gradients((y, sums), inputs))
    whole = lookup_recurrent_whole(*inputs, DECAYS)
    same([whole, *gradients([whole], inputs)], [y, *gradients([y], inputs)])


def test_long_sequences_take_chunks_and_products(monkeypatch):
    """The rule's limits, made small: the results stay the same."""
    from toeplix.ops import dispatch

    q, k, v = parts(150)
    kernel = DECAYS.expand(3, -1) @ DECAYS[:, None] ** torch.arange(150)
    expected = spelled_out(q, k, v, kernel)
    monkeypatch.setitem(dispatch.LOOKUP_TILES, "cpu", 2)
    monkeypatch.setitem(dispatch.LOOKUP_CHUNKS, "cpu", 20)
    torch.testing.assert_close(toeplitz_lookup(q, k, v, kernel), expected)
    whole = lookup_recurrent_whole(q, k, v, DECAYS.expand(3, -1), DECAYS)
    torch.testing.assert_close(whole, expected)


@pytest.mark.parametrize("path", ["tiles", "products"])
def test_free_filters_continue_after_earlier_keys(path):
    q, k, v = parts(150)
    kernel = torch.randn(3, 40, dtype=torch.float64).requires_grad_()
    whole = toeplitz_lookup(q, k, v, kernel)
    first = 90 - 39
    inputs = [q[:, 90:], k[:, first:].requires_grad_(), v[:, first:].requires_grad_(), kernel]
    found = toeplitz_lookup(*inputs, path=path)
    torch.testing.assert_close(found, whole[:, 90:])
    other = spelled_out(q[:, first:], *inputs[1:])[:, 39:]
    same(gradients([found], inputs[1:]), gradients([other], inputs[1:]))


@pytest.mark.parametrize("pieces", [[150], [1, 149], [64, 1, 63, 22], [130, *[1] * 20]])
def test_recurrent_filters_continue_after_a_state(pieces):
    q, k, v = parts(150)
    weights = torch.randn(3, 3, dtype=torch.float64).requires_grad_()
    expected, last = toeplitz_lookup_recurrent(q, k, v, weights, DECAYS)
    state, found = None, []
    for part in zip(*(each.split(pieces, 1) for each in (q, k, v)), strict=True):
        y, state = toeplitz_lookup_recurrent(*part, weights, DECAYS, state=state)
        found.append(y)
    same([torch.cat(found, 1), state], [expected, last])
    same(gradients([torch.cat(found, 1), state], [weights]), gradients([expected, last], [weights]))
    state, found = state.detach().clone().zero_(), []
    for t in range(150):
        one = (each[:, t] for each in (q, k, v))
        found.append(lookup_step(*one, weights, DECAYS, state))
    same([torch.stack(found, 1), state], [expected, last])


def ways(kernel, weights):
    decays = DECAYS.to(weights.dtype)
    return {
        "tiles": lambda q, k, v: toeplitz_lookup(q, k, v, kernel, path="tiles"),
        "window": lambda q, k, v: toeplitz_lookup(q, k, v, kernel[:, :50], path="tiles"),
        "chunks": lambda q, k, v: toeplitz_lookup_recurrent(q, k, v, weights, decays)[0],
    }


@pytest.mark.parametrize("way", ["tiles", "window", "chunks"])
@pytest.mark.parametrize("value", [1e20, float("inf"), float("nan")])
def test_causal_bit_for_bit(way, value):
    q, k, v = parts(130, dtype=torch.float32)
    lookup = ways(torch.randn(3, 130), torch.randn(3, 3))[way]
    before = lookup(q, k, v)
    for place in (1, 63, 64, 100):
        for which in range(3):
            changed = [each.clone() for each in (q, k, v)]
            changed[which][:, place:, :, 0] = value
            assert torch.equal(lookup(*changed)[:, :place], before[:, :place])


def test_a_value_that_is_not_finite_leaves_the_window():
    q, k, v = parts(130, dtype=torch.float32)
    kernel = torch.randn(3, 50)
    expected = toeplitz_lookup(q, k, v, kernel, path="tiles")
    v[0, 20, 1, 0] = float("nan")
    found = toeplitz_lookup(q, k, v, kernel, path="tiles")
    assert found[0, 20:70, 1].isnan().all()
    found[0, 20:70, 1] = expected[0, 20:70, 1]
    kept = torch.ones(130, dtype=torch.bool)
    kept[20:70] = False
    assert torch.equal(found[0, kept][:, [0, 2]], expected[0, kept][:, [0, 2]])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", ["tiles", "window", "chunks"])
@pytest.mark.parametrize("value", [1e20, float("inf"), float("nan")])
def test_rows_are_independent_bit_for_bit(way, value):
    lookup = ways(torch.randn(3, 130), torch.randn(3, 3))[way]
    results = []
    for wrong in (0.5, value):
        inputs = parts(130, batch=4, dtype=torch.float32)
        for each in inputs:
            each[1, 3:100:7] = wrong
            each.requires_grad_()
        y = lookup(*inputs)
        y.sum().backward()
        results.append([y.detach(), *(each.grad for each in inputs)])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one[[0, 2, 3]], other[[0, 2, 3]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("path", ["tiles", "products", "chunks"])
def test_half_precision_is_rounded_once(dtype, path):
    q, k, v = parts(130, dtype=dtype)
    kernel = torch.randn(3, 3).to(dtype) @ (DECAYS.float()[:, None] ** torch.arange(130)).to(dtype)
    weights = torch.ones(3, 3, dtype=dtype)

    def lookup(*inputs):
        if path != "chunks":
            return toeplitz_lookup(*inputs, kernel.to(inputs[0].dtype), path=path)
        decays = DECAYS.to(torch.promote_types(inputs[0].dtype, torch.float32))
        return toeplitz_lookup_recurrent(*inputs, weights, decays)[0]

    exact = lookup(*(each.double() for each in (q, k, v)))
    found = lookup(q, k, v)
    assert found.dtype == dtype
    bound = 0.5 * torch.finfo(dtype).eps * exact.abs() + 1e-4 * exact.abs().max()
    assert ((found.double() - exact).abs() <= bound).all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(lookup(q, k, v), found)


@pytest.mark.parametrize(
    "shape", [(0, 5, 2, 3, 4), (2, 5, 0, 3, 4), (2, 5, 2, 0, 4), (2, 5, 2, 3, 0)]
)
def test_empty_axes(shape):
    batch, time, heads, keys, channels = shape
    q, k = (torch.randn(batch, time, heads, keys, requires_grad=True) for _ in range(2))
    v = torch.randn(batch, time, heads, channels, requires_grad=True)
    weights = torch.randn(heads, 3, requires_grad=True)
    free = toeplitz_lookup(q, k, v, weights)
    y, state = toeplitz_lookup_recurrent(q, k, v, weights, DECAYS.float())
    assert free.shape == y.shape == v.shape
    assert state.shape == (batch, 3, heads, keys, channels)
    (free.sum() + y.sum() + state.sum()).backward()
    assert not y.any()
    assert weights.grad is not None


@pytest.mark.slow  # loads the compiler
def test_meta_device():
    q, k, v = (each.float().to("meta").requires_grad_() for each in parts(70))
    weights = torch.randn(3, 3, device="meta", requires_grad=True)
    decays = DECAYS.float().to("meta")
    y, state = toeplitz_lookup_recurrent(q, k, v, weights, decays)
    assert y.shape == v.shape
    assert state.shape == (2, 3, 3, 5, 4)
    (y.sum() + toeplitz_lookup(q, k, v, weights).sum()).backward()
    assert q.grad.shape == q.shape


@pytest.mark.usefixtures("unchecked")
def test_errors_say_what_is_wrong():
    q, k, v = parts(5)
    weights = torch.ones(3, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="path='fast' is unknown"):
        toeplitz_lookup(q, k, v, weights, path="fast")
    with pytest.raises(ValueError, match="s at least t"):
        toeplitz_lookup(q, k[:, :4], v[:, :4], weights)
    with pytest.raises(ValueError, match="kernel has 2 heads"):
        toeplitz_lookup(q, k, v, weights[:2])
    with pytest.raises(ValueError, match=r"decays must lie in \(0, 1\]"):
        toeplitz_lookup_recurrent(q, k, v, weights, DECAYS + 1)
    with pytest.raises(ValueError, match="state must be"):
        toeplitz_lookup_recurrent(q, k, v, weights, DECAYS, state=torch.zeros(2, 3, 3, 5, 1))
    with pytest.raises(ValueError, match="give earlier positions as the state"):
        toeplitz_lookup_recurrent(q[:, :3], k, v, weights, DECAYS)
    with pytest.raises(ValueError, match="decays get no gradient"):
        toeplitz_lookup_recurrent(q, k, v, weights, DECAYS.clone().requires_grad_())
