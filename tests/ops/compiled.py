"""torch.compile keeps the graph whole, and results equal eager's.

Not collected by itself: tests/test_compiled.py runs this file in a process without run-time type
checks, which the compiler cannot trace.
"""

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


class Layer(nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.kernel = nn.Parameter(torch.randn(2, 64) / 8)
        self.operator = operator

    def forward(self, x, *where):
        x = self.linear(x).unflatten(-1, (2, 4))
        return self.operator(x, self.kernel, *where).flatten(2).tanh()


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


def _has_compiler() -> bool:
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        return False
    return True
