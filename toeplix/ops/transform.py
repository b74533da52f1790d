"""The block transform: a short Fourier transform over blocks, dense matmuls inside them.

Cut time into n blocks of m. The product is then a product of polynomials whose coefficients are
blocks, Y(z) = W(z) X(z), of which only the powers below n are wanted. Taken modulo z^n - i (a
"right-angle" product) the powers from n on are multiplied by i: for real data the wanted half is
the real part, and n points suffice instead of 2n. With the n-th roots of i,

    z_k = exp(i pi (1 + 4k) / 2n)        X_k = sum_j z_k^j x_j        Y_k = W_k X_k
    y_j = Re sum_k conj(z_k^j) Y_k / n

where W_k = sum_l z_k^l W_l and W_l is the m x m Toeplitz matrix of lags l m - m + 1 .. l m + m - 1.
Complex numbers are pairs of reals, so everything is real matmuls, and no data is moved between
them: x (n m, d) seen as (n, m d) meets the transform, seen as (n, 2m, d) meets the W_k.
With F the real (2n x n) matrix of the transform: y = F^T W F x / n, hence dx = F^T W^T F g / n
and dW = (F g) (F x)^T / n.

The transform is split in two stages, n = n1 n2, once that saves work (Cooley and Tukey, the twiddle
factors folded into the second stage's matrices). Causal to rounding only.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops import contraction
from toeplix.ops.contraction import Gradient

BLOCK = 32
COLUMNS = 512


class Stages(NamedTuple):
    """F as two matmuls: `first` over the slow part of the block index, `second` over the fast."""

    first: Float[Tensor, "two_n1 n1"]
    second: Float[Tensor, "n1 two_n2 two_n2"]

    @property
    def blocks(self) -> int:
        return self.first.shape[1] * self.second.shape[1] // 2

    def forward(self, x: Tensor, half: Tensor, out: Tensor) -> None:
        """`out = F x`: x has n * width numbers, out 2n * width, half is work space like out."""
        n1, two_n2 = self.second.shape[:2]
        target = half if two_n2 > 2 else out
        torch.mm(self.first, x.view(n1, -1), out=target.view(2 * n1, -1))
        if two_n2 > 2:
            spread = (n1, two_n2, -1)
            torch.bmm(self.second, half.view(spread), out=out.view(spread))

    def transposed(self, spectrum: Tensor, half: Tensor, out: Tensor) -> None:
        """`out = F^T spectrum`."""
        n1, two_n2 = self.second.shape[:2]
        source = spectrum
        if two_n2 > 2:
            spread = (n1, two_n2, -1)
            torch.bmm(self.second.transpose(1, 2), spectrum.view(spread), out=half.view(spread))
            source = half
        torch.mm(self.first.t(), source.view(2 * n1, -1), out=out.view(n1, -1))


def product(x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h t"]) -> Float[Tensor, "b t h c"]:
    work = _Columns(x)
    points = _points(kernel, work.stages)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    for group in work.groups():
        spectrum = work.forward(x, group)
        result = torch.bmm(points[group.head], spectrum, out=work.space("result", group))
        work.backward(result, y, group)
    return y


def gradient(
    g: Float[Tensor, "b t h c"],
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h t"],
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    work = _Columns(g)
    points = _points(kernel, work.stages)
    dx = torch.empty_like(g, memory_format=torch.contiguous_format) if need_x else None
    dpoints = torch.zeros_like(points)
    for group in work.groups():
        spectrum = work.forward(g, group, "gradient")
        if need_kernel:
            dpoints[group.head].baddbmm_(spectrum, work.forward(x, group).transpose(1, 2))
        if dx is not None:
            matrix = points[group.head].transpose(1, 2)
            result = torch.bmm(matrix, spectrum, out=work.space("result", group))
            work.backward(result, dx, group)
    return dx, _kernel_gradient(dpoints, work.stages, kernel.shape[1]) if need_kernel else None


class _Group(NamedTuple):
    batch: slice
    head: int

    @property
    def rows(self) -> int:
        return self.batch.stop - self.batch.start


class _Columns:
    """Reads sequences as matrices `(time, columns)`, transforms them, and writes results back.

    One head of several sequences makes a group of about `COLUMNS` columns; where one sequence
    of one head already is such a matrix, nothing is copied.
    """

    def __init__(self, x: Tensor) -> None:
        self.batch, self.time, self.heads, self.channels = x.shape
        self.stages = _plan(x)
        self.padded = self.stages.blocks * BLOCK
        self.direct = self.heads == 1 and self.time == self.padded
        self.like = x
        self._space: dict[tuple[str, int], Tensor] = {}

    def groups(self) -> Iterator[_Group]:
        some = 1 if self.direct else max(1, COLUMNS // self.channels)
        for head in range(self.heads):
            for first in range(0, self.batch, some):
                yield _Group(slice(first, min(first + some, self.batch)), head)

    def space(self, name: str, group: _Group) -> Tensor:
        """Work space of the shape of a spectrum, `(blocks, 2m, columns)`, used again and again."""
        key = (name, group.rows)
        if key not in self._space:
            columns = group.rows * self.channels
            shape = (self.stages.blocks, 2 * BLOCK, columns)
            if name in ("read", "write"):
                shape = (self.padded, group.rows, self.channels)
            self._space[key] = self.like.new_zeros(shape)
        return self._space[key]

    def forward(self, x: Tensor, group: _Group, name: str = "spectrum") -> Tensor:
        part = x[group.batch, :, group.head]
        if self.direct and part.is_contiguous():
            rows = part
        else:
            rows = self.space("read", group)
            rows[: self.time].copy_(part.transpose(0, 1))
        out = self.space(name, group)
        self.stages.forward(rows, self.space("half", group), out)
        return out

    def backward(self, spectrum: Tensor, y: Tensor, group: _Group) -> None:
        """The transposed transform, into y."""
        part = y[group.batch, :, group.head]
        rows = part if self.direct else self.space("write", group)
        self.stages.transposed(spectrum, self.space("half", group), rows)
        if not self.direct:
            part.copy_(rows[: self.time].transpose(0, 1))


def _plan(x: Tensor) -> Stages:
    blocks = -(-x.shape[1] // BLOCK)
    if blocks <= 20:
        return _stages(blocks, 1, x.dtype, x.device)
    n2 = 4 if blocks <= 48 else 8
    return _stages(-(-blocks // n2), n2, x.dtype, x.device)


def _stages(n1: int, n2: int, dtype: torch.dtype, device: torch.device) -> Stages:
    first, second = (torch.from_numpy(part).to(device, dtype) for part in _turns(n1, n2))
    return Stages(first, second)


@lru_cache(maxsize=64)
def _turns(n1: int, n2: int) -> tuple[np.ndarray, np.ndarray]:
    """With j = n2 j1 + j2 and k = k1 + n1 k2: z_k^j = z_k^(n2 j1) z_k^j2, and z_k^n2 knows only k1."""
    k1, j1 = np.arange(n1)[:, None], np.arange(n1)
    angle = math.pi / (2 * n1) * ((1 + 4 * k1) * j1 % (4 * n1))
    first = np.stack([np.cos(angle), np.sin(angle)], 1).reshape(2 * n1, n1)
    k2, j2 = np.arange(n2)[:, None], np.arange(n2)
    n, k = n1 * n2, k1[:, :, None] + n1 * k2
    angle = math.pi / (2 * n) * ((1 + 4 * k) * j2 % (4 * n))
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.stack([np.stack([cos, -sin], 2), np.stack([sin, cos], 2)], 2)
    return first, turn.reshape(n1, 2 * n2, 2 * n2)


def _points(kernel: Float[Tensor, "h t"], stages: Stages) -> Float[Tensor, "h n two_m two_m"]:
    """The W_k / n as real matrices `[[Re, -Im], [Im, Re]]`."""
    heads, time = kernel.shape
    blocks, lags = stages.blocks, 2 * BLOCK - 1
    padded = torch.nn.functional.pad(kernel / blocks, (BLOCK - 1, blocks * BLOCK - time))
    windows = padded.unfold(-1, lags, BLOCK).transpose(0, 1).contiguous()  # (n, h, lags)
    spectrum = kernel.new_empty(blocks, 2, heads, lags)
    stages.forward(windows, torch.empty_like(spectrum), spectrum)
    # row a of a Toeplitz matrix is a window of its lags, read backwards, that starts at a
    real, imag = spectrum.flip(-1).unfold(-1, BLOCK, 1).flip(-2).permute(1, 2, 0, 3, 4)
    points = kernel.new_empty(heads, blocks, 2, BLOCK, 2, BLOCK)
    points[:, :, 0, :, 0] = real
    points[:, :, 1, :, 1] = real
    points[:, :, 1, :, 0] = imag
    torch.neg(imag, out=points[:, :, 0, :, 1])
    return points.view(heads, blocks, 2 * BLOCK, 2 * BLOCK)


def _kernel_gradient(dpoints: Tensor, stages: Stages, time: int) -> Float[Tensor, "h t"]:
    """The transpose of `_points`."""
    heads, blocks = dpoints.shape[:2]
    quarters = dpoints.view(heads, blocks, 2, BLOCK, 2, BLOCK)
    real = quarters[:, :, 0, :, 0] + quarters[:, :, 1, :, 1]
    imag = quarters[:, :, 1, :, 0] - quarters[:, :, 0, :, 1]
    lags = contraction.diagonal_sums(torch.stack([real, imag])).permute(2, 0, 1, 3).contiguous()
    dwindows = dpoints.new_empty(blocks, heads, 2 * BLOCK - 1)
    stages.transposed(lags, torch.empty_like(lags), dwindows)
    # window l covers lags from l m - m + 1: its last m entries are block l, the others block l-1
    early, late = dwindows[..., : BLOCK - 1], dwindows[..., BLOCK - 1 :]
    late[:-1, :, 1:] += early[1:]
    return late.transpose(0, 1).reshape(heads, blocks * BLOCK)[:, :time] / blocks
