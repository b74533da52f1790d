"""The processes that train one model: those started by `torchrun`, or a single one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Rank of this process, number of processes, and device.

    `sequence` consecutive ranks divide the sequences of the same rows; such groups are data parallel.
    """

    rank: int = 0
    count: int = 1
    device: torch.device
    sequence: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    @property
    def data_rank(self) -> int:
        """Which part of the rows of a step this process reads."""
        return self.rank // self.sequence

    @property
    def data_count(self) -> int:
        """Into how many parts the rows of a step are divided."""
        return self.count // self.sequence

    @property
    def counts_rows(self) -> bool:
        """Whether this process counts the labels of its rows: one of those that have the same rows."""
        return self.rank % self.sequence == 0

    def grouped(self, sequence: int) -> "Processes":
        """Return the same processes, `sequence` of which divide a sequence."""
        return replace(self, sequence=sequence)

    def sequence_group(self) -> Any:
        """Return the process group of those that divide a sequence; all processes have to call this."""
        from torch.distributed.device_mesh import init_device_mesh

        shape, names = (self.data_count, self.sequence), ("data", "sequence")
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=names)
        group = mesh["sequence"].get_group()
        _groups.append(group)
        return group

    def total(self, *values: float) -> list[float]:
        """Return the sum of each value over all processes."""
        if self.count == 1:
            return list(values)
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        sums = torch.tensor(values, dtype=kind, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.count > 1:
            self.total(0.0)


# Process groups are kept until the process ends: when DDP held the last reference to its group, one run
# in three was seen to hang at its end, waiting for the threads of the group.
_groups: list[Any] = []


def _meeting() -> dict[str, Any]:
    """Return the arguments with which `init_process_group` finds the other processes.

    When torchrun restarts processes, its store still has the addresses of the old ones, and a process
    that reads too early connects to them. So keys get a prefix per restart; only on one machine, where
    all processes have the same restart count.
    """
    life = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if life is None or os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]:
        return {}
    store, rank, count = next(rendezvous("env://"))
    own = dist.PrefixStore(f"life-{life}", store)  # type: ignore[attr-defined]
    return {"store": own, "rank": rank, "world_size": count}


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the process group for the duration of the block."""
    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield Processes(device=device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    begun = not dist.is_initialized()
    if begun:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **_meeting())
        _groups.append(dist.group.WORLD)
    try:
        yield Processes(rank=dist.get_rank(), count=dist.get_world_size(), device=device)
    finally:
        if begun:
            dist.destroy_process_group()
