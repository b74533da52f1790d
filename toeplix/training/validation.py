"""The validation loss, in nats per token and in bits per byte."""

import math

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
        if run.protocol == "packed":
            rows = Packed(store.val, context=run.model.context, remainder=True)
        else:
            rows = Padded(store.val, context=run.model.context)
        self.rows, self.size, self.processes = rows, run.batch, processes
        self.count = min(run.eval_sequences, len(rows))
        self.bytes = _label_bytes(store)

    @torch.no_grad()
    def evaluate(self, objective: Objective) -> dict[str, float]:
        """Return val_loss, val_perplexity and val_bits_per_byte over all labels of all sequences."""
        nats, labels, size = 0.0, 0, 0.0
        objective.eval()
        for begin in range(0, self.count, self.processes.count * self.size):
            first = begin + self.processes.rank * self.size
            # weights may be sharded, so all processes must compute, even if a batch is not counted
            batch = self._batch(first if first < self.count else 0)
            found = float(objective(**moved(batch, self.processes.device)))
            if first >= self.count:
                continue
            nats += found
            real = batch["labels"][batch["labels"] != IGNORED]
            labels, size = labels + len(real), size + float(self.bytes[real].sum())
        objective.train()
        nats, count, size = self.processes.total(nats, labels, size)
        loss = nats / count
        return {
            "val_loss": loss,
            "val_perplexity": math.exp(min(loss, MAX_EXPONENT)),
            "val_bits_per_byte": nats / math.log(2) / max(size, 1.0),
        }

    def _batch(self, first: int) -> Batch:
        chosen = range(first, min(first + self.size, self.count))
        return type(self.rows).collate([self.rows[index] for index in chosen])


def _label_bytes(store: Store) -> torch.Tensor:
    """Return the bytes of text of each token; the mean if the tokenizer is not byte-level."""
    if store.tokenizer.byte_level:
        return torch.from_numpy(store.tokenizer.token_bytes()).double()
    split = store.val
    share = split.bytes_of() / max(1, len(split.tokens) - len(split))
    return torch.full((store.vocab,), share, dtype=torch.float64)
