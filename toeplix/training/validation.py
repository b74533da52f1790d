"""The validation loss, in nats per token and in bits per byte."""

import math
from collections.abc import Iterator

import torch

from toeplix.config import IGNORED
from toeplix.data import Packed, Padded, Sequences, Store
from toeplix.training.batches import Batch, moved
from toeplix.training.objective import Objective
from toeplix.training.processes import Processes
from toeplix.training.run import Run

MAX_EXPONENT = 700.0  # of a perplexity: exp of more is no float


class Validation:
    """A fixed set of `eval_sequences` validation sequences, divided among the processes."""

    def __init__(self, run: Run, store: Store, processes: Processes) -> None:
        rows: Sequences
        split = store.val if run.val_documents == "all" else store.val.alternate(run.val_documents)
        if run.protocol == "packed":
            rows = Packed(split, context=run.model.context, remainder=True)
        else:
            rows = Padded(split, context=run.model.context)
        self.rows, self.size, self.processes = rows, run.batch, processes
        self.count = min(run.eval_sequences, len(rows))
        self.bytes = label_bytes(store)

    @torch.no_grad()
    def evaluate(self, objective: Objective) -> dict[str, float]:
        """Return val_loss, val_perplexity and val_bits_per_byte over all labels of all sequences."""
        losses, labels, size = [], 0, 0.0
        objective.eval()
        for begin in range(0, self.count, self.processes.data_count * self.size):
            first = begin + self.processes.data_rank * self.size
            # weights may be sharded, so all processes must compute, even if a batch is not counted
            batch = self._batch(first if first < self.count else 0)
            loss = objective(**moved(batch, self.processes.device))
            if first >= self.count:
                continue
            losses.append(loss)
            if not self.processes.counts_rows:
                continue
            real = batch["labels"][batch["labels"] != IGNORED]
            labels, size = labels + len(real), size + float(self.bytes[real].sum())
        objective.train()
        # read once, when all are computed
        own = sum(torch.stack(losses).tolist()) if losses else 0.0
        nats, count, size = self.processes.total(own, labels, size)
        mean = nats / count
        return {
            "val_loss": mean,
            "val_perplexity": math.exp(min(mean, MAX_EXPONENT)),
            "val_bits_per_byte": nats / math.log(2) / max(size, 1.0),
        }

    def batches(self) -> Iterator[Batch]:
        """Yield all batches, without regard to the number of processes."""
        for first in range(0, self.count, self.size):
            yield self._batch(first)

    def _batch(self, first: int) -> Batch:
        chosen = range(first, min(first + self.size, self.count))
        return type(self.rows).collate([self.rows[index] for index in chosen])


def label_bytes(store: Store) -> torch.Tensor:
    """Return the bytes of text of each token; the mean if the tokenizer is not byte-level."""
    if store.tokenizer.byte_level:
        return torch.from_numpy(store.tokenizer.token_bytes()).double()
    split = store.val
    share = split.bytes_of() / max(1, len(split.tokens) - len(split))
    return torch.full((store.vocab,), share, dtype=torch.float64)
