"""Elementwise error bounds for functions that are polynomials with positive coefficients.

With every input replaced by its absolute value, such a function and its gradients become the sums of
absolute values that were added: the bound of each number by itself.
"""

import torch

# float32 accumulates over a whole sequence. In half precision a factor, a product and the result are
# rounded, by the interpreter towards zero.
ROUNDINGS = {torch.float32: 16, torch.bfloat16: 4, torch.float16: 4}


def values_and_gradients(function, inputs, changes):
    """Return the outputs of `function(*inputs)`, and the gradients of inputs for changes of outputs."""
    inputs = [each.detach().requires_grad_() for each in inputs]
    outputs = function(*inputs)
    changes = [g.to(y.dtype) for y, g in zip(outputs, changes, strict=True)]
    gradients = torch.autograd.grad(outputs, inputs, changes, materialize_grads=True)
    return [each.detach() for each in (*outputs, *gradients)]


def assert_equals_definition(function, definition, inputs, changes, names):
    """Compare `function` with `definition` in float64, outputs and gradients, number by number."""
    dtype = inputs[0].dtype
    exact = [each.double() for each in inputs]
    sizes = values_and_gradients(
        definition, [each.abs() for each in exact], [each.double().abs() for each in changes]
    )
    wanted = values_and_gradients(definition, exact, [each.double() for each in changes])
    found = values_and_gradients(function, inputs, changes)
    for name, ours, theirs, size in zip(names, found, wanted, sizes, strict=True):
        assert ours.shape == theirs.shape, name
        bound = ROUNDINGS[dtype] * torch.finfo(dtype).eps * size + torch.finfo(dtype).tiny
        excess = float(((ours.double() - theirs).abs() / bound).max()) if size.numel() else 0.0
        assert excess <= 1, f"{name}: {excess:.2f} times the bound"
