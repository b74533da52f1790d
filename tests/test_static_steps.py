"""Decode steps of whole models that a CUDA graph can replay, and states that let go of the prompt.

tests/ops/test_static_steps.py states the same law for the decoders of single layers.
"""

import copy

import pytest
import torch

from tests.ops.test_static_steps import Recorded
from toeplix import Model, build

SIZES = {"vocab": 37, "context": 24, "dim": 16, "mlp_ratio": 1}
TAPS = 3  # rotations of the ring of last inputs of a recurrent filter
REPLAYED = {
    "default": Model(**SIZES, depth=4, free_taps=TAPS),
    "lookup": Model(**SIZES, depth=1, arch="lookup"),
    "attention": Model(**SIZES, depth=1, arch="attention", window=5),
    "linear": Model(**SIZES, depth=1, arch="linear"),
}
# whose states have fixed sizes once the context is full, though their steps are scheduled by the host
OTHERS = {
    "lookup-free": Model(**SIZES, depth=1, arch="lookup", filter="free"),
    "hyena": Model(**SIZES, depth=1, arch="hyena"),
}
ALL = REPLAYED | OTHERS


def built(config):
    torch.manual_seed(0)
    return build(config).eval()


def kept(value, name="state", found=None):
    """Return every tensor that a state holds, by its path."""
    found = {} if found is None else found
    if isinstance(value, torch.Tensor):
        found[name] = value
    elif isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            kept(each, f"{name}.{key}", found)
    elif hasattr(value, "__dict__"):
        kept(vars(value), name, found)
    return found


def places(state):
    return {
        name: (each.data_ptr(), each.shape, each.stride()) for name, each in kept(state).items()
    }


def memory(state):
    """Return the bytes of all memory that the tensors of a state keep alive."""
    storages = [each.untyped_storage() for each in kept(state).values()]
    return sum({each.data_ptr(): each.nbytes() for each in storages}.values())


def prefilled(model, time, ragged=False):
    _, state = model.step(torch.randint(37, (2, time)))
    if ragged:
        state.begin_ragged(2, 60)
    else:
        state.begin_decoding()
    return state


@pytest.mark.parametrize("ragged", [False, True], ids=["together", "ragged"])
@pytest.mark.parametrize("name", REPLAYED)
def test_a_step_is_replayed(name, ragged):
    """The same operators on the same memory, one round of the ring after the other."""
    model = built(REPLAYED[name])
    state = prefilled(model, 9, ragged)
    model.step(torch.randint(37, (2, 1)), state)  # prepares what all other steps read
    before, rounds = places(state), []
    assert before
    own = {each.untyped_storage().data_ptr() for each in kept(state).values()}
    for step in range(3 * TAPS):
        token = torch.randint(37, (2, 1))
        with Recorded(own) as seen:
            model.step(token, state)
        rounds += [[]] if step % TAPS == 0 else []
        rounds[-1].append(seen.calls)
        assert places(state) == before
    assert rounds[0] == rounds[1] == rounds[2]


@pytest.mark.parametrize("name", ALL)
def test_no_view_keeps_the_prompt(name):
    """A prompt ten times as long, whole or in chunks, keeps no more memory."""
    model = built(ALL[name])
    long, short = model.step(torch.randint(37, (2, 300)))[1], None
    for part in torch.randint(37, (2, 30)).split([26, 4], 1):
        _, short = model.step(part, short)
    assert memory(long) == memory(short)


def test_keys_and_values_stay_once_the_window_is_full():
    """What docs/devices.md says of them: the memory is reused, the place of the window in it moves."""
    model = built(OTHERS["lookup-free"])
    state = prefilled(model, 40)
    buffer = state.parts[0].past._buffer
    for _ in range(200):
        model.step(torch.randint(37, (2, 1)), state)
        assert state.parts[0].past._buffer is buffer


@pytest.mark.parametrize("name", ALL)
def test_copies_of_a_state_are_independent(name):
    model, tokens = built(ALL[name]), torch.randint(37, (3, 2, 4))
    state, expected = prefilled(model, 9), []
    for branch in tokens:
        one = copy.deepcopy(state)
        expected.append([model.step(token[:, None], one)[0] for token in branch.T])
    branches = [copy.deepcopy(state) for _ in tokens]
    for step in range(4):
        for number, one in enumerate(branches):
            logits, _ = model.step(tokens[number, :, step : step + 1], one)
            assert torch.equal(logits, expected[number][step])


@pytest.mark.parametrize("name", ALL)
def test_a_state_outlives_inference_mode(name):
    """In-place changes to tensors of inference mode are errors outside of it."""
    model, tokens = built(ALL[name]), torch.randint(37, (2, 14))
    found = []
    for inside in (0, 9, 11):  # positions that are read in inference mode: a prompt, and steps
        state, logits = model.start(), []
        for first, last in ((0, 9), *((t, t + 1) for t in range(9, 14))):
            if first == 9:
                state.begin_decoding()
            with torch.inference_mode(first < inside):
                logits.append(model.step(tokens[:, first:last], state)[0].clone())
        found.append(torch.cat(logits, 1))
    assert all(torch.equal(each, found[0]) for each in found)
