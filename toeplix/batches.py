"""Batches of a run: a function of (seed, step), so that nothing is replayed to go on.

Rows are numbered through all epochs. A step takes the next `accumulate x processes x batch` of them;
process p its share of each part, so several processes see what one with a larger batch sees.
"""

import hashlib

import numpy as np
import torch

from toeplix.data import Packed, Rows, Sequences, Store
from toeplix.run import Run

KINDS: dict[str, type[Sequences]] = {"packed": Packed, "rows": Rows}
Batch = dict[str, torch.Tensor]


class Batches:
    """Of the training split."""

    def __init__(self, run: Run, store: Store, rank: int, processes: int) -> None:
        kind = KINDS[run.protocol]
        order = run.seed if run.data_seed < 0 else run.data_seed
        self.rows = kind(store.train, context=run.model.context, seed=order)
        self.batch, self.parts = run.batch, run.accumulate
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


def moved(batch: Batch, device: torch.device) -> Batch:
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}


def digest(batches: list[Batch]) -> str:
    """Sixteen letters that name what a step saw."""
    seen = hashlib.sha256()
    for batch in batches:
        seen.update(np.ascontiguousarray(batch["tokens"].numpy()).tobytes())
    return seen.hexdigest()[:16]
