"""Log-likelihoods of continuations, with as few computed positions as possible.

    score(model, [(context, continuation), ...]) -> [(log p(continuation | context), greedy?), ...]

    families    all continuations of one context: the context is prefilled once, then each continuation
                starts from a copy of the state; continuations of one token need only the context
    batches     families of similar length; the tokens by which a context is longer than the shortest
                are computed with its continuations, so there is no padding before a scored position
    logits      computed at scored positions only

Every row starts at position 0 and padding comes last, so a result does not depend on the other rows of
its batch, beyond rounding.
"""

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.architectures import ARCHITECTURES
from toeplix.model import LanguageModel

Pair = tuple[Sequence[int], Sequence[int]]
POSITIONS = 8192  # of a batch, if its size is automatic
SPREAD = 4  # tokens by which contexts of one batch may differ
MAX_LOGITS = 2**24  # entries of a matrix of logits


@dataclass
class Family:
    """A context, and for each distinct input the continuations that are scored on it."""

    context: tuple[int, ...]
    branches: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        return len(self.branches) == 1

    @property
    def shared(self) -> int:
        """The number of positions that are computed once; the context's last belongs to the branches."""
        return 0 if self.alone else len(self.context) - 1


@torch.no_grad()
def score(
    model: LanguageModel,
    pairs: Sequence[Pair],
    *,
    batch: int | None = None,
    done: Callable[[int], object] = lambda count: None,
) -> list[tuple[float, bool]]:
    """Return the log-likelihood of each continuation, and whether greedy decoding would generate it.

    Args:
        model: any architecture.
        pairs: tokens of (context, continuation), each of at least one token.
        batch: contexts in a batch; None: about 8192 positions in each batch.
        done: called with the number of pairs that have just been scored.
    """
    results: list[tuple[float, bool]] = [(math.nan, False)] * len(pairs)
    for group in batches(families(model, pairs), batch):
        features: list[Tensor] = []
        targets: list[int] = []
        sizes: list[tuple[int, int]] = []
        for rows, encoded in _branches(model, group):
            for row, (inputs, scored) in enumerate(rows):
                last = len(inputs)
                for number, continuation in scored:
                    features.append(encoded[row, last - len(continuation) : last])
                    targets += continuation
                    sizes.append((number, len(continuation)))
        for (number, _), result in zip(
            sizes, _scored(model, features, targets, sizes), strict=True
        ):
            results[number] = result
        done(len(sizes))
    return results


def families(model: LanguageModel, pairs: Sequence[Pair]) -> list[Family]:
    """Return pairs grouped by context, if continuing from a state is cheap for the model."""
    # Mamba 2 continues from a state one position at a time: computing the context again is faster
    together = ARCHITECTURES[model.config.arch].extends_state
    found: dict[tuple[object, ...], Family] = {}
    for number, (context, continuation) in enumerate(pairs):
        if len(context) == 0:
            raise ValueError(f"pair {number} has an empty context: give at least one token")
        if len(continuation) == 0:
            raise ValueError(f"pair {number} has an empty continuation: there is nothing to score")
        start, rest = tuple(context), tuple(continuation)
        inputs = (start + rest)[:-1]
        key = start if together or len(rest) == 1 else inputs
        family = found.setdefault(key, Family(start))
        family.branches.setdefault(inputs, []).append((number, rest))
    return list(found.values())


def batches(families: Sequence[Family], size: int | None) -> Iterator[list[Family]]:
    """Yield batches of families, the longest first: with branches by context, without by input."""
    kinds: dict[bool, list[Family]] = defaultdict(list)
    for family in families:
        kinds[family.alone].append(family)
    for alone, members in kinds.items():
        length = {id(m): len(next(iter(m.branches))) if alone else len(m.context) for m in members}
        members.sort(key=lambda m: (-length[id(m)], m.context))
        group: list[Family] = []
        for member in members:
            full = size is not None and len(group) == size
            if group and size is None:
                full = (len(group) + 1) * length[id(group[0])] > POSITIONS
            apart = group and not alone and length[id(group[0])] - length[id(member)] > SPREAD
            if full or apart:
                yield group
                group = []
            group.append(member)
        if group:
            yield group


Branch = tuple[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]


def _branches(
    model: LanguageModel, group: list[Family]
) -> Iterator[tuple[list[Branch], Float[Tensor, "b t d"]]]:
    """Yield for each pass the inputs after the shared prefix, and their features."""
    device = next(model.parameters()).device
    start = min(family.shared for family in group)
    # a pass takes one branch of every family, the longest of each first: like with like
    ordered = [
        sorted(family.branches.items(), key=lambda item: (-len(item[0]), item[0]))
        for family in group
    ]
    passes = max(map(len, ordered))
    state = None
    if start:
        contexts = torch.tensor([family.context[:start] for family in group], device=device)
        _, state = model.advance(contexts, model.start())
    for turn in range(passes):
        rows: list[Branch] = [
            (items[turn][0][start:], items[turn][1]) if turn < len(items) else ((), [])
            for items in ordered
        ]
        width = max(1, *(len(inputs) for inputs, _ in rows))
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        for row, (inputs, _) in enumerate(rows):
            tokens[row, : len(inputs)] = torch.tensor(inputs)
        tokens = tokens.to(device)
        if state is None:
            yield rows, model.features(tokens)
        else:
            branch = copy.deepcopy(state) if turn < passes - 1 else state
            yield rows, model.advance(tokens, branch)[0]


def _scored(
    model: LanguageModel,
    features: list[Tensor],
    targets: list[int],
    sizes: list[tuple[int, int]],
) -> list[tuple[float, bool]]:
    every = torch.cat(features)
    wanted = torch.tensor(targets, device=every.device)
    logprobs, best = [], []
    step = max(1, MAX_LOGITS // model.config.vocab)
    for part, target in zip(every.split(step), wanted.split(step), strict=True):
        logits = model.logits(part[None])[0].float()
        chosen = logits.gather(1, target[:, None])[:, 0]
        most = logits.amax(1)
        best.append(chosen == most)
        # in place: the matrix is large, and read from memory once more for every copy
        total = logits.sub_(most[:, None]).exp_().sum(1)
        logprobs.append(chosen - most - total.log())
    counts = [count for _, count in sizes]
    # in float64, so that long texts do not lose the digits of the last tokens
    sums = [part.sum() for part in torch.cat(logprobs).double().split(counts)]
    greedy = [part.all() for part in torch.cat(best).split(counts)]
    return list(zip(torch.stack(sums).tolist(), torch.stack(greedy).tolist(), strict=True))
