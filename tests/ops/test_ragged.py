"""Rows that come and go: each gives what it gives alone, by the definition spelled out."""

import pytest
import torch

from tests.ops.oracle import random_pair, spelled_out
from toeplix.ops.decoding import online
from toeplix.ops.decoding.online import LEAF, Online
from toeplix.ops.decoding.ragged import RaggedDecoder


def lives(taps, heads, channels, life, seed):
    """Rows with a past and a stay of their own, and when each joins."""
    chosen = torch.Generator().manual_seed(seed)

    def number(low, high):
        return int(torch.randint(low, high + 1, (), generator=chosen))

    kernel = random_pair(1, taps, heads, channels, taps)[1]
    rows = []
    for index in range(12):
        past, stay = number(0, 2 * taps), number(1, life)
        x = random_pair(1, past + stay, heads, channels, taps, seed=index + 1)[0]
        rows.append({"x": x, "past": past, "begin": number(0, 3 * life), "got": []})
    return kernel, rows


@pytest.mark.parametrize(
    ("taps", "heads", "channels", "life"),
    [(1, 1, 2, 5), (7, 2, 1, 40), (LEAF, 1, 3, 90), (130, 2, 2, 200), (600, 1, 2, 311)],
)
def test_every_row_is_as_if_alone(taps, heads, channels, life):
    kernel, rows = lives(taps, heads, channels, life, seed=taps)
    state = RaggedDecoder(kernel, rows[0]["x"][:, :0], life)
    state.select(torch.tensor([], dtype=torch.long))
    here: list[dict] = []
    for time in range(4 * life + 1):
        for row in (row for row in rows if row["begin"] == time):
            state.append(row["x"][:, : row["past"]])
            here.append(row)
        if here:
            now = [row["x"][:, row["past"] + len(row["got"])] for row in here]
            for row, y in zip(here, state.step(torch.cat(now)), strict=True):
                row["got"].append(y)
        staying = [
            i for i, row in enumerate(here) if row["past"] + len(row["got"]) < row["x"].shape[1]
        ]
        if len(staying) < len(here):
            if time % 2:  # the last one takes the place of one that leaves
                staying = sorted(staying, key=lambda i: (i >= len(staying), i))
            state.select(torch.tensor(staying, dtype=torch.long))
            here = [here[i] for i in staying]
    assert not here
    for row in rows:
        expected = spelled_out(row["x"], kernel)[0, row["past"] :]
        torch.testing.assert_close(torch.stack(row["got"]), expected)


@pytest.mark.parametrize("kind", [Online, RaggedDecoder])
def test_rows_may_move_in_the_middle_of_wide_tiles(kind, monkeypatch):
    """A tile of many columns is done in pieces, of which some are done when the rows change places."""
    monkeypatch.setattr(online, "PIECE_FLOPS", 1.0)  # many columns are not many
    x, kernel = random_pair(4, 300, 1, 20, 512)
    state = kind(kernel, x[:, :0], *([300] if kind is RaggedDecoder else []))
    for part in x[:, :210].unbind(1):
        state.step(part)
    assert any(tile.done for tile in state._tiles.values()), "or the test shows nothing"
    rows = torch.tensor([3, 0, 3, 1])
    state.select(rows)
    y = torch.stack([state.step(part) for part in x[rows, 210:].unbind(1)], 1)
    torch.testing.assert_close(y, spelled_out(x, kernel)[rows, 210:])


def test_memory_follows_the_rows():
    x, kernel = random_pair(16, 60, 1, 8, 64)
    state = RaggedDecoder(kernel, x[:, :5], max_new_tokens=100)
    many = state.bytes
    state.select(torch.tensor([13]))
    assert state.bytes <= many // 4
    y = torch.stack([state.step(part) for part in x[13:14, 5:].unbind(1)], 1)
    torch.testing.assert_close(y, spelled_out(x, kernel)[13:14, 5:])
    state.append(x[:15, :9])
    assert state.bytes == many
    short = RaggedDecoder(torch.randn(1, 4096), torch.randn(16, 5, 1, 8), max_new_tokens=100)
    assert short.bytes < 16 * 4096 * 8 * 4 / 8, "few new tokens need no long ring"


@pytest.mark.usefixtures("unchecked")
def test_bad_rows():
    state = RaggedDecoder(torch.randn(2, 8), torch.zeros(1, 3, 2, 4), max_new_tokens=10)
    with pytest.raises(ValueError, match="3 heads and kernel 2"):
        state.append(torch.zeros(1, 3, 3, 4))
    with pytest.raises(ValueError, match="5 channels, rows have 4"):
        state.append(torch.zeros(1, 3, 2, 5))
    state.emit(torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="position 0 is open"):
        state.append(torch.zeros(1, 3, 2, 4))
    brief = RaggedDecoder(torch.randn(2, 8), torch.zeros(1, 3, 2, 4), max_new_tokens=2)
    brief.step(torch.zeros(1, 2, 4))
    brief.step(torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="here for 2 positions"):
        brief.step(torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        RaggedDecoder(torch.randn(2, 8), torch.zeros(1, 3, 2, 4), max_new_tokens=0)
