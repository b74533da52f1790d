"""Training sequences from a store, as functions of (seed, epoch, index), so that a run resumes exactly.

    Padded   a document a row, cut at the context, padded on the right: the paper's protocol
    Packed   documents end to end in a shuffled order, cut into rows of `context` positions

A position is a pair: a token and, as its label, the next token of the same document. A document of n
tokens (with its start and end token) has n - 1 positions, so no label comes from another document, and
each token but the first is predicted exactly once. `Packed` uses every position of an epoch except the
last `len(positions) % context`. If a sequence ends inside a document, the next sequence starts with the
rest of it, without the earlier tokens.

Sequences of `Packed` are shuffled once more, so that the pieces of a long document are not in one batch.
Batches, for `model(batch["tokens"], mask=..., offsets=...)`:

    Padded.collate     tokens, labels, mask (b, t); labels are -100 at pads
    Packed.collate   tokens, labels (1, b t) and offsets: all rows end to end, documents told apart
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from toeplix.config import IGNORED
from toeplix.data.shuffling import shuffled
from toeplix.data.store import Split

Batch = dict[str, Tensor]


class Sequences(Dataset[Batch], ABC):
    """The training sequences of a split, by index; `set_epoch` (which trainers call) reshuffles them.

    `shuffle=False` keeps the order of the store, for evaluation.
    """

    collate: Callable[[list[Batch]], Batch]
    epoch: int

    def __init__(
        self, split: Split, *, context: int, seed: int = 0, epoch: int = 0, shuffle: bool = True
    ) -> None:
        if context < 1:
            raise ValueError(f"context={context} must be at least 1")
        if not len(split):
            raise ValueError(
                f"the split {split.name!r} has no documents: build the store with a larger --val-fraction"
            )
        self.split, self.context, self.seed, self.shuffle = split, context, seed, shuffle
        self.set_epoch(epoch)

    @abstractmethod
    def set_epoch(self, epoch: int) -> None: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Batch: ...

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.set_epoch(self.epoch)  # recomputed instead of pickled

    def _order(self, count: int, epoch: int, salt: int) -> NDArray[Any]:
        order = shuffled(count, self.seed, epoch, salt) if self.shuffle else np.arange(count)
        return order.astype(np.uint32 if count <= 2**32 else np.int64)  # half the memory

    def _checked(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return index % len(self)


class Padded(Sequences):
    """tokens, labels and mask (t,) of one document, t the context."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._documents = self._order(len(self.split), epoch, 0)

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> Batch:
        document = self.split.document(int(self._documents[self._checked(index)]))
        length = min(len(document) - 1, self.context)
        tokens = np.full(self.context, self.split.pad, np.int64)
        labels = np.full(self.context, IGNORED, np.int64)
        tokens[:length], labels[:length] = document[:length], document[1 : length + 1]
        mask = torch.arange(self.context) < length
        return {
            "tokens": torch.from_numpy(tokens),
            "labels": torch.from_numpy(labels),
            "mask": mask,
        }

    @staticmethod
    def collate(rows: list[Batch]) -> Batch:
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


class Packed(Sequences):
    """Packed sequences: tokens and labels (t,), and offsets (n,) of the documents in the sequence.

    With `remainder` the last sequence of the epoch may be shorter, and no position is left out.
    """

    def __init__(
        self,
        split: Split,
        *,
        context: int,
        seed: int = 0,
        epoch: int = 0,
        shuffle: bool = True,
        remainder: bool = False,
    ) -> None:
        self.positions = len(split.tokens) - len(split)
        self.remainder = remainder
        if split and not remainder and self.positions < context:
            raise ValueError(
                f"the split {split.name!r} has {self.positions} positions, less than a row of "
                f"context={context}: take a shorter context or more text"
            )
        super().__init__(split, context=context, seed=seed, epoch=epoch, shuffle=shuffle)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._documents = self._order(len(self.split), epoch, 0)
        lengths = np.diff(self.split.offsets)[self._documents] - 1
        self._ends = np.cumsum(lengths)  # ends of documents, in positions of the epoch
        self._rows = self._order(len(self), epoch, 1)

    def __len__(self) -> int:
        return (self.positions + (self.context - 1 if self.remainder else 0)) // self.context

    def __getitem__(self, index: int) -> Batch:
        first = int(self._rows[self._checked(index)]) * self.context
        last = min(first + self.context, self.positions)
        tokens, labels = np.empty(last - first, np.int64), np.empty(last - first, np.int64)
        offsets, filled = [0], 0
        place = int(np.searchsorted(self._ends, first, side="right"))
        while filled < last - first:
            document = int(self._documents[place])
            begin, end = self.split.offsets[document : document + 2].tolist()
            # the rest of the document; only the first document of the sequence may be incomplete
            begin = end - 1 - (int(self._ends[place]) - first - filled)
            count = min(end - 1 - begin, last - first - filled)
            piece = self.split.tokens[begin : begin + count + 1]
            tokens[filled : filled + count], labels[filled : filled + count] = piece[:-1], piece[1:]
            filled += count
            offsets.append(filled)
            place += 1
        return {
            "tokens": torch.from_numpy(tokens),
            "labels": torch.from_numpy(labels),
            "offsets": torch.tensor(offsets),
        }

    @staticmethod
    def collate(rows: list[Batch]) -> Batch:
        flat = {name: torch.cat([row[name] for row in rows])[None] for name in ("tokens", "labels")}
        offsets, base = [torch.zeros(1, dtype=torch.int64)], 0
        for row in rows:
            offsets.append(row["offsets"][1:] + base)
            base += len(row["tokens"])
        return flat | {"offsets": torch.cat(offsets)}
