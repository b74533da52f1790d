"""Several processes that train one model, as `torchrun` starts them; or just this one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Which of how many this one is, and where it computes."""

    rank: int = 0
    count: int = 1
    device: torch.device

    @property
    def first(self) -> bool:
        """The one that writes and speaks."""
        return self.rank == 0

    def total(self, *values: float) -> list[float]:
        """The sum of each over all processes."""
        if self.count == 1:
            return list(values)
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        sums = torch.tensor(values, dtype=kind, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def wait(self) -> None:
        """Until all processes are here."""
        if self.count > 1:
            self.total(0.0)


# Kept to the end of the process: where DDP was the last to let go of its group, one run in three was
# seen to hang at its end, waiting for the group's threads.
_groups: list[Any] = []


def _meeting() -> dict[str, Any]:
    """Where processes find each other.

    When torchrun starts processes again, the addresses of the dead are still in its store, and who reads
    too early calls there. So every life has names of its own; on one machine, where all count alike.
    """
    life = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if life is None or os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]:
        return {}
    store, rank, count = next(rendezvous("env://"))
    own = dist.PrefixStore(f"life-{life}", store)  # type: ignore[attr-defined]
    return {"store": own, "rank": rank, "world_size": count}


@contextmanager
def joined() -> Iterator[Processes]:
    """Meet the other processes, and part from them in the end."""
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
