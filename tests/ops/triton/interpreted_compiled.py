"""The path "triton" as one operator: under torch.compile, in whole models, and with FSDP2.

Not collected by itself: test_interpreted.py runs this file with TRITON_INTERPRET=1, in a process without
run-time type checks, which the compiler cannot trace.
"""

import pytest
import torch
from torch import nn

from toeplix import Model, build, toeplitz, toeplitz_packed
from toeplix.ops import dispatch

EVERYWHERE = [{"columns": None, "paths": [(None, "triton")]}]


class Layer(nn.Module):
    """A linear layer and a product of two heads."""

    def __init__(self, path, offsets=None):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.kernel = nn.Parameter(torch.randn(2, 64) / 8)
        self.path, self.offsets = path, offsets

    def forward(self, x):
        x = self.linear(x).unflatten(-1, (2, 4))
        if self.offsets is None:
            return toeplitz(x, self.kernel, path=self.path).flatten(2).tanh()
        return toeplitz_packed(x, self.kernel, self.offsets, path=self.path).flatten(2).tanh()


def values_and_gradients(module, parameters, x):
    parameters = list(parameters)
    y = module(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), parameters)]


def assert_all_close(results, expected):
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


# torch's own compiler imports deprecated parts of torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("offsets", [None, [0, 7, 7, 30, 50]], ids=["whole", "packed"])
def test_compiled_equals_eager(offsets):
    torch.compiler.reset()
    layer = Layer("triton", None if offsets is None else torch.tensor(offsets))
    other = Layer("blocked", layer.offsets)
    other.load_state_dict(layer.state_dict())
    graphs = []

    def count(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph.forward

    x = torch.randn(1 if offsets else 2, 50, 8)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = values_and_gradients(compiled, layer.parameters(), x)
    assert_all_close(results, values_and_gradients(other, other.parameters(), x))
    torch.compiler.reset()
    torch.compile(layer, fullgraph=True, backend=count)(x)
    assert len(graphs) == 1
    assert sum("product" in target for target in graphs[0]) == 1


def test_registered_operators_keep_their_promises():
    """Schema, fake implementation, autograd registration: PyTorch's own examination."""
    x = torch.randn(2, 9, 2, 3, requires_grad=True)
    kernel = torch.randn(2, 12, requires_grad=True)
    torch.library.opcheck(
        torch.ops.toeplix.product.default, (x, kernel, "triton", None, None), atol=1e-4, rtol=1e-4
    )
    row, segments = torch.randn(1, 9, 2, 3), (torch.tensor([0, 4]), torch.tensor([4, 5]))
    for need in ((True, True), (True, False), (False, True)):
        torch.library.opcheck(
            torch.ops.toeplix.gradient.default,
            (row, row, kernel.detach(), "triton", *segments, *need),
            test_utils=("test_schema", "test_faketensor"),
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("arch", ["toeplitz", "hyena"])
def test_whole_models_by_the_rule(arch, monkeypatch):
    """A rule that selects the kernels changes no model, eager or compiled."""
    torch.compiler.reset()
    model = build(Model(arch=arch, vocab=37, context=24, dim=16, depth=1))
    tokens = torch.randint(37, (2, 20))
    expected = values_and_gradients(model, model.parameters(), tokens)
    rule = dispatch.RULE | {"cpu": dict.fromkeys(dispatch.RULE["cpu"], EVERYWHERE)}
    dispatch.check(rule)
    monkeypatch.setattr(dispatch, "current_rule", lambda: rule)
    assert_all_close(values_and_gradients(model, model.parameters(), tokens), expected)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_all_close(values_and_gradients(compiled, model.parameters(), tokens), expected)


def sharded(rank, directory):
    """One of two processes: its half of the batch, with sharded weights."""
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2
    )
    saved = torch.load(f"{directory}/layer.pt")
    layer = Layer("triton")
    layer.load_state_dict(saved["weights"])
    fully_shard(layer, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    layer(saved["x"][rank : rank + 1]).square().sum().backward()
    gradients = [weight.grad.full_tensor() for weight in layer.parameters()]
    if rank == 0:
        torch.save(gradients, f"{directory}/gradients.pt")
    torch.distributed.barrier()  # gloo aborts a process whose peer has left
    torch.distributed.destroy_process_group()


def test_sharded_weights(tmp_path):
    layer = Layer("blocked")
    x = torch.randn(2, 50, 8)
    torch.save({"weights": layer.state_dict(), "x": x}, tmp_path / "layer.pt")
    torch.multiprocessing.spawn(sharded, (str(tmp_path),), nprocs=2)
    _, *expected = values_and_gradients(layer, layer.parameters(), x)
    # FSDP averages over processes
    found = [2 * gradient for gradient in torch.load(tmp_path / "gradients.pt")]
    assert_all_close(found, expected)
