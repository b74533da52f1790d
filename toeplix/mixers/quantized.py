"""Linear layers whose weights are stored in fewer bits: weight-only quantization, for inference.

    y = x W^T + bias,   W[o, i] = scale[o] q[o, i]

    int8       q are integers in -127 .. 127, one scale per output channel
    bfloat16   q are bfloat16, no scale

A decode step is as fast as its weights are read from memory. For few rows x is rounded to bfloat16 and
multiplied by the stored weights, with float32 sums; for many rows (prefill) the weights are converted to
float32 once and multiplied there, since that conversion is then a small part of the product. So the
result of a row depends on the number of rows by the rounding of bfloat16 (docs/serving.md). Biases,
norms, filters and embeddings stay as they are, and so does the residual stream. `model.to(dtype)` changes
the dtype of these; stored weights and their scales keep theirs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor, nn

from toeplix.amx import avoid_broken_amx

MAX_LEVEL = 127  # symmetric: -128 is not used
# rows up to which the product with stored weights is faster than their conversion (docs/performance.md)
MAX_FEW_ROWS = 16
# PyTorch's int8 kernel reads the input channels in vectors of this many, beyond the end if it must
KERNEL_VECTOR = 16


class QuantizedLinear(nn.Module, ABC):
    """In place of an `nn.Linear`, without gradients for its weight."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        bias = None if linear.bias is None else linear.bias.detach().clone()
        self.register_buffer("bias", bias)

    def forward(self, x: Float[Tensor, "*n i"]) -> Float[Tensor, "*n o"]:
        rows = x.numel() // self.in_features
        if rows > MAX_FEW_ROWS or not x.is_cpu or not self.packable:
            return nn.functional.linear(x, self.dequantized(x.dtype), self._bias(x.dtype))
        y = self._few(x.reshape(rows, self.in_features).bfloat16())
        # a sum with the bias is promoted to its type, which saves a call: at one row calls are what costs
        y = y if self.bias is None else torch.add(self.bias, y)
        return y.to(x.dtype).view(*x.shape[:-1], self.out_features)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "QuantizedLinear":
        """Move stored weights and scales to other devices, but keep the dtypes that kernels read."""
        stored = {name: value for name, value in self.named_buffers() if name != "bias"}
        super()._apply(fn, recurse)
        for name, before in stored.items():
            after = getattr(self, name)
            if after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        return self

    def _bias(self, dtype: torch.dtype) -> Any:
        return None if self.bias is None else self.bias.to(dtype)

    @property
    def packable(self) -> bool:
        """Whether the kernel for few rows takes these sizes."""
        return True

    @abstractmethod
    def dequantized(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "o i"]:
        """Return the weight that the stored numbers stand for."""

    @abstractmethod
    def _few(self, x: BFloat16[Tensor, "n i"]) -> BFloat16[Tensor, "n o"]:
        """Return the product of a few rows, without the bias."""


class Int8Linear(QuantizedLinear):
    """Weights in int8, with one scale per output channel.

    The kernel takes scales in bfloat16, so they are rounded before the weights are divided by them, which
    leaves no error of their own.
    """

    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach().float()
        largest = weight.abs().amax(1) if weight.numel() else weight.new_zeros(len(weight))
        scale = (largest / MAX_LEVEL).clamp(min=torch.finfo(torch.float32).tiny).bfloat16()
        levels = (weight / scale.float()[:, None]).round_().clamp_(-MAX_LEVEL, MAX_LEVEL)
        self.register_buffer("weight", levels.to(torch.int8))
        self.register_buffer("scale", scale)

    @property
    def packable(self) -> bool:
        return self.in_features % KERNEL_VECTOR == 0

    def dequantized(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "o i"]:
        # in float16 the scales of small weights would be subnormal
        wide = torch.promote_types(dtype, torch.float32)
        return self.weight.to(wide).mul_(self.scale.to(wide)[:, None]).to(dtype)

    def _few(self, x: BFloat16[Tensor, "n i"]) -> BFloat16[Tensor, "n o"]:
        return torch._weight_int8pack_mm(x, self.weight, self.scale)


class BFloat16Linear(QuantizedLinear):
    """Weights in bfloat16."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.register_buffer("weight", linear.weight.detach().bfloat16().contiguous())

    def dequantized(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "o i"]:
        return self.weight.to(dtype)

    def _few(self, x: BFloat16[Tensor, "n i"]) -> BFloat16[Tensor, "n o"]:
        return nn.functional.linear(x, self.weight)


SCHEMES: dict[str, type[QuantizedLinear]] = {"int8": Int8Linear, "bfloat16": BFloat16Linear}


@torch.no_grad()
def quantize(model: nn.Module, scheme: str) -> None:
    """Replace the linear layers of a model by quantized ones, in place.

    The small network that computes Hyena's filters runs once per sequence, in float32, and is left alone.
    An output layer that shares its matrix with the embedding gets a quantized copy of its own.
    """
    check_scheme(scheme)
    if (found := quantization_of(model)) is not None:
        raise ValueError(f"the weights are in {found} already: quantize the float32 checkpoint")
    if scheme == "bfloat16":
        avoid_broken_amx()
    model.float()  # a checkpoint in half precision: what is not quantized is computed in float32
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and not is_filter_network(name):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, SCHEMES[scheme](module))


def is_filter_network(name: str) -> bool:
    return ".filter." in name


def check_scheme(scheme: str) -> None:
    if scheme not in SCHEMES:
        raise ValueError(f"quantization {scheme!r:.40} is not known: one of {', '.join(SCHEMES)}")


def quantization_of(model: nn.Module) -> str | None:
    """Return how the linear layers of a model are quantized, or None."""
    for module in model.modules():
        for name, kind in SCHEMES.items():
            if isinstance(module, kind):
                return name
    return None
