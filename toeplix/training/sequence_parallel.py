"""Sequence parallelism: the positions of every document are divided among processes.

    --parallel sequence         weights are replicated, as with ddp
    --parallel sequence+fsdp    weights, gradients and optimizer state are sharded over all processes

`sequence_processes` consecutive ranks form one group and divide the same rows (0: all processes do);
groups are data parallel. Documents of similar length form batches (toeplix/ops/documents.py), and process
r of S takes the positions r t .. (r + 1) t of each, where S t is the length of a batch rounded up to a
multiple of S. Mixers exchange what they need (toeplix/ops/sequence_parallel.py). Every process has the
tokens of its rows, 16 bytes per position with labels, but activations of its own positions only.

Losses and gradients are sums over positions, so averaging gradients over all processes is the same as
with data parallelism.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from toeplix.config import IGNORED
from toeplix.model import LanguageModel
from toeplix.ops import documents
from toeplix.ops.exchange import Exchange
from toeplix.ops.sequence_parallel import DividedSequence
from toeplix.training.objective import Objective
from toeplix.training.processes import Processes
from toeplix.training.run import Run


def divided_processes(run: Run, processes: Processes) -> Processes:
    """Return the processes with the number of them that divide a sequence."""
    if not run.divides_sequences:
        return processes
    each = run.sequence_processes or processes.count
    if processes.count % each:
        raise ValueError(
            f"sequence_processes={each} does not divide the {processes.count} processes that were "
            "started: choose a divisor, or start a multiple"
        )
    return processes.grouped(each)


def objective_of(model: LanguageModel, run: Run, processes: Processes) -> Objective:
    """Return the objective of whole sequences, or of this process's positions of them."""
    if processes.sequence == 1:
        return Objective(model, run.precision)
    return DividedObjective(model, run.precision, Exchange(processes.sequence_group()))


class DividedObjective(Objective):
    """Maps a batch to the sum of the losses of the positions that this process holds, in nats."""

    def __init__(self, model: LanguageModel, precision: str, exchange: Exchange) -> None:
        super().__init__(model, precision)
        self.exchange = exchange
        model.divide(DividedSequence(exchange))

    def take_sent_bytes(self) -> int:
        sent, self.exchange.sent = self.exchange.sent, 0
        return sent

    def parts(
        self,
        tokens: Int[Tensor, "b t"],
        labels: Int[Tensor, "b t"],
        mask: Bool[Tensor, "b t"] | None,
        offsets: Int[Tensor, " n"] | None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return this process's tokens and labels of every batch of documents, `(rows, time)`.

        Positions are computed where the labels are: on the host, which then waits for nothing.
        """
        count, rank = self.exchange.count, self.exchange.rank
        if mask is None and offsets is None:
            mask = torch.ones_like(labels, dtype=torch.bool)
        rows, scored = list[Tensor](), list[Tensor]()
        for group in documents.document_groups(labels, mask, offsets):
            positions = documents.row_positions(group)
            missing = -positions.shape[1] % count
            positions = torch.cat([positions, positions[:, -1:].expand(-1, missing)], 1)
            real = pad(group.real, (0, missing))
            time = positions.shape[1] // count
            own = slice(rank * time, (rank + 1) * time)
            held = positions[:, own]
            rows.append(tokens.flatten()[held.to(tokens.device, non_blocking=True)])
            scored.append(labels.flatten()[held].masked_fill(~real[:, own], IGNORED))
        return rows, scored

    def compute(
        self, tokens: Tensor, labels: Tensor, mask: Tensor | None, offsets: Tensor | None
    ) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
        """Return the features of the positions that this process holds, and their labels."""
        rows, scored = self.parts(tokens, labels, mask, offsets)
        features = [each.flatten(0, 1) for each in self.model.features_of(rows)]
        return torch.cat(features), torch.cat([each.flatten() for each in scored])
