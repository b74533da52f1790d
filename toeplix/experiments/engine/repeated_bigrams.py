"""Validation loss split into tokens that repeat an earlier bigram of their document, and others.

    a b c a [b] d        the second b repeats the bigram "a b"

A token counts as repeated if it and the token before it occurred side by side earlier in its document and
in the same sequence, so that a model can look it up in its input. As in zoology (Arora et al. 2023), the
loss on these tokens measures recall in natural text; that on the others, what is known of the language.
"""

from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from toeplix.config import IGNORED
from toeplix.data import Store
from toeplix.data.sequences import Batch
from toeplix.training.loss import vocabulary_loss
from toeplix.training.run import Run


class SplitLoss(TypedDict):
    """Losses in nats per token; None if there are no such tokens."""

    repeated: float | None
    other: float | None
    repeated_fraction: float  # of all scored tokens


def repeated(batch: Batch) -> Bool[Tensor, "b t"]:
    """Return which labels end a bigram that occurred earlier in the same document of the sequence.

    >>> tokens, labels = torch.tensor([[1, 2, 3, 1]]), torch.tensor([[2, 3, 1, 2]])
    >>> repeated({"tokens": tokens, "labels": labels, "offsets": torch.tensor([0, 4])})
    tensor([[False, False, False,  True]])
    >>> repeated({"tokens": tokens, "labels": labels, "offsets": torch.tensor([0, 3, 4])})
    tensor([[False, False, False, False]])
    """
    tokens, labels = batch["tokens"].numpy(), batch["labels"].numpy()
    if "offsets" in batch:  # packed: one row, documents one after the other
        starts = np.zeros(tokens.shape[1], dtype=np.int64)
        starts[batch["offsets"].numpy()[1:-1]] = 1
        documents = np.cumsum(starts)[None]
    else:
        documents = np.repeat(np.arange(len(tokens))[:, None], tokens.shape[1], 1)
    bigrams = np.stack([documents.ravel(), tokens.ravel(), labels.ravel()])
    _, first, which = np.unique(bigrams, axis=1, return_index=True, return_inverse=True)
    again = first[which.ravel()] != np.arange(tokens.size)
    return torch.from_numpy(again.reshape(tokens.shape) & (labels != IGNORED))


@torch.no_grad()
def split_loss(run: Run, folder: Path) -> SplitLoss:
    """Return the losses of a trained model on the reported validation sequences of its run."""
    from toeplix.checkpoint import load
    from toeplix.training.objective import Objective
    from toeplix.training.processes import joined
    from toeplix.training.validation import Validation

    nats, counts = {True: 0.0, False: 0.0}, {True: 0, False: 0}
    with joined() as processes:
        objective = Objective(load(folder / "model").to(processes.device), run.precision).eval()
        validation = Validation(run, Store.open(run.data), processes)
        for batch in validation.batches():
            again = repeated(batch)
            tokens = batch["tokens"].to(processes.device)
            features, labels = objective.compute(
                tokens, batch["labels"], batch.get("mask"), batch.get("offsets")
            )
            for kind in (True, False):
                chosen = labels.masked_fill(again if not kind else ~again, IGNORED)
                loss, count = vocabulary_loss(features, objective.model.head, chosen)
                nats[kind] += float(loss)
                counts[kind] += count
    means = {kind: round(nats[kind] / counts[kind], 5) if counts[kind] else None for kind in nats}
    total = counts[True] + counts[False]
    return {
        "repeated": means[True],
        "other": means[False],
        "repeated_fraction": round(counts[True] / total, 4),
    }
