"""Batches of a run as a function of (seed, step), so that a resumed run need not replay earlier batches.

Sequences are numbered consecutively over all epochs. A step takes the next
`grad_accum_steps x processes x batch` of them. In each gradient accumulation step every process takes its
part, so several processes train on the same sequences as one process with a larger batch. While a step is
computed, a thread prepares the batches of the next one (`Ahead`).
"""

import hashlib
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import numpy as np
import torch

from toeplix.data import Packed, Padded, Sequences, Store
from toeplix.training.objective import OnHost
from toeplix.training.run import Run

KINDS: dict[str, type[Sequences]] = {"packed": Packed, "padded": Padded}
Batch = dict[str, torch.Tensor]


class Batches:
    """The batches of the training split that one process computes."""

    def __init__(self, run: Run, store: Store, rank: int, processes: int) -> None:
        kind = KINDS[run.protocol]
        order = run.seed if run.data_seed < 0 else run.data_seed
        self.rows = kind(store.train, context=run.model.context, seed=order)
        self.batch, self.parts = run.batch, run.grad_accum_steps
        self.rank, self.processes = rank, processes
        self.cancelled = threading.Event()

    def of(self, step: int) -> list[Batch]:
        """Return the batches of a step (counted from 0), one per gradient accumulation step."""
        first = step * self.parts * self.processes
        return [
            self._batch((first + part * self.processes + self.rank) * self.batch)
            for part in range(self.parts)
        ]

    def _batch(self, first: int) -> Batch:
        found = []
        for number in range(first, first + self.batch):
            if self.cancelled.is_set():
                raise CancelledError
            epoch, index = divmod(number, len(self.rows))
            if epoch != self.rows.epoch:
                self.rows.set_epoch(epoch)
            found.append(self.rows[index])
        return type(self.rows).collate(found)


class Ahead:
    """Prefetches the batches of the next step in a thread, and measures the waiting time of each step."""

    def __init__(self, batches: Batches, steps: int) -> None:
        self._batches, self._steps = batches, steps
        self._thread = ThreadPoolExecutor(1, "toeplix-batches")
        self._next: tuple[int, Future[list[Batch]]] | None = None

    def of(self, step: int) -> tuple[list[Batch], float]:
        """Return the batches of a step, as `Batches.of` does, and the seconds spent waiting for them."""
        start = time.monotonic()
        known, future = self._next or (-1, None)
        if future is None or known != step:
            future = self._thread.submit(self._batches.of, step)
        found = future.result()
        waited = time.monotonic() - start
        if step + 1 < self._steps:
            self._next = step + 1, self._thread.submit(self._batches.of, step + 1)
        return found, waited

    def close(self) -> None:
        """Also of a batch that is being made: the process cannot end before the thread does."""
        self._batches.cancelled.set()
        self._thread.shutdown(wait=False, cancel_futures=True)


def moved(batch: Batch, device: torch.device) -> dict[str, torch.Tensor | OnHost]:
    """Return the arguments of an `Objective`: tokens on the device, what decides shapes on the host."""
    own: dict[str, torch.Tensor | OnHost] = {k: OnHost(v) for k, v in batch.items()}
    return own | {"tokens": batch["tokens"].to(device, non_blocking=True)}


def digest(batches: list[Batch]) -> str:
    """Return a hash of the tokens of several batches, 16 hexadecimal digits."""
    seen = hashlib.sha256()
    for batch in batches:
        seen.update(np.ascontiguousarray(batch["tokens"].numpy()).tobytes())
    return seen.hexdigest()[:16]
