"""torch.compile keeps the graph whole, and results equal eager's.

Not collected by itself: tests/test_compiled.py runs this file in a process without run-time type
checks, which the compiler cannot trace.
"""

from functools import partial

import pytest
import torch
from torch import nn

from toeplix import (
    toeplitz,
    toeplitz_continued,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_windowed,
)
from toeplix.ops import toeplitz_lookup, toeplitz_recurrent


class Layer(nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.kernel = nn.Parameter(torch.randn(2, 64) / 8)
        self.operator = operator

    def forward(self, x, *where):
        x = self.linear(x).unflatten(-1, (2, 4))
        return self.operator(x, self.kernel, *where).flatten(2).tanh()


def recurrent(x, kernel, **where):
    """The kernel's entries serve as the parameters of a recurrent filter."""
    filters = kernel[:, :4], kernel[:, 4:7], kernel[:, 7:10].sigmoid()
    y, state = toeplitz_recurrent(x, *filters, **where)
    return y + state.sums.sum() + state.recent.sum()


def recurrent_continued(x, kernel):
    filters = kernel[:, :4], kernel[:, 4:7], kernel[:, 7:10].sigmoid()
    _, state = toeplitz_recurrent(x[:, :20], *filters)
    return toeplitz_recurrent(x, *filters, state=state)[0]


def mask() -> torch.Tensor:
    real = torch.zeros(3, 50, dtype=torch.bool)
    real[0, :30], real[1, 20:], real[2, 5:45] = True, True, True
    return real


CASES = {
    "plain": (toeplitz, 3, ()),
    "padded": (toeplitz_padded, 3, (mask(),)),
    "windowed": (toeplitz_windowed, 2, ()),
    "continued": (lambda x, k: toeplitz_continued(x, k, x[:, :40]), 2, ()),
    "packed": (toeplitz_packed, 1, (torch.tensor([0, 7, 7, 30, 50]),)),
    "recurrent": (recurrent, 2, ()),
    "recurrent, continued": (recurrent_continued, 2, ()),
    "recurrent, padded": (lambda x, k, where: recurrent(x, k, mask=where), 3, (mask(),)),
    "recurrent, packed": (
        lambda x, k, where: recurrent(x, k, offsets=where),
        1,
        (torch.tensor([0, 7, 7, 30, 50]),),
    ),
}


# torch's own compiler imports deprecated parts of torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize(
    ("case", "backend"), [*((case, "aot_eager") for case in CASES), ("plain", "inductor")]
)
def test_compiled_equals_eager(case, backend):
    operator, batch, where = CASES[case]
    if backend == "inductor" and not _has_compiler():
        pytest.skip("inductor needs a C++ compiler, and this machine has none")
    torch.compiler.reset()  # all cases compile one function, and its versions are limited in number
    layer = Layer(operator)
    x = torch.randn(batch, 50, 8)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    results = []
    for module in (layer, compiled):
        given = x.clone().requires_grad_()
        layer.zero_grad()
        y = module(given, *where)
        y.square().sum().backward()
        results.append([y.detach(), given.grad, *(p.grad.clone() for p in layer.parameters())])
    for eager, other in zip(*results, strict=True):
        torch.testing.assert_close(other, eager, rtol=1e-5, atol=1e-5 * float(eager.abs().max()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_the_products_of_a_lookup_are_not_saved():
    """Compiled or not, backward gets q, k, v and filters, however many key channels there are."""
    torch.compiler.reset()
    shapes = (1, 70, 2, 6), (1, 70, 2, 6), (1, 70, 2, 3), (2, 70)
    given = [torch.randn(shape, requires_grad=True) for shape in shapes]
    lookup = partial(toeplitz_lookup, path="products")
    results = []
    for function in (lookup, torch.compile(lookup, fullgraph=True, backend="aot_eager")):
        saved = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, saved=saved: saved.setdefault(x.data_ptr(), x), lambda x: x
        ):
            y = function(*given)
        assert sum(x.numel() for x in saved.values()) == sum(x.numel() for x in given)
        results.append([y.detach(), *torch.autograd.grad(y.square().sum(), given)])
    for eager, other in zip(*results, strict=True):
        torch.testing.assert_close(other, eager, rtol=1e-5, atol=1e-5 * float(eager.abs().max()))


def test_registered_operators_keep_their_promises():
    """Schema, fake implementation, autograd registration: PyTorch's own examination."""
    x = torch.randn(2, 9, 2, 3, requires_grad=True)
    kernel = torch.randn(2, 12, requires_grad=True)
    arguments = (x, kernel, "auto", None, None)
    torch.library.opcheck(torch.ops.toeplix.product.default, arguments)
    segments = (torch.tensor([0, 4]), torch.tensor([4, 5]))
    transposed = torch.randn(12, 2).t()
    row = torch.randn(1, 9, 2, 3)
    torch.library.opcheck(
        torch.ops.toeplix.gradient.default,
        (row, row, transposed, "auto", *segments, True, True),
        test_utils=("test_schema", "test_faketensor"),
    )
    g = torch.randn(2, 9, 2, 3)
    for need in ((True, True), (True, False), (False, True)):
        torch.library.opcheck(
            torch.ops.toeplix.gradient.default,
            (g, x.detach(), kernel.detach(), "auto", None, None, *need),
            test_utils=("test_schema", "test_faketensor"),
        )


def test_the_recurrent_operators_keep_their_promises():
    x = torch.randn(2, 70, 2, 3, requires_grad=True)
    free, weights = (torch.randn(2, n, requires_grad=True) for n in (4, 3))
    decays = torch.rand(2, 3).clamp(0.1, 0.9).requires_grad_()
    filters = (free, weights, decays)
    sums = torch.randn(2, 3, 2, 3, requires_grad=True)
    operators = torch.ops.toeplix
    torch.library.opcheck(operators.recurrent.default, (x, *filters, sums, 3, None, None, True))
    row, segments = torch.randn(1, 9, 2, 3), (torch.tensor([0, 4]), torch.tensor([4, 5]))
    torch.library.opcheck(operators.recurrent.default, (row, *filters, None, 0, *segments, True))
    tests = ("test_schema", "test_faketensor")
    fixed = tuple(part.detach() for part in filters)
    states = torch.randn(2, 3, 3, 2, 3)  # 67 positions are three chunks
    for g, given, skip, kept, where in (
        (torch.randn(2, 67, 2, 3), x.detach(), 3, states, (None, None)),
        (torch.randn(2, 67, 2, 3), None, 3, states[:, :, :0], (None, None)),
        (row, row, 0, states[:, :, :0], segments),
    ):
        for need_x in (True, False):
            torch.library.opcheck(
                operators.recurrent_gradient.default,
                (g, None, given, kept, *fixed, skip, *where, need_x),
                test_utils=tests,
            )


def _has_compiler() -> bool:
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        return False
    return True
