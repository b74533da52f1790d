"""The contract of recurrent filters and lookup as checks that run on any device (products: contract.py).

    recurrent_checks   whole sequences, packed and padded documents, and a continuation after a state
    lookup_checks      block rows, products, chunks, and chunks after a state

Every check compares one output or one gradient with the definition in float64 on the CPU. The numbers
that were added are bounded by the same function of absolute values: the definitions are polynomials with
positive coefficients, and so are their gradients. Lengths reach beyond those at which block rows are
taken and not chunks (`dispatch.LOOKUP_CHUNKS`), so that chunks run on every device, forward and backward.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import torch
from torch import Tensor

from toeplix.ops import (
    RecurrentState,
    toeplitz_lookup,
    toeplitz_lookup_recurrent,
    toeplitz_recurrent,
)
from toeplix.ops.lookup import lookup_dense, lookup_recurrent_whole
from toeplix.profiling.contract import (
    Check,
    Compared,
    definition,
    dtype_name,
    dtypes_of,
    noise,
    roundings,
)

SIZES = {"quick": (200,), "full": (1, 33, 200, 1100)}

Tensors = tuple[Tensor, ...]
Function = Callable[..., Tensors]
Form = tuple[Function, Function, Sequence[str]]  # ours, the definition, and the names of outputs


def recurrent_checks(device: torch.device, sizes: Sequence[int]) -> Iterator[Check]:
    """Yield the checks of the product with recurrent filters."""
    for dtype in dtypes_of(device):
        for time in sizes:
            x, free, weights = noise(2, time, 2, 4), noise(2, 3, seed=1), noise(2, 5, seed=2)
            inputs = {"x": x, "free": free, "weights": weights, "decays": _decays(2, 5)}
            for form, (ours, truth, outputs) in RECURRENT.items():
                name = f"recurrent {form}, {dtype_name(dtype)}, t={time}"
                yield from _checks(name, ours, truth, inputs, outputs, device, dtype)


def lookup_checks(device: torch.device, sizes: Sequence[int]) -> Iterator[Check]:
    """Yield the checks of lookup by every path."""
    for dtype in dtypes_of(device):
        for time in sizes:
            parts = {name: noise(2, time, 2, 4, seed=seed) for seed, name in enumerate("qkv")}
            for form, (ours, truth, outputs) in LOOKUP.items():
                free = {"kernel": noise(2, time, seed=3)}
                last = free if form in FREE else {"weights": noise(2, 3, seed=3)}
                name = f"lookup {form}, {dtype_name(dtype)}, t={time}"
                yield from _checks(name, ours, truth, parts | last, outputs, device, dtype)


def _checks(
    name: str,
    ours: Function,
    truth: Function,
    inputs: dict[str, Tensor],
    outputs: Sequence[str],
    device: torch.device,
    dtype: torch.dtype,
) -> Iterator[Check]:
    """Yield a check for every output and for the gradient of every input, all computed once."""

    @cache
    def results() -> tuple[Tensors, Tensors, Tensors]:
        given = [each.to(dtype) for each in inputs.values()]
        exact = [each.double() for each in given]
        found = _passes(ours, [each.to(device) for each in given], dtype)
        bounds = _passes(truth, [each.abs() for each in exact], dtype, positive=True)
        return found, _passes(truth, exact, dtype), bounds

    def compare(number: int) -> Compared:
        found, expected, bounds = (each[number] for each in results())
        return Compared(found, expected, float(bounds.max()), roundings(dtype))

    whats = [*outputs, *(f"gradient of {each}" for each in inputs)]
    for number, what in enumerate(whats):
        yield Check(f"{name}: {what}", partial(compare, number))


def _passes(
    function: Function, inputs: list[Tensor], dtype: torch.dtype, positive: bool = False
) -> Tensors:
    """Return the outputs, and the gradients of all inputs for given gradients of the outputs."""
    inputs = [each.detach().requires_grad_() for each in inputs]
    outputs = function(*inputs)
    upper = [noise(*y.shape, seed=9).to(dtype).to(y) for y in outputs]
    upper = [g.abs() if positive else g for g in upper]
    gradients = torch.autograd.grad(outputs, inputs, upper, materialize_grads=True)
    return tuple(each.detach() for each in (*outputs, *gradients))


def _decays(*shape: int) -> Tensor:
    return noise(*shape, seed=3).sigmoid()


def _taps(weights: Tensor, decays: Tensor, time: int) -> Tensor:
    return torch.einsum("hr,hrt->ht", weights, _powers(decays.expand_as(weights), time))


def _powers(decays: Tensor, time: int) -> Tensor:
    return decays[..., None] ** torch.arange(time, dtype=decays.dtype)


def _parts(x: Tensor) -> list[Tensor]:
    """Divide the positions into two longer parts and a single one between them, where there are any."""
    third = x.shape[1] // 3
    return [part for part in x.tensor_split([third, third + 1], 1) if part.shape[1]]


def _recurrent_truth(x: Tensor, free: Tensor, weights: Tensor, decays: Tensor) -> Tensors:
    """Return the outputs and the sums after the last position."""
    time = x.shape[1]
    taps = _taps(weights, decays, max(time, free.shape[1]))
    taps = taps + torch.nn.functional.pad(free, (0, taps.shape[1] - free.shape[1]))
    sums = torch.einsum("hrs,bshc->brhc", _powers(decays, time).flip(-1), x)
    return definition(x, taps), sums


def _whole(x: Tensor, *filters: Tensor) -> Tensors:
    y, state = toeplitz_recurrent(x, *filters)
    return y, state.sums


def _continued(x: Tensor, *filters: Tensor) -> Tensors:
    state: RecurrentState | None = None
    outputs = []
    for part in _parts(x):
        y, state = toeplitz_recurrent(part, *filters, state=state)
        outputs.append(y)
    assert state is not None
    return torch.cat(outputs, 1), state.sums


def _offsets(time: int) -> list[int]:
    return sorted({0, min(3, time), time // 2, time // 2 + 1, time})


def _packed(x: Tensor, *filters: Tensor) -> Tensors:
    y, state = toeplitz_recurrent(x[:1], *filters, offsets=_offsets(x.shape[1]))
    return y, state.sums


def _packed_truth(x: Tensor, *filters: Tensor) -> Tensors:
    parts = x[:1].tensor_split(_offsets(x.shape[1])[1:-1], 1)
    y, sums = zip(*(_recurrent_truth(part, *filters) for part in parts), strict=True)
    return torch.cat(y, 1), torch.cat(sums)


def _ends(time: int) -> tuple[int, int]:
    """Return the end of the first row and the start of the second."""
    return time - time // 4, time // 6


def _padded(x: Tensor, *filters: Tensor) -> Tensors:
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    end, start = _ends(x.shape[1])
    mask[0, end:], mask[1, :start] = False, False
    y, state = toeplitz_recurrent(x, *filters, mask=mask)
    return y, state.sums


def _padded_truth(x: Tensor, *filters: Tensor) -> Tensors:
    end, start = _ends(x.shape[1])
    first, sums = _recurrent_truth(x[:1, :end], *filters)
    second, last = _recurrent_truth(x[1:, start:], *filters)
    pad = torch.nn.functional.pad
    rows = pad(first, (0,) * 5 + (x.shape[1] - end,)), pad(second, (0,) * 4 + (start, 0))
    return torch.cat(rows), torch.cat([sums, last])


STATE = ("values", "state")
RECURRENT: dict[str, Form] = {
    "whole": (_whole, _recurrent_truth, STATE),
    "continued": (_continued, _recurrent_truth, STATE),
    "packed": (_packed, _packed_truth, STATE),
    "padded": (_padded, _padded_truth, STATE),
}


# lookup; the decays of recurrent filters get no gradient, and are exact in every dtype
DECAYS = (0.5, 0.875, 63 / 64)


def _lookup_truth(q: Tensor, k: Tensor, v: Tensor, weights: Tensor) -> Tensors:
    """Return the outputs and the sums after the last position."""
    time, decays = q.shape[1], weights.new_tensor(DECAYS)
    sums = torch.einsum("rs,bshe,bshc->brhec", _powers(decays, time).flip(-1), k, v)
    return lookup_dense(q, k, v, _taps(weights, decays, time)), sums


def _chunks(q: Tensor, k: Tensor, v: Tensor, weights: Tensor) -> Tensors:
    return toeplitz_lookup_recurrent(q, k, v, weights, weights.new_tensor(DECAYS))


def _lookup_whole(q: Tensor, k: Tensor, v: Tensor, weights: Tensor) -> Tensors:
    return (lookup_recurrent_whole(q, k, v, weights, weights.new_tensor(DECAYS)),)


def _lookup_continued(q: Tensor, k: Tensor, v: Tensor, weights: Tensor) -> Tensors:
    state: Tensor | None = None
    outputs, decays = [], weights.new_tensor(DECAYS)
    for query, key, value in zip(*(_parts(each) for each in (q, k, v)), strict=True):
        y, state = toeplitz_lookup_recurrent(query, key, value, weights, decays, state=state)
        outputs.append(y)
    assert state is not None
    return torch.cat(outputs, 1), state


FREE = ("tiles", "products")
LOOKUP: dict[str, Form] = {
    "whole": (_lookup_whole, lambda *a: _lookup_truth(*a)[:1], ("values",)),
    "chunks": (_chunks, _lookup_truth, STATE),
    "continued": (_lookup_continued, _lookup_truth, STATE),
    **{
        path: (
            lambda *a, path=path: (toeplitz_lookup(*a, path=path),),
            lambda *a: (lookup_dense(*a),),
            ("values",),
        )
        for path in FREE
    },
}
