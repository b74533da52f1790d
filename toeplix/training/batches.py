"""Batches of a run: a function of (seed, step), so that nothing is replayed to go on.

Rows are numbered through all epochs. A step takes the next `accumulate x processes x batch` of them;
process p its share of each part, so several processes see what one with a larger batch sees.
While a step computes, a thread makes the batches of the next one (`Ahead`).
"""

import hashlib
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from toeplix.data import Packed, Padded, Sequences, Store
from toeplix.training.run import Run

KINDS: dict[str, type[Sequences]] = {"packed": Packed, "padded": Padded}
Batch = dict[str, torch.Tensor]


class Batches:
    """Of the training split."""

    def __init__(self, run: Run, store: Store, rank: int, processes: int) -> None:
        kind = KINDS[run.protocol]
        order = run.seed if run.data_seed < 0 else run.data_seed
        self.rows = kind(store.train, context=run.model.context, seed=order)
        self.batch, self.parts = run.batch, run.grad_accum_steps
        self.rank, self.processes = rank, processes

    def of(self, step: int) -> list[Batch]:
        """What this process does in a step (from 0), a batch for each part of it."""
        first = step * self.parts * self.processes
        return [
            self._batch((first + part * self.processes + self.rank) * self.batch)
            for part in range(self.parts)
        ]

    def _batch(self, first: int) -> Batch:
        found = []
        for number in range(first, first + self.batch):
            epoch, index = divmod(number, len(self.rows))
            if epoch != self.rows.epoch:
                self.rows.set_epoch(epoch)
            found.append(self.rows[index])
        return type(self.rows).collate(found)


class Ahead:
    """Batches of step after step, and how long each step had to wait for them."""

    def __init__(self, batches: Batches, steps: int) -> None:
        self._batches, self._steps = batches, steps
        self._thread = ThreadPoolExecutor(1, "toeplix-batches")
        self._next: tuple[int, Future[list[Batch]]] | None = None

    def of(self, step: int) -> tuple[list[Batch], float]:
        """What `Batches.of` gives, and the seconds that this took."""
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
        self._thread.shutdown(wait=False, cancel_futures=True)


def moved(batch: Batch, device: torch.device) -> Batch:
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}


def digest(batches: list[Batch]) -> str:
    """Sixteen letters that name what a step saw."""
    seen = hashlib.sha256()
    for batch in batches:
        seen.update(np.ascontiguousarray(batch["tokens"].numpy()).tobytes())
    return seen.hexdigest()[:16]
