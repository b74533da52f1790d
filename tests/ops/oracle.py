"""Truths of other origin: loops that spell out the definition, and error bounds that scale."""

import torch
from torch import Tensor


def spelled_out(x: Tensor, kernel: Tensor) -> Tensor:
    """`y[t] = sum over l < min(t + 1, n) of kernel[l] x[t - l]`, one lag after the other."""
    y = torch.zeros_like(x)
    for lag in range(min(x.shape[1], kernel.shape[1])):
        y[:, lag:] = y[:, lag:] + kernel[:, lag, None] * x[:, : x.shape[1] - lag]
    return y


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


def magnitude(x: Tensor, kernel: Tensor) -> float:
    """Bounds every output of the product and every intermediate of its transforms.

    By Cauchy and Schwarz, in the norms that transforms preserve.
    """
    x, kernel = x.detach().double(), kernel.detach().double()
    return float(x.norm(dim=1).max() * kernel.norm(dim=1).max())
