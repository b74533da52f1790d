"""How weights lie in memory: a layout in which single positions are multiplied at the speed of memory.

A matrix-vector product is as fast as the matrix is read, if its rows in memory are long. For matrices
that widen (out >= in) this means the transposed layout, 21 instead of 12 GB/s on two CPU cores; those
that narrow are better as they are. Values, names and shapes stay the same; products are summed in another
order, so results may differ in the last bit, and `load` leaves the layout alone.
"""

import torch
from torch import nn


@torch.no_grad()
def for_decoding(model: nn.Module) -> None:
    """Lay out the linear maps of a model for inference on a CPU, in place. Tied ones are left alone."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features >= module.in_features:
            weight = module.weight
            if weight.device.type == "cpu" and id(weight) not in tables:
                weight.data = weight.data.t().contiguous().t()
