"""Decoding with recurrent filters equals the whole product, with a state that never grows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.test_recurrent import definition, random_filters, random_x
from toeplix.ops import RecurrentDecoder, RecurrentState, toeplitz_recurrent

pytestmark = pytest.mark.slow


def stepped(state, x):
    return torch.stack([state.step(part) for part in x.unbind(1)], 1)


@given(
    past=st.integers(0, 150),
    steps=st.integers(1, 60),
    short=st.sampled_from([0, 1, 2, 5, 16]),
    rank=st.sampled_from([0, 1, 8]),
    prefilled=st.booleans(),
)
def test_stepping_equals_the_definition(past, steps, short, rank, prefilled):
    x, filters = random_x(2, past + steps, 2, 3), random_filters(2, short, rank)
    begin = x[:, :past]
    if prefilled and past:
        begin = toeplitz_recurrent(begin, *filters)[1]
    state = RecurrentDecoder(*filters, begin)
    torch.testing.assert_close(stepped(state, x[:, past:]), definition(x, *filters)[:, past:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes(dtype):
    x, filters = random_x(1, 300, 1, 4, dtype), random_filters(1, dtype=torch.float32)
    y = stepped(RecurrentDecoder(*filters, x[:, :100]), x[:, 100:])
    expected = definition(x.double(), *(part.double() for part in filters))[:, 100:]
    assert y.dtype == dtype
    bound = 8 * torch.finfo(dtype).eps * expected.abs().max().item()
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=bound)
    _, state = toeplitz_recurrent(x[:, :100], *filters)
    assert torch.equal(stepped(RecurrentDecoder(*filters, state), x[:, 100:]), y)


def test_autocast_changes_no_bit():
    x, filters = random_x(2, 60, 2, 4, torch.float32), random_filters(2, dtype=torch.float32)
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            state = RecurrentDecoder(*filters, x[:1, :30])
            state.append(x[1:, :30])
            results.append(stepped(state, x[:, 30:]))
    assert torch.equal(*results)


def test_layers_share_one_state():
    """Layer 2 reads what layer 1 gave at the same position."""
    x, filters = random_x(1, 100, 1, 4), random_filters(2)
    state = RecurrentDecoder(*filters, x.new_zeros(1, 0, 2, 4))
    outputs = []
    for part in x.unbind(1):
        middle = state.emit(part, first=0).tanh()
        outputs.append(state.emit(middle, first=1))
        state.advance()
    one, two = ([part[i : i + 1] for part in filters] for i in (0, 1))
    expected = definition(definition(x, *one).tanh(), *two)
    torch.testing.assert_close(torch.stack(outputs, 1), expected)


def test_memory_and_time_do_not_depend_on_the_length():
    """The same tensor is used for ever, of short + r numbers a channel."""
    filters = random_filters(3, 16, 8, torch.float32)
    states = [RecurrentDecoder(*filters, torch.randn(2, past, 3, 5)) for past in (0, 10, 3000)]
    assert {state.bytes for state in states} == {2 * 3 * 5 * (16 + 8) * 4}
    address = states[0]._state.data_ptr()
    stepped(states[0], torch.randn(2, 100, 3, 5))
    assert states[0]._state.data_ptr() == address
    assert states[0].bytes == states[1].bytes


def test_rows_are_kept_in_any_order():
    x, filters = random_x(3, 90, 2, 2), random_filters(2)
    state = RecurrentDecoder(*filters, x[:, :10])
    stepped(state, x[:, 10:53])
    rows = torch.tensor([2, 0, 2, 1])
    state.select(rows)
    torch.testing.assert_close(stepped(state, x[rows, 53:]), definition(x, *filters)[rows, 53:])
    state.emit(x[rows, 0])
    with pytest.raises(ValueError, match="position 80 is open"):
        state.select(rows)


@pytest.mark.parametrize(("short", "rank"), [(16, 8), (1, 2), (0, 3), (5, 0)])
def test_every_row_is_as_if_alone(short, rank):
    """Rows join with a past or a state of their own, step, and leave; the others notice nothing."""
    filters = random_filters(2, short, rank)
    chosen = torch.Generator().manual_seed(short)
    numbers = torch.randint(1, 40, (10, 3), generator=chosen).tolist()
    rows = [
        {"x": random_x(1, past + stay, 2, 3, seed=index), "past": past, "begin": begin, "got": []}
        for index, (past, stay, begin) in enumerate(numbers)
    ]
    state = RecurrentDecoder(*filters, torch.zeros(1, 0, 2, 3, dtype=torch.float64))
    state.select(torch.tensor([], dtype=torch.long))
    here: list[dict] = []
    for time in range(90):
        for number, row in enumerate(row for row in rows if row["begin"] == time):
            past = row["x"][:, : row["past"]]
            state.append(toeplitz_recurrent(past, *filters)[1] if number % 2 else past)
            here.append(row)
        if here:
            now = [row["x"][:, row["past"] + len(row["got"])] for row in here]
            for row, y in zip(here, state.step(torch.cat(now)), strict=True):
                row["got"].append(y)
        staying = [
            i for i, row in enumerate(here) if row["past"] + len(row["got"]) < row["x"].shape[1]
        ]
        if len(staying) < len(here):
            state.select(torch.tensor(staying, dtype=torch.long))
            here = [here[i] for i in staying]
    assert not here
    for row in rows:
        expected = definition(row["x"], *filters)[0, row["past"] :]
        torch.testing.assert_close(torch.stack(row["got"]), expected)


def test_memory_follows_the_rows():
    x, filters = random_x(16, 20, 1, 8), random_filters(1)
    state = RecurrentDecoder(*filters, x[:, :5])
    many = state.bytes
    state.select(torch.tensor([13]))
    assert state.bytes <= many // 4
    torch.testing.assert_close(stepped(state, x[13:14, 5:]), definition(x[13:14], *filters)[:, 5:])
    state.append(x[:15, :9])
    assert state.bytes == many


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e20])
def test_no_row_touches_another(bad):
    x, filters = random_x(3, 40, 2, 2, torch.float32), random_filters(2, dtype=torch.float32)
    spoiled = x.clone()
    spoiled[1, 3:] = bad
    before, after = (
        stepped(RecurrentDecoder(*filters, each[:, :10]), each[:, 10:]) for each in (x, spoiled)
    )
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    state = RecurrentDecoder(*filters, spoiled[:, :10])
    state.select(torch.tensor([1]))
    state.append(x[:1, :10])
    state.select(torch.tensor([1]))
    torch.testing.assert_close(stepped(state, x[:1, 10:]), before[:1])


def test_a_state_outlives_inference_mode_and_keeps_no_graph():
    x, filters = random_x(1, 60, 1, 2), random_filters(1)
    with torch.inference_mode():
        state = RecurrentDecoder(*filters, x[:, :20])
        first = stepped(state, x[:, 20:40])
    both = torch.cat([first.clone(), stepped(state, x[:, 40:])], 1)
    torch.testing.assert_close(both, definition(x, *filters)[:, 20:])
    state = RecurrentDecoder(*(part.requires_grad_() for part in filters), x.clone())
    assert not any(value.requires_grad for value in vars(state).values() if torch.is_tensor(value))


def test_training_on_does_not_reach_a_running_decoder():
    x, filters = random_x(2, 60, 1, 2, torch.float32), random_filters(1, dtype=torch.float32)
    expected = definition(x, *filters)
    state = RecurrentDecoder(*filters, x[:1, :10])
    for part in filters:
        part.mul_(0.5)
    state.append(x[1:, :10])
    torch.testing.assert_close(stepped(state, x[:, 10:]), expected[:, 10:], rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("unchecked")
def test_bad_rows():
    filters = random_filters(2, 4, 3)
    state = RecurrentDecoder(*filters, torch.zeros(1, 3, 2, 4), horizon=1)
    with pytest.raises(ValueError, match="3 heads and kernel 2"):
        state.append(torch.zeros(1, 3, 3, 4))
    with pytest.raises(
        ValueError, match=r"state.recent must be .* \(1, 3, 2, 4\), got \(1, 3, 2, 5\)"
    ):
        state.append(torch.zeros(1, 3, 2, 5))
    with pytest.raises(ValueError, match=r"state.sums must be"):
        state.append(RecurrentState(torch.zeros(1, 3, 2, 4), torch.zeros(1, 2, 2, 4)))
    with pytest.raises(IndexError, match="row 1 does not exist"):
        state.select(torch.tensor([1]))
    with pytest.raises(IndexError, match="row -1 does not exist"):
        state.select(torch.tensor([-1]))
    with pytest.raises(TypeError, match=r"numbers of the rows, got torch.bool .* of a mask"):
        state.select(torch.tensor([True]))
    with pytest.raises(ValueError, match=r"decays must lie in \(0, 1\], got 2.0"):
        RecurrentDecoder(*filters[:2], torch.full((3,), 2.0), torch.zeros(1, 0, 2, 4))
    state.emit(torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="position 0 is open"):
        state.append(torch.zeros(1, 3, 2, 4))
    state.advance()
    with pytest.raises(ValueError, match="past the horizon of 1"):
        state.step(torch.zeros(1, 2, 4))
