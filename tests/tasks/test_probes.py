"""Probes: what unrolls, what is trained, what comes back from disk."""

import pytest
import torch

from tests.models import small
from toeplix import build
from toeplix.tasks import probes
from toeplix.tasks.probes import Autoencoder, autoencoder, unroll

SIZES = {"dim": 16, "depth": 1, "context": 8, "vocab": 20}
ARCHITECTURES = ("toeplitz", "masked", "hyena", "linear", "llama", "mamba2")


def config(arch, **other):
    return small(arch, **(SIZES | {"state_size": 8} | other))


def test_unroll_by_hand():
    e = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert unroll(e, 6)[0].tolist() == [[1, 2], [2, 3], [3, 4], [4, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_only_one_hidden_state_passes(arch):
    """Logits of all positions move with it, and with nothing else of the encoder."""
    model = autoencoder(config(arch)).eval()
    tokens = torch.randint(20, (3, 8))
    state = model.encoder.encode(tokens)[:, -1]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), model.head(model.decode(state, 8)))
        assert model(tokens).shape == (3, 8, 20)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_gradients_reach_both_sides(arch):
    model = autoencoder(config(arch))
    tokens = torch.randint(20, (3, 8))
    torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    missing = [name for name, weight in model.named_parameters() if weight.grad is None]
    assert not missing
    assert not any("embed" in name for name, _ in model.decoder.named_parameters())


@pytest.mark.parametrize("arch", ["toeplitz", "llama"])
@pytest.mark.parametrize("embedding", ["own", "new"])
def test_a_frozen_encoder_stays_as_it_is(arch, embedding):
    encoder = build(config(arch))
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    model = Autoencoder(encoder, build(config("masked")), frozen=True, embedding=embedding)
    optimizer = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], lr=0.1)
    tokens = torch.randint(20, (3, 8))
    model.train()
    model(tokens).square().mean().backward()
    optimizer.step()
    moved = {n for n, v in encoder.state_dict().items() if not torch.equal(v, before[n])}
    assert all("embed" in name for name in moved)
    assert bool(moved) == (embedding == "new")


def test_controls_tell_nothing():
    """No state: the same for all texts. Shuffled: what another text has."""
    tokens = torch.randint(20, (3, 8))
    torch.manual_seed(0)
    told = autoencoder(config("toeplitz")).eval()
    torch.manual_seed(0)
    none = autoencoder(config("toeplitz"), signal="none").eval()
    torch.manual_seed(0)
    shuffled = autoencoder(config("toeplitz"), signal="shuffled").eval()
    assert torch.equal(none(tokens)[0], none(tokens)[1])
    assert not torch.equal(told(tokens)[0], told(tokens)[1])
    torch.testing.assert_close(shuffled(tokens)[1], told(tokens)[0])


def test_the_chosen_token_sees_nothing_after_it():
    model = autoencoder(config("toeplitz"), token=-2).eval()
    tokens = torch.randint(20, (1, 8))
    other = tokens.clone()
    other[0, -1] = (other[0, -1] + 1) % 20
    torch.testing.assert_close(model(tokens), model(other))


@pytest.mark.parametrize("arch", ["toeplitz", "hyena", "llama"])
def test_from_disk(arch, tmp_path):
    model = autoencoder(config(arch), config("masked", heads=4), norm=False, token=-2).eval()
    tokens = torch.randint(20, (2, 8))
    again = probes.load(probes.save(model, tmp_path))
    assert torch.equal(model(tokens), again(tokens))
    assert again.settings == model.settings


def test_filters_keep_their_names(tmp_path):
    """Those by which spectra are read from a checkpoint, of both sides."""
    from safetensors import safe_open

    probes.save(autoencoder(config("toeplitz", filter="free", depth=2)), tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as opened:
        kernels = sorted(name for name in opened.keys() if name.endswith(".kernel"))  # noqa: SIM118
        shapes = {tuple(opened.get_tensor(name).shape) for name in kernels}
    assert kernels == [
        f"{side}.blocks.{number}.token_mixer.filters.0.kernel"
        for side in ("decoder", "encoder")
        for number in (0, 1)
    ]
    assert shapes == {(1, 1, 8)}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"signal": "loud"}, "signal='loud' is none of state, none, shuffled"),
        ({"embedding": "old"}, "embedding='old'"),
        ({"token": 0}, "token=0 is counted from the end"),
    ],
)
def test_refusals(settings, words):
    with pytest.raises(ValueError, match=words):
        autoencoder(config("toeplitz"), **settings)


def test_what_is_no_autoencoder(tmp_path):
    from toeplix import save

    with pytest.raises(FileNotFoundError, match="is no autoencoder"):
        probes.load(tmp_path)
    save(build(config("toeplitz")), tmp_path)
    with pytest.raises(ValueError, match="holds no autoencoder"):
        probes.load(tmp_path)
