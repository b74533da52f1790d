"""Exchanges between the processes that divide a sequence: differentiable, with bytes counted.

    shift(x, by)      the tensor of the process `by` ranks before this one; zeros where there is none
    all_to_all(x)     the part x[rank] of the tensor of every process, in the order of ranks

Both are linear maps of the tensors of all processes. Their transposes, which the backward pass needs, are
a shift in the other direction and the same all_to_all. All processes must call them in the same order,
forward and backward, so which calls are made may not depend on the rank. Processes may have different
values, but tensors of the same shape and dtype.
"""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor
from torch.autograd.function import Function


class Exchange:
    """The processes of a group, seen from one of them; `sent` counts the bytes that this one has sent."""

    def __init__(self, group: Any = None) -> None:
        self.group: Any = dist.group.WORLD if group is None else group
        self.rank, self.count = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.sent = 0

    def shift(self, x: Shaped[Tensor, "..."], by: int) -> Shaped[Tensor, "..."]:
        """Return x of the process `by` ranks before this one (after it, if negative), or zeros."""
        return _Shift.apply(x, self, by)

    def all_to_all(self, x: Shaped[Tensor, "count ..."]) -> Shaped[Tensor, "count ..."]:
        """Return `y[p] = x[rank]` of process p, for all p; x has one part for every process."""
        return _AllToAll.apply(x, self)

    def _shift(self, x: Tensor, by: int) -> Tensor:
        received = torch.zeros_like(x, memory_format=torch.contiguous_format)
        to, source = self.rank + by, self.rank - by
        calls = []
        if 0 <= to < self.count:
            calls.append(self._call(dist.isend, x.contiguous(), to))
            self.sent += x.numel() * x.element_size()
        if 0 <= source < self.count:
            calls.append(self._call(dist.irecv, received, source))
        for work in dist.batch_isend_irecv(calls) if calls else ():
            work.wait()
        return received

    def _call(self, what: Any, x: Tensor, rank: int) -> Any:
        return dist.P2POp(what, x, dist.get_global_rank(self.group, rank), self.group)

    def _all_to_all(self, x: Tensor) -> Tensor:
        received = torch.empty_like(x, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, x.contiguous(), group=self.group)
        self.sent += x.numel() * x.element_size() * (self.count - 1) // self.count
        return received


class _Shift(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange, by: int) -> Tensor:
        ctx.how = (exchange, by)
        return exchange._shift(x, by)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        exchange, by = ctx.how
        return exchange.shift(g, -by), None, None


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        return exchange._all_to_all(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return ctx.exchange.all_to_all(g), None
