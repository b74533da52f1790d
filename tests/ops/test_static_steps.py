"""Decode steps that a CUDA graph can replay: the same operators, shapes and memory, step after step."""

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from toeplix.ops import RecurrentDecoder, decoder


class Recorded(TorchDispatchMode):
    """Every operator with its numbers, shapes, and the addresses of what is kept between steps."""

    def __init__(self, kept):
        super().__init__()
        self.kept, self.calls = kept, []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        described = [str(operator)]
        for each in pytree.tree_leaves((args, kwargs or {})):
            if not isinstance(each, torch.Tensor):
                described.append(str(each))
                continue
            own = each.untyped_storage().data_ptr() in self.kept
            place = (each.data_ptr(), each.stride()) if own else "temporary"
            described.append(f"{tuple(each.shape)} {place}")
        self.calls.append(tuple(described))
        return operator(*args, **(kwargs or {}))


def step(state, *kept):
    x = torch.randn(2, 3, 4)
    with Recorded({each.untyped_storage().data_ptr() for each in kept}) as seen:
        state.step(x)
    return seen.calls


@pytest.mark.parametrize("short", [0, 1, 3])
def test_recurrent_filters_repeat_after_their_free_taps(short):
    """One graph for each rotation of the ring of the last inputs; the state never moves."""
    filters = torch.randn(3, short), torch.randn(3, 5), torch.rand(3, 5)
    state = RecurrentDecoder(*filters, torch.randn(2, 9, 3, 4))
    buffer = state._buffer
    kept = (buffer, state._coefficients, state._decays)
    period = max(1, short)
    rounds = [[step(state, *kept) for _ in range(period)] for _ in range(3)]
    assert rounds[0] == rounds[1] == rounds[2]
    assert state._buffer is buffer


@pytest.mark.parametrize("kind", ["history", "online"])
def test_free_filters_keep_their_memory_but_not_their_shapes(kind):
    """What docs/devices.md says of them: the state stays where it is, the window that is read grows."""
    state = decoder(torch.randn(3, 200), torch.randn(2, 9, 3, 4), kind=kind)
    place = state._inputs if kind == "history" else state._rings.ahead
    address = place.data_ptr()
    assert step(state, place) != step(state, place)
    for _ in range(100):
        state.step(torch.randn(2, 3, 4))
    place = state._inputs if kind == "history" else state._rings.ahead
    assert place.data_ptr() == address
