"""Validation loss split into tokens that repeat an earlier bigram of their document, and others.

    a b c a [b] d        the second b repeats the bigram "a b"

A token counts as repeated if it and the token before it occurred side by side earlier in its document and
in the same sequence, so that a model can look it up in its input. Many of these bigrams are frequent in
the language, and a model predicts them without looking anything up. Zoology (Arora et al. 2023) therefore
counts only bigrams that are rare in training, at most 1,250 times in 10 billion tokens with a vocabulary
of 50,257: the loss on them measures recall in natural text. Rows have both: all repeated bigrams, and the
rare ones among them, with a bound that is scaled to the corpus (`max_seen`).
"""

from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from toeplix.config import IGNORED
from toeplix.data import Store
from toeplix.data.sequences import Batch
from toeplix.experiments.engine import corpora
from toeplix.training.loss import vocabulary_loss
from toeplix.training.run import Run

RARE_SHARE = 1250 * 50_257 / 10**10  # of the occurrences of an average token; zoology's


class SplitLoss(TypedDict):
    """Losses in nats per token; None if there are no such tokens."""

    repeated: float | None
    other: float | None
    repeated_fraction: float  # of all scored tokens
    rare_repeated: NotRequired[float | None]  # not in older rows, as the fields below
    rare_repeated_fraction: NotRequired[float]
    max_seen: NotRequired[int]  # times that a rare bigram occurs in the training tokens at most


def max_seen(tokens: int, vocab: int) -> int:
    """Return how often a bigram may occur in training and still count as rare.

    Zoology's bound is 0.63% of the occurrences of an average token (tokens / vocabulary), so after an
    average token a rare bigram has a probability of at most 0.63%. This share is kept, and not that of
    all tokens: with a small vocabulary every bigram is more frequent, and nothing would be rare. A bigram
    that occurs once always counts as rare.

    >>> max_seen(10**10, 50_257), max_seen(8_192_000, 1000), max_seen(307_200, 2000)
    (1250, 51, 1)
    """
    return max(1, round(RARE_SHARE * tokens / vocab))


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
    """Return the losses of a trained model on the reported validation sequences of its run.

    How often a bigram occurs in training is counted in a random sample of as many training tokens as the
    model has read (`corpora.sampled`).
    """
    from toeplix.checkpoint import load
    from toeplix.training.objective import Objective
    from toeplix.training.processes import joined
    from toeplix.training.validation import Validation

    read = run.steps * run.batch * run.grad_accum_steps * run.model.context
    known = corpora.bigram_counts(Path(run.data), read)
    bound = max_seen(int(known.single.sum()), known.vocab)
    kinds = ("repeated", "other", "rare_repeated")
    nats, counts = dict.fromkeys(kinds, 0.0), dict.fromkeys(kinds, 0)
    with joined() as processes:
        objective = Objective(load(folder / "model").to(processes.device), run.precision).eval()
        validation = Validation(run, Store.open(run.data), processes)
        for batch in validation.batches():
            again = repeated(batch)
            bigrams = batch["tokens"].long() * known.vocab + batch["labels"].clamp(min=0)
            rare = torch.from_numpy(known.of(bigrams.numpy()) <= bound)
            chosen = dict(zip(kinds, (again, ~again, again & rare), strict=True))
            tokens = batch["tokens"].to(processes.device)
            features, labels = objective.compute(
                tokens, batch["labels"], batch.get("mask"), batch.get("offsets")
            )
            for kind in kinds:
                wanted = labels.masked_fill(~chosen[kind].to(labels.device), IGNORED)
                loss, count = vocabulary_loss(features, objective.model.head, wanted)
                nats[kind] += float(loss)
                counts[kind] += count
    means = {kind: round(nats[kind] / counts[kind], 5) if counts[kind] else None for kind in nats}
    total = counts["repeated"] + counts["other"]
    return {
        "repeated": means["repeated"],
        "other": means["other"],
        "repeated_fraction": round(counts["repeated"] / total, 4),
        "rare_repeated": means["rare_repeated"],
        "rare_repeated_fraction": round(counts["rare_repeated"] / total, 4),
        "max_seen": bound,
    }
