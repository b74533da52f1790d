"""The contract: every architecture, in the paper's form and in ours, keeps the same promises."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.models import FREE, OURS, small, stepped
from toeplix import Model, build, load, save
from toeplix.architectures import ARCHITECTURES
from toeplix.profiling.model_contract import OTHER, SMALL, WAYS, fed_alike
from toeplix.testing import assert_causal

PUBLISHED_ARCHITECTURES = ("toeplitz", "masked", "hyena", "linear", "llama", "window", "mamba2")
VARIANTS = {
    "toeplitz-flat": Model(**FREE, heads=0, gate=False, **SMALL),
    "toeplitz-kernels": Model(**FREE, heads=0, kernels=3, **SMALL),
    "toeplitz-heads": Model(**FREE, heads=4, gate=False, **SMALL),
    "toeplitz-heads-kernels": Model(**FREE, heads=4, kernels=2, **SMALL),
    "toeplitz-two-layer": Model(**FREE, heads=2, sequential=2, **SMALL),
    "toeplitz-frozen": Model(**FREE, heads=4, frozen="random", **SMALL),
    "toeplitz-ones": Model(**FREE, heads=0, gate=False, frozen="ones", **SMALL),
    "toeplitz-gated": Model(**FREE, heads=0, gate=True, norm="rms", tie_embeddings=True, **SMALL),
    "toeplitz-groups": Model(**FREE, groups=8, **SMALL),
    "toeplitz-recurrent": Model(arch="toeplitz", filter="recurrent", **SMALL),
    "toeplitz-recurrent-groups": Model(
        arch="toeplitz", filter="recurrent", groups=8, free_taps=3, **SMALL
    ),
    "toeplitz-recurrent-heads": Model(
        arch="toeplitz", filter="recurrent", heads=4, sequential=2, decays=3, **SMALL
    ),
    "toeplitz-recurrent-smallest": Model(
        arch="toeplitz", filter="recurrent", free_taps=1, decays=1, **SMALL
    ),
    "hybrid-recurrent": Model(
        blocks=("toeplitz", "attention"), filter="recurrent", window=5, **SMALL
    ),
    "hybrid-filters": Model(filter="free", blocks=("toeplitz", "hyena"), groups=2, **SMALL),
    "masked-heads": Model(arch="masked", heads=4, **SMALL),
    "lookup-free": Model(arch="lookup", filter="free", heads=2, short_conv=1, **SMALL),
    "lookup-recurrent": Model(arch="lookup", filter="recurrent", keys=5, **SMALL),
}


def _paper(arch):
    return Model.paper(arch=arch, **SMALL, **({"window": 7} if arch == "window" else {}))


CASES = (
    {arch: Model(arch=arch, **SMALL, **OTHER.get(arch, {})) for arch in ARCHITECTURES}
    | {f"{arch}-paper": _paper(arch) for arch in PUBLISHED_ARCHITECTURES}
    | VARIANTS
)
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


@pytest.fixture(scope="module", params=CASES)
def model(request):
    torch.manual_seed(0)
    return build(CASES[request.param]).eval()


@pytest.fixture
def tokens():
    return torch.randint(37, (3, 24))


@torch.no_grad()
def test_causal(model, tokens):
    assert_causal(model, tokens, vocabulary=37, tolerance=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_one_result_however_it_is_fed(model, tokens, way):
    """Single = prefix = right-padded = left-padded = packed = in chunks = stepped = ragged."""
    torch.testing.assert_close(*fed_alike(model, tokens, way), **CLOSE)


@torch.no_grad()
def test_one_result_in_any_pieces(model, tokens):
    alone = model(tokens[:1])
    for pieces in ([24], [1] * 24, [7, 1, 9, 1, 6], [23, 1]):
        for prefill in {None, 0, 1, len(pieces) // 2}:
            logits = stepped(model, tokens[:1], pieces, prefill)
            torch.testing.assert_close(logits, alone, **CLOSE)


@torch.no_grad()
def test_the_last_position_alone(model, tokens):
    """The other positions are left out of the last block, and the state is as if they were not."""
    whole = model(tokens)
    for pieces in ([24], [9, 14, 1], [10, *[1] * 14]):
        state, end = None, 0
        for number, part in enumerate(tokens.split(pieces, dim=1)):
            if number == 2:
                state.begin_decoding()
            logits, state = model.step(part, state, last=True)
            end += part.shape[1]
            torch.testing.assert_close(logits, whole[:, end - 1 : end], **CLOSE)


@torch.no_grad()
def test_beyond_the_context_whole_equals_stepped(model):
    """Twice the context: filters are sliding windows, whatever the way."""
    tokens = torch.randint(37, (2, 55))
    for prefill in (None, 1, 3):
        logits = stepped(model, tokens, [20, 1, 11, 1, 22], prefill)
        torch.testing.assert_close(logits, model(tokens), **CLOSE)


def test_decoding_begins_once():
    state = build(Model(**SMALL)).start()
    state.begin_decoding(5)
    with pytest.raises(ValueError, match="begun already"):
        state.begin_decoding(5)


def test_gradients_reach_what_is_trained_and_nothing_else(model, tokens):
    before = {name: value.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    model(tokens).square().sum().backward()
    for name, value in model.named_parameters():
        if value.requires_grad:
            assert value.grad is not None, name
            assert value.grad.isfinite().all(), name
            assert value.grad.abs().max() > 0, name
        else:
            assert value.grad is None, name
    trained = copy.deepcopy(model)
    for ours, theirs in zip(trained.parameters(), model.parameters(), strict=True):
        ours.grad = theirs.grad
    torch.optim.SGD(trained.parameters(), lr=0.1).step()
    for name, value in trained.named_parameters():
        assert torch.equal(value, before[name]) == (not value.requires_grad), name
    model.zero_grad()


@torch.no_grad()
def test_saved_and_loaded_bit_for_bit(model, tokens, tmp_path):
    again = load(save(model, tmp_path))
    assert again.config == model.config
    assert torch.equal(again(tokens), model(tokens))
    names = {entry.name for entry in tmp_path.iterdir()}
    code = {"llama": set(), "window": set(), "mamba2": {"modeling_toeplix_mamba2.py"}}
    ours = code.get(model.config.arch, {"modeling_toeplix.py"})
    assert names == {"model.safetensors", "config.json", "README.md"} | ours


@pytest.mark.parametrize("arch", ["toeplitz", "masked", "hyena", "linear"])
def test_ours_starts_at_the_loss_of_a_guess(arch):
    torch.manual_seed(0)
    model = build(Model(arch=arch, vocab=1000, context=64, dim=64, depth=8))
    tokens = torch.randint(1000, (4, 64))
    loss = cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert abs(loss.item() - math.log(1000)) < 0.1


def test_the_papers_toeplitz_starts_far_above_it():
    """Kaiming noise everywhere and no final norm: the published initial losses are 33 to 50."""
    torch.manual_seed(0)
    model = build(Model.paper(heads=0, dim=128, depth=16, context=128, vocab=2000))
    tokens = torch.randint(2000, (2, 128))
    loss = cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() > 3 * math.log(2000)


PUBLISHED = {  # millions of parameters at 16 layers, context 512, vocabulary 8000
    ("toeplitz", 0): {128: 4.18, 256: 12.54, 512: 41.84, 1024: 150.8},
    ("toeplitz", 4): {128: 4.76, 256: 14.69, 512: 50.29, 1024: 184.4},
    ("hyena", None): {128: 5.54, 256: 17.21, 512: 59.42, 1024: 219.4},
    ("llama", 4): {128: 6.25, 256: 20.88, 512: 75.32, 1024: 284.9},
    ("mamba2", None): {128: 5.85, 256: 19.03, 512: 67.42, 1024: 252.3},
    ("masked", 0): {128: 8.37, 256: 16.72, 512: 46.02, 1024: 155.0},
}


@pytest.mark.parametrize(("arch", "heads"), PUBLISHED)
def test_parameters_as_published(arch, heads):
    for dim, millions in PUBLISHED[arch, heads].items():
        with torch.device("meta"):
            model = build(Model.paper(arch=arch, heads=heads, dim=dim))
        counted = sum(p.numel() for p in model.parameters()) / 1e6
        assert abs(counted - millions) <= (0.005 if millions < 100 else 0.06), f"{dim}: {counted}"


def test_the_window_is_true():
    """One layer sees exactly `window` positions, itself included."""
    config = Model(arch="window", **(SMALL | {"depth": 1}), window=5)
    model = build(config).eval()
    tokens = torch.randint(37, (1, 20))
    for back in range(8):
        changed = tokens.clone()
        changed[0, 15 - back] = (changed[0, 15 - back] + 1) % 37
        with torch.no_grad():
            moved = (model(changed) - model(tokens))[0, 15].abs().max() > 1e-7
        assert bool(moved) == (back < 5), back


@pytest.mark.parametrize("arch", ["toeplitz", "hyena", "masked"])
def test_weights_of_later_positions_are_not_read(arch):
    """So a larger context changes nothing before its end."""
    torch.manual_seed(0)
    model = build(small(arch, filter="free", **SMALL)).eval()
    tokens = torch.randint(37, (1, 10))
    touched = 0
    with torch.no_grad():
        expected = model(tokens)
        for name, value in model.named_parameters():
            if name.endswith("filter.waves"):
                value[10:] = float("nan")
            elif name.endswith(("kernel", "filters.0.bias", "token_mixer.bias")):
                value[..., 10:] = float("nan")
            elif name.endswith("token_mixer.weight"):
                value[:, 10:] = float("nan")
                value[:, :, 10:] = float("nan")
            else:
                continue
            touched += 1
        assert touched >= SMALL["depth"]
        assert torch.equal(model(tokens), expected)


@pytest.mark.parametrize("heads", [0, 4])
def test_a_longer_context_steps_through_the_near_linear_decoder(heads):
    torch.manual_seed(0)
    model = build(Model(**(SMALL | {"context": 200}), **FREE, heads=heads)).eval()
    tokens = torch.randint(37, (2, 330))
    logits = stepped(model, tokens, [100, *[1] * 230], prefill=1)
    with torch.no_grad():
        torch.testing.assert_close(logits, model(tokens), **CLOSE)


def test_pads_may_hold_anything(model, tokens):
    mask = torch.ones_like(tokens)
    mask[0, 15:], mask[1, :9] = 0, 0
    strange = tokens.masked_fill(mask == 0, -100)
    results = []
    for given in (tokens, strange):
        model.zero_grad()
        logits = model(given, mask=mask)
        logits[mask.bool()].square().sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        results.append([logits.detach(), *gradients])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    model.zero_grad()


@pytest.mark.parametrize("case", [name for name, config in CASES.items() if config.arch in OURS])
@torch.no_grad()
def test_half_precision_stays_near(case, tokens):
    """Ours under autocast and in bfloat16: within a few roundings of the largest logit."""
    torch.manual_seed(0)
    model = build(CASES[case]).eval()
    exact = model(tokens)
    bound = 0.06 * exact.abs().max().item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (model(tokens) - exact).abs().max() < bound
    assert (model.bfloat16()(tokens) - exact).abs().max() < bound


def test_no_positions_are_refused(model):
    with pytest.raises(ValueError, match="t at least 1"):
        model(torch.zeros(1, 0, dtype=torch.long))


def test_multi_kernel_by_the_sum():
    """`y_e = sum_i T_i x_{e + i - (k-1)} + b`, channels below 0 being zero."""
    from toeplix.mixers.filter import Filter
    from toeplix.ops import toeplitz_matrix

    layer = Filter(heads=1, context=6, kernels=3)
    layer.reset("kaiming")
    x = torch.randn(2, 6, 1, 5)
    expected = torch.zeros_like(x)
    for i in range(3):
        matrix = toeplitz_matrix(layer.kernel[:, i].detach())[0]
        for channel in range(5):
            if (source := channel + i - 2) >= 0:
                expected[:, :, 0, channel] += x[:, :, 0, source] @ matrix.T
    torch.testing.assert_close(layer(x).detach(), expected)


def test_variants_are_values():
    base = Model(**SMALL)
    assert replace(base, heads=2).digest != base.digest
    assert replace(base).digest == base.digest
