"""The linear path: against matrices written out, and against the model itself."""

import pytest
import torch

from tests.models import FREE
from toeplix import Model, build
from toeplix.explorer.contributions import LINEARIZATIONS, MAX_POSITIONS, arrivals, contributions

SHAPES = {
    "flat": {},
    "heads": {"heads": 2},
    "kernels": {"kernels": 3},
    "channel first": {"heads": 4, "block_order": "mlp_first", "gate": False},
    "two filters": {"heads": 2, "sequential": 2, "activation": "gelu"},
    "rms": {"norm": "rms"},
}
# whose mixers are no matrices of filters and projections alone
OTHER_SHAPES = {
    "groups": {"arch": "toeplitz", "groups": 4, "filter": "recurrent", "free_taps": 3},
    "lookup": {"arch": "lookup", "heads": 2, "keys": 3},
    "hybrid": {"blocks": ("toeplitz", "lookup"), "filter": "recurrent", "decays": 3},
    "no short convolution": {"arch": "lookup", "heads": 2, "short_conv": 1},
}


def fresh(**changes):
    """In double precision, with biases and gains that are not those of a new model."""
    settings = changes if "filter" in changes or "blocks" in changes else FREE | changes
    model = build(Model(vocab=20, context=16, dim=8, depth=2, **settings)).double().eval()
    for value in model.parameters():
        value.data += 0.3 * torch.randn_like(value)
    return model


def toeplitz_matrix(kernel, time):
    matrix = torch.zeros(time, time, dtype=kernel.dtype)
    for row in range(time):
        for column in range(row + 1):
            matrix[row, column] = kernel[row - column]
    return matrix


def dense_mixer(mixer, time):
    """The mixer's filters and projections as one matrix on (t d), entry by entry."""
    dim = 8
    whole = torch.eye(time * dim, dtype=torch.float64)
    identity = torch.eye(time, dtype=torch.float64)
    for layer in mixer.filters:
        heads, kernels, _ = layer.kernel.shape
        width = dim // heads
        one = torch.zeros(time, dim, time, dim, dtype=torch.float64)
        for head in range(heads):
            for number in range(kernels):
                matrix = toeplitz_matrix(layer.kernel[head, number], time)
                for channel in range(width):
                    read = channel + number - (kernels - 1)
                    if read >= 0:
                        one[:, head * width + channel, :, head * width + read] += matrix
        whole = one.reshape(time * dim, -1) @ whole
    if isinstance(mixer.project_in, torch.nn.Linear):
        into = torch.kron(identity, mixer.project_in.weight)
        out = torch.kron(identity, mixer.project_out.weight)
        whole = out @ whole @ into
    return whole


@pytest.mark.parametrize("time", [1, 2, 7, 16])
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_the_path_is_a_product_of_matrices(shape, time):
    model = fresh(**SHAPES[shape])
    tokens = torch.randint(20, (time,))
    path = torch.eye(time * 8, dtype=torch.float64)
    for block in model.blocks:
        path = path + dense_mixer(block.token_mixer, time) @ path
    blocks = path.reshape(time, 8, time, 8)
    x = model.embed(tokens[None])[0]
    expected = torch.stack([(blocks[:, :, s] @ x[s]).norm(dim=1) for s in range(time)], 1)
    torch.testing.assert_close(contributions(model, tokens, "filters_only"), expected)


@torch.no_grad()
def test_in_a_flat_model_it_is_one_filter():
    """Tap t - s of (delta + w_2) * (delta + w_1), times the length of the embedding."""
    model = fresh()
    tokens = torch.randint(20, (13,))
    first, second = (block.token_mixer.filters[0].kernel[0, 0, :13] for block in model.blocks)
    delta = torch.eye(13, dtype=torch.float64)[0]
    taps = torch.stack(
        [
            ((delta + first)[: lag + 1] * (delta + second)[: lag + 1].flip(0)).sum()
            for lag in range(13)
        ]
    )
    found = contributions(model, tokens, "filters_only")
    sizes = model.embed(tokens[None])[0].norm(dim=1)
    torch.testing.assert_close(found, toeplitz_matrix(taps.abs(), 13) * sizes)


@pytest.mark.parametrize("shape", SHAPES | OTHER_SHAPES)
@torch.no_grad()
def test_fixed_at_the_text_it_adds_up_to_the_model(shape):
    """Without channel layers and biases, all that arrives is the residual stream of the model."""
    model = fresh(**(SHAPES | OTHER_SHAPES)[shape], final_norm=False)
    for name, value in model.named_parameters():
        if "bias" in name and ("filters" in name or "project" in name or "token_norm" in name):
            value.zero_()
    for block in model.blocks:
        block.channel_mixer[-1].weight.zero_()
        block.channel_mixer[-1].bias.zero_()
    tokens = torch.randint(20, (11,))
    torch.testing.assert_close(arrivals(model, tokens, "at_text"), model.encode(tokens[None])[0])


@torch.no_grad()
def test_without_a_text_lookup_is_its_filter():
    """Every score is 1: what arrives at t from s is w[t - s], projected, whatever the tokens are."""
    model = fresh(arch="lookup", heads=1, short_conv=1)
    first, second = (each.token_mixer for each in model.blocks)
    tokens = torch.randint(20, (9,))
    path = torch.eye(9 * 8, dtype=torch.float64)
    for mixer in (first, second):
        weight = mixer.project_out.weight @ mixer.project_in.weight[2 * mixer.keys :]
        path = path + torch.kron(toeplitz_matrix(mixer.kernel[0], 9), weight) @ path
    blocks, x = path.reshape(9, 8, 9, 8), model.embed(tokens[None])[0]
    expected = torch.stack([(blocks[:, :, s] @ x[s]).norm(dim=1) for s in range(9)], 1)
    torch.testing.assert_close(contributions(model, tokens, "filters_only"), expected)


@pytest.mark.parametrize("linearization", LINEARIZATIONS)
def test_nothing_arrives_from_the_future(linearization):
    found = contributions(fresh(heads=2), torch.randint(20, (40,)), linearization)
    assert found.shape == (40, 40)
    assert found.triu(1).abs().max() <= 1e-12 * found.max()
    assert (found.diagonal() > 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("linearization", LINEARIZATIONS)
@pytest.mark.parametrize("shape", ["heads", "two filters", *OTHER_SHAPES])
def test_half_precision_is_the_model_rounded(shape, linearization, dtype):
    """The witness has the same weights in double precision."""
    model = fresh(**(SHAPES | OTHER_SHAPES)[shape]).to(dtype)
    tokens = torch.randint(20, (11,))
    found = contributions(model, tokens, linearization)
    assert found.dtype == dtype
    expected = contributions(model.double(), tokens, linearization)
    # a few roundings, as values pass through two layers
    close = 8 * torch.finfo(dtype).eps * float(expected.max())
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=close)


def test_what_is_refused():
    with pytest.raises(ValueError, match="the mixers linear: only those of toeplitz and lookup"):
        contributions(
            build(Model(arch="linear", vocab=20, context=8, dim=8, depth=1)), torch.zeros(3).long()
        )
    with pytest.raises(
        ValueError, match="linearization='all' must be one of at_text, filters_only"
    ):
        contributions(fresh(), torch.zeros(3).long(), "all")
    with pytest.raises(ValueError, match=f"at most {MAX_POSITIONS}"):
        contributions(fresh(), torch.zeros(MAX_POSITIONS + 1).long())
