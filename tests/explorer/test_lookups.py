"""Lookup weights: against the definition, tap by tap and score by score, and against the block itself."""

import json

import pytest
import torch

from tests.explorer.conftest import serving
from tests.explorer.test_app import call
from toeplix import Model, build, load, save
from toeplix.data import Tokenizer
from toeplix.explorer.app import explorer
from toeplix.explorer.contributions import MAX_POSITIONS
from toeplix.explorer.lookups import lookup_heads, lookup_weights
from toeplix.mixers.lookup import MIN_MEAN_SQUARE, MIN_SQUARE

SHAPES = {
    "free": {"arch": "lookup", "filter": "free", "heads": 2, "keys": 3},
    "recurrent": {"arch": "lookup", "filter": "recurrent", "decays": 3, "heads": 2, "keys": 3},
    "no short convolution": {"arch": "lookup", "heads": 2, "short_conv": 1},
    "hybrid": {"blocks": ("toeplitz", "lookup"), "heads": 2, "decays": 3},
    "channel first": {"blocks": ("toeplitz", "lookup"), "heads": 2, "block_order": "mlp_first"},
}


def fresh(**changes):
    """In double precision, with weights that are not those of a new model."""
    torch.manual_seed(0)
    model = build(Model(vocab=20, context=16, dim=8, depth=2, **changes)).double().eval()
    for value in model.parameters():
        value.data += 0.3 * torch.randn_like(value)
    return model


def last_block(model, tokens):
    """The second block, what its mixer reads, and what the mixer returns: caught while the model runs."""
    caught = {}
    mixer = model.blocks[1].token_mixer

    def catch(module, inputs, output):
        caught["read"], caught["returned"] = inputs[0].clone(), output.clone()

    handle = mixer.register_forward_hook(catch)
    with torch.no_grad():
        model(tokens[None])
    handle.remove()
    return mixer, caught["read"][0], caught["returned"][0]


def heads_by_hand(mixer, x):
    """Queries, keys (h, t, e) and values (h, t, c), position by position."""
    wide = x @ mixer.project_in.weight.T + mixer.project_in.bias
    if mixer.taps > 1:
        taps = mixer.short.weight[:, 0]
        mixed = torch.zeros_like(wide)
        for t in range(len(x)):
            for number in range(mixer.taps):
                source = t - (mixer.taps - 1) + number
                if source >= 0:
                    mixed[t] += taps[:, number] * wide[source]
        wide = mixed
    both = mixer.heads * mixer.keys
    q, k, v = wide[:, :both], wide[:, both : 2 * both], wide[:, 2 * both :]
    q, k, v = (part.reshape(len(x), mixer.heads, -1).transpose(0, 1) for part in (q, k, v))
    q, k = (part / (part.square().sum(-1, keepdim=True) + MIN_SQUARE).sqrt() for part in (q, k))
    return q, k, v


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_weights_are_tap_times_score(shape):
    model = fresh(**SHAPES[shape])
    tokens = torch.randint(20, (11,))
    mixer, x, _ = last_block(model, tokens)
    q, k, _ = heads_by_hand(mixer, x)
    for head in range(2):
        taps = mixer.filter_taps(11)[head]
        expected = torch.zeros(11, 11, dtype=torch.float64)
        for t in range(11):
            for s in range(t + 1):
                expected[t, s] = taps[t - s] * float(q[head, t] @ k[head, s])
        torch.testing.assert_close(lookup_weights(model, tokens, 1, head), expected)


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_the_block_returns_what_the_weights_say(shape):
    model = fresh(**SHAPES[shape])
    tokens = torch.randint(20, (13,))
    mixer, x, returned = last_block(model, tokens)
    v = heads_by_hand(mixer, x)[2]
    y = torch.stack([lookup_weights(model, tokens, 1, head) @ v[head] for head in range(2)], 1)
    y = y * (y.square().mean(-1, keepdim=True) + MIN_MEAN_SQUARE).rsqrt()
    torch.testing.assert_close(mixer.project_out(y.flatten(1)), returned)


def test_what_is_rejected():
    model = fresh(**SHAPES["hybrid"])
    assert lookup_heads(model) == {1: 2}
    few = torch.zeros(3).long()
    for block, head in ((0, 0), (1, 2), (2, 0), (-1, 0), (1, -1)):
        with pytest.raises(LookupError, match=r"blocks 1 \(2 heads\)"):
            lookup_weights(model, few, block, head)
    with pytest.raises(ValueError, match=f"at most {MAX_POSITIONS}"):
        lookup_weights(model, torch.zeros(MAX_POSITIONS + 1).long(), 1, 0)
    with pytest.raises(ValueError, match="the mixers toeplitz: only lookup blocks"):
        lookup_weights(fresh(arch="toeplitz"), few, 0, 0)
    llama = build(Model(arch="llama", vocab=20, context=8, dim=8, depth=1, heads=2))
    with pytest.raises(ValueError, match="only lookup blocks look up"):
        lookup_weights(llama, few, 0, 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lookups")
    tokenizer = Tokenizer.train(["one two three four five"] * 5, 280)
    tokenizer.save(folder / "hybrid")
    torch.manual_seed(1)
    config = Model(**SHAPES["hybrid"], vocab=tokenizer.vocab, context=32, dim=8, depth=4)
    save(build(config), folder / "hybrid")
    with serving(explorer(folder, results=folder / "no", figures=folder / "no")) as address:
        yield folder / "hybrid", address


def test_the_route_gives_the_librarys_weights(place):
    folder, address = place
    text = "one two three"
    status, _, found = call(address, "/api/lookup", {"model": "hybrid", "text": text, "head": 1})
    assert (status, found["blocks"], found["block"]) == (200, {"1": 2, "3": 2}, 1)
    tokenizer = Tokenizer.load(folder)
    tokens = torch.tensor([tokenizer.start, *tokenizer.encode(text)])
    expected = lookup_weights(load(folder).eval(), tokens, 1, 1)
    assert "".join(found["tokens"][1:]) == text
    for t, row in enumerate(found["weights"]):
        assert row == pytest.approx(expected[t, : t + 1].tolist(), rel=1e-3, abs=1e-6)
    status, _, found = call(address, "/api/lookup", {"model": "hybrid", "text": text, "block": 2})
    assert (status, "blocks 1 (2 heads), 3 (2 heads)" in found["error"]) == (404, True)


def test_long_and_odd_texts(place):
    address = place[1]
    status, _, found = call(address, "/api/lookup", {"model": "hybrid", "text": "one " * 900})
    assert (status, len(found["weights"])) == (200, 32)
    assert found["left_out"] > 0
    assert json.dumps(found, allow_nan=False)
    for fields in ({"text": "\ud800"}, {"head": 10**400}, {"block": 10**400}, {"block": None}):
        body = {"model": "hybrid", "text": "x", **fields}
        assert call(address, "/api/lookup", body)[0] == 422, fields
    for text in ("", "\0", "\u202e"):
        assert call(address, "/api/lookup", {"model": "hybrid", "text": text})[0] == 200
