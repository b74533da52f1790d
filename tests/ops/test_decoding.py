"""Decoding equals the whole product, at lengths that cross every leaf and tile."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.oracle import random_pair, spelled_out
from toeplix import decoder, toeplitz, toeplitz_windowed
from toeplix.ops import DECODERS, dispatch
from toeplix.ops.decoding import online
from toeplix.ops.decoding.history import History
from toeplix.ops.decoding.online import LEAF, MATMUL, Online


def stepped(state, x):
    return torch.stack([state.step(part) for part in x.unbind(1)], 1)


@pytest.mark.parametrize("kind", DECODERS)
@given(
    past=st.integers(0, 150),
    steps=st.integers(1, 150),
    taps=st.sampled_from([1, 2, LEAF - 1, LEAF, LEAF + 1, 100, 2 * LEAF, 400]),
    bounded=st.booleans(),
)
def test_stepping_equals_the_definition(kind, past, steps, taps, bounded):
    x, kernel = random_pair(2, past + steps, 2, 3, taps)
    state = decoder(kernel, x[:, :past], horizon=steps if bounded else None, kind=kind)
    torch.testing.assert_close(stepped(state, x[:, past:]), spelled_out(x, kernel)[:, past:])


@pytest.mark.parametrize("kind", DECODERS)
def test_across_the_largest_tiles_and_round_again(kind):
    """Matmul tiles, FFT tiles, the turn of the buffer, and the sliding window after it."""
    taps = 4 * MATMUL - 3
    time = 3 * 4 * MATMUL + 5
    x, kernel = random_pair(1, time, 2, 2, taps)
    state = decoder(kernel, x[:, :0], kind=kind)
    torch.testing.assert_close(
        stepped(state, x), toeplitz_windowed(x, kernel, exact=True), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes(kind, dtype):
    x, kernel = random_pair(1, 300, 1, 4, dtype=dtype)
    y = stepped(decoder(kernel, x[:, :100], kind=kind), x[:, 100:])
    expected = spelled_out(x.double(), kernel.double())[:, 100:]
    assert y.dtype == dtype
    bound = 8 * torch.finfo(dtype).eps * expected.abs().max().item()
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", DECODERS)
def test_layers_share_one_state(kind):
    """Layer 2 reads what layer 1 gave at the same position; tiles serve both together."""
    x, kernel = random_pair(1, 200, 1, 4)
    two = torch.stack([kernel[0], kernel[0].flip(0)])
    state = decoder(two, x.new_zeros(1, 0, 2, 4), kind=kind)
    outputs = []
    for part in x.unbind(1):
        middle = state.emit(part, first=0).tanh()
        outputs.append(state.emit(middle, first=1))
        state.advance()
    expected = toeplitz(toeplitz(x, two[:1], exact=True).tanh(), two[1:], exact=True)
    torch.testing.assert_close(torch.stack(outputs, 1), expected)


def test_memory_depends_on_the_horizon_not_on_the_prompt():
    kernel = torch.randn(1, 4096)
    sizes = {Online(kernel, torch.randn(1, p, 1, 8), horizon=64).bytes for p in (0, 100, 4000)}
    assert sizes == {(64 + 2 * LEAF) * 8 * 4}
    endless = Online(kernel, torch.randn(1, 10, 1, 8))
    assert endless.bytes == (4095 + 2 * LEAF + 4096) * 8 * 4


@pytest.mark.parametrize(("batch", "channels"), [(1, 35), (2, 35), (1, 1), (1, 46)])
def test_pieces_of_any_width(batch, channels, monkeypatch):
    """Columns that do not divide evenly: even and odd numbers in one tile."""
    monkeypatch.setattr(online, "PIECE_POINTS", 2**10)
    x, kernel = random_pair(batch, 1500, 2, channels, 1200)
    y = stepped(Online(kernel, x[:, :100]), x[:, 100:])
    expected = toeplitz_windowed(x, kernel, exact=True)[:, 100:]
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_large_tiles_are_spread_over_the_steps(monkeypatch):
    """No step does more than a few pieces, however large the tile that has just become possible."""
    monkeypatch.setattr(online, "PIECE_POINTS", 2**12)
    monkeypatch.setattr(online, "PIECE_FLOPS", 2e5)
    pieces = []
    compute = Online._compute

    def counting(self, tile, part):
        pieces[-1] += 1
        compute(self, tile, part)

    monkeypatch.setattr(Online, "_compute", counting)
    state = Online(torch.randn(2, 2048), torch.zeros(1, 0, 2, 256))
    for _ in range(4096):
        pieces.append(0)
        state.step(torch.randn(1, 2, 256))
    assert sum(pieces) > len(pieces), "32 for each large tile"
    assert max(pieces) <= 6


@pytest.mark.parametrize("kind", DECODERS)
def test_rows_are_kept_in_any_order(kind):
    """Beams: row 2 twice and row 0, in the middle of a tile."""
    x, kernel = random_pair(3, 400, 2, 2)
    state = decoder(kernel, x[:, :10], kind=kind)
    stepped(state, x[:, 10:301])
    rows = torch.tensor([2, 0, 2])
    state.select(rows)
    torch.testing.assert_close(stepped(state, x[rows, 301:]), spelled_out(x, kernel)[rows, 301:])
    state.emit(x[:, 0])
    with pytest.raises(ValueError, match="position 390 is open"):
        state.select(rows)


def test_a_step_allocates_no_new_history():
    state = History(torch.randn(1, 100), torch.randn(1, 10, 1, 4), horizon=20)
    buffer = state._inputs.data_ptr()
    for _ in range(20):
        state.step(torch.randn(1, 1, 4))
    assert state._inputs.data_ptr() == buffer


def test_the_chooser_follows_the_reach():
    longest = dispatch.DECODE_HISTORY["cpu"]
    kernel = torch.randn(1, 4 * longest)
    nothing = torch.zeros(1, 0, 1, 2)
    assert isinstance(decoder(kernel, nothing, horizon=longest), History)
    assert isinstance(decoder(kernel, nothing, horizon=longest + 1), Online)
    assert isinstance(decoder(kernel[:, :longest], nothing), History)
    assert isinstance(decoder(kernel, nothing), Online)


@pytest.mark.parametrize("kind", DECODERS)
def test_the_horizon_is_kept(kind):
    state = decoder(torch.randn(1, 8), torch.zeros(1, 0, 1, 2), horizon=3, kind=kind)
    stepped(state, torch.randn(1, 3, 1, 2))
    with pytest.raises(ValueError, match="past the horizon of 3"):
        state.step(torch.randn(1, 1, 2))


@pytest.mark.parametrize("kind", DECODERS)
def test_a_state_outlives_inference_mode_and_keeps_no_graph(kind):
    x, kernel = random_pair(1, 120, 1, 2, 64)
    with torch.inference_mode():
        state = decoder(kernel, x[:, :20], kind=kind)
        first = stepped(state, x[:, 20:70])
    both = torch.cat([first.clone(), stepped(state, x[:, 70:])], 1)
    torch.testing.assert_close(both, spelled_out(x, kernel)[:, 20:])
    state = decoder(kernel, x.clone().requires_grad_(), kind=kind)
    assert not any(value.requires_grad for value in vars(state).values() if torch.is_tensor(value))


@pytest.mark.parametrize("kind", DECODERS)
def test_training_on_does_not_reach_a_running_decoder(kind):
    x, kernel = random_pair(1, 300, 1, 2, dtype=torch.float32)
    expected = spelled_out(x, kernel)
    changing = kernel.clone()
    state = decoder(changing, x[:, :10], kind=kind)
    changing.mul_(2)
    torch.testing.assert_close(stepped(state, x[:, 10:]), expected[:, 10:], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", DECODERS)
def test_every_head_once_a_position(kind):
    state = decoder(torch.randn(2, 8), torch.zeros(1, 0, 2, 3), kind=kind)
    state.emit(torch.randn(1, 1, 3), first=0)
    with pytest.raises(ValueError, match=r"heads \[0\] have had their input"):
        state.emit(torch.randn(1, 2, 3))
    with pytest.raises(ValueError, match=r"heads \[1\] have had no input at position 0"):
        state.advance()


def test_a_history_moves_rarely():
    state = History(torch.randn(1, 100), torch.zeros(1, 0, 1, 1))
    moves = 0
    for _ in range(1000):
        before = state._filled
        state.step(torch.zeros(1, 1, 1))
        moves += state._filled < before
    assert moves <= 10, "once every n steps"
