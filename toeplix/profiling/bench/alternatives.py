"""Implementations of the product without this package: the alternatives in the operator's benchmark.

All take x `(b, t, h, c)` and kernel `(h, t)` and return `(b, t, h, c)`; tests compare them with the
definition.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor


def gathered_matrix(x: Tensor, kernel: Tensor) -> Tensor:
    """Build the matrix by an index gather in every call, then a matmul on `(b*d, t)`."""
    batch, time, heads, channels = x.shape
    position = torch.arange(time, device=x.device)
    lag = position - position[:, None]
    matrix = torch.where(lag >= 0, kernel[:, lag.clamp(min=0)], 0.0)
    if heads == 1:
        rows = x.reshape(batch, time, channels).transpose(1, 2).reshape(-1, time)
        y = (rows @ matrix[0]).view(batch, channels, time)
        return y.transpose(1, 2).reshape(x.shape)
    rows = x.permute(2, 0, 3, 1).reshape(heads, batch * channels, time)
    y = (rows @ matrix).view(heads, batch, channels, time)
    return y.permute(1, 3, 0, 2).contiguous()


def plain_rfft(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiply spectra, by rfft of length 2t-1 along the strided axis."""
    time = x.shape[1]
    length = 2 * time - 1
    spectrum = torch.fft.rfft(kernel, n=length).t()[:, :, None]
    return torch.fft.irfft(torch.fft.rfft(x, n=length, dim=1) * spectrum, n=length, dim=1)[:, :time]


def grouped_conv1d(x: Tensor, kernel: Tensor) -> Tensor:
    """Call `torch.nn.functional.conv1d` with one group per channel."""
    batch, time, heads, channels = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(batch, heads * channels, time)
    weight = kernel.flip(-1)[:, None].repeat_interleave(channels, 0)
    padded = torch.nn.functional.pad(rows, (time - 1, 0))
    y = torch.nn.functional.conv1d(padded, weight, groups=heads * channels)
    return y.view(batch, heads, channels, time).permute(0, 3, 1, 2)


def scipy_toeplitz(x: Tensor, kernel: Tensor) -> Tensor:
    """Call `scipy.linalg.matmul_toeplitz` head by head. Forward only."""
    from scipy.linalg import matmul_toeplitz

    first_row = torch.zeros_like(kernel[0])
    parts = []
    for head, column in enumerate(kernel.detach()):
        first_row[0] = column[0]
        right = x[:, :, head].detach().transpose(0, 1).flatten(1).numpy()
        y = matmul_toeplitz((column.numpy(), first_row.numpy()), right)
        parts.append(torch.from_numpy(y).view(x.shape[1], x.shape[0], -1).transpose(0, 1))
    return torch.stack(parts, 2).to(x.dtype)


class Alternative(NamedTuple):
    function: Callable[[Tensor, Tensor], Tensor]
    longest: int  # maximum length; beyond it a call takes too long or the matrix does not fit
    most: int  # maximum elements of x; beyond it a call takes too long
    differentiable: bool = True


ALTERNATIVES: dict[str, Alternative] = {
    "gathered": Alternative(gathered_matrix, longest=4096, most=2**26),
    "rfft": Alternative(plain_rfft, longest=2**20, most=2**28),
    "conv1d": Alternative(grouped_conv1d, longest=1024, most=2**21),
    "scipy": Alternative(scipy_toeplitz, longest=2**20, most=2**24, differentiable=False),
}
if find_spec("scipy") is None:  # an extra: pip install 'toeplix[bench]'
    del ALTERNATIVES["scipy"]
