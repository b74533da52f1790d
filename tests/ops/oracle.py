"""Truths of other origin: loops that spell out the definition, and error bounds that scale."""

import torch
from torch import Tensor

from toeplix.profiling.contract import definition as spelled_out
from toeplix.profiling.contract import magnitude

__all__ = ["assert_near", "magnitude", "random_pair", "spelled_out"]


def random_pair(
    batch: int,
    time: int,
    heads: int,
    channels: int,
    taps: int | None = None,
    dtype=torch.float64,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(time + 10_000 * seed)
    x = torch.randn(batch, time, heads, channels, generator=generator, dtype=torch.float64)
    kernel = torch.randn(heads, taps or time, generator=generator, dtype=torch.float64)
    return x.to(dtype), kernel.to(dtype)


def assert_near(actual: Tensor, exact: Tensor, size: Tensor | float, dtype: torch.dtype) -> None:
    """Within a few roundings of `size`, a bound on the sums of absolute values that were added."""
    eps = torch.finfo(dtype).eps
    error = (actual.double() - exact.double()).abs().max().item()
    size = float(size.abs().max()) if isinstance(size, Tensor) else size
    assert error <= 8 * eps * size, f"error {error:.3g} is {error / (eps * size):.1f} eps"
