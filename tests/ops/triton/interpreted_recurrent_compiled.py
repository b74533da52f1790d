"""Kernels of recurrent filters and lookup as operators: under torch.compile, and examined by PyTorch.

Not collected by itself: test_interpreted.py runs this file with TRITON_INTERPRET=1, in a process without
run-time type checks, which the compiler cannot trace.
"""

import pytest
import torch

from toeplix.ops import toeplitz_recurrent
from toeplix.ops.lookup import toeplitz_lookup_recurrent

FILTERS = (torch.randn(2, 3), torch.randn(2, 2), torch.tensor([[0.5, 0.9], [0.3, 1.0]]))


def product(x):
    y, state = toeplitz_recurrent(x, *FILTERS)
    return y + state.sums.sum()


def lookup(x):
    y, state = toeplitz_lookup_recurrent(x, x.cos(), x.sin(), FILTERS[1], FILTERS[2][0])
    return y + state.sum()


# torch's own compiler imports deprecated parts of torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("function", [product, lookup])
def test_compiled_equals_eager(function):
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    results = []
    for each in (function, compiled):
        x = torch.linspace(-1, 1, 240).view(1, 40, 2, 3).requires_grad_()
        y = each(x)
        results.append((y.detach(), *torch.autograd.grad(y.square().sum(), x)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_registered_operators_keep_their_promises():
    """Schema, fake implementation, autograd registration: PyTorch's own examination."""
    operators = torch.ops.toeplix
    x = torch.randn(1, 40, 2, 3, requires_grad=True)
    filters = [part.clone().requires_grad_() for part in FILTERS]
    filters[2].data.clamp_(max=0.9)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    sums = torch.randn(1, 2, 2, 3)
    arguments = (x, *filters, sums, 2, None, None, True)
    torch.library.opcheck(operators.recurrent.default, arguments, test_utils=tests)
    arguments = (x, x.detach(), x.detach(), filters[1], torch.tensor([0.5, 0.9]))
    first = torch.randn(1, 2, 6, 3, requires_grad=True)
    torch.library.opcheck(
        operators.lookup_recurrent.default, (*arguments, first, True), test_utils=tests
    )
    q, k, v, weights, decays = (each.detach() for each in arguments)
    _, last, states = operators.lookup_recurrent(q, k, v, weights, decays, first.detach(), True)
    torch.library.opcheck(
        operators.lookup_recurrent_gradient.default,
        (torch.randn_like(v), last, q, k, v, weights, decays, states),
        test_utils=tests[:2],
    )
    buffer, coefficients = torch.randn(2, 5, 4, 3), torch.randn(3, 2, 1, 5)
    step = (torch.randn(4, 1, 3), buffer, coefficients, filters[2].detach()[..., None])
    torch.library.opcheck(
        operators.recurrent_step.default,
        (*step, torch.zeros(1, dtype=torch.long), 1),
        test_utils=tests[:2],
    )
