"""The rows that are being decoded, which come and go while others are in the middle of theirs.

    Together    one state for all rows, each at its own position; a step reads the weights once
    Apart       a state for each row, stepped one after the other

`batch(model, life)` takes the first for the architectures built here, the second for Hugging Face's,
whose caches hold one position for all rows. Either way a row gives what it gives alone, but for rounding.
"""

import copy
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.model import LanguageModel, MixerLM, MixerState
from toeplix.ops.checks import check_rows


class Batch(ABC):
    """Rows in the order in which they were added."""

    chunk = 512  # positions of a prompt that are read between two steps

    def __init__(self, model: LanguageModel, life: int) -> None:
        self.model, self.life = model, life
        self.rows = 0

    @abstractmethod
    def add(self, state: Any, copies: int) -> None:
        """A row whose past has been read into a state of its own, one or several times."""

    @abstractmethod
    def step(self, tokens: list[int]) -> Float[Tensor, "b v"]:
        """Logits after one more token of each row."""

    @abstractmethod
    def keep(self, rows: list[int]) -> None:
        """Go on with these rows, in this order."""

    def _numbers(self, rows: list[int]) -> Int[Tensor, " r"]:
        return check_rows(torch.tensor(rows, dtype=torch.int64), self.rows)

    def _column(self, tokens: list[int]) -> Int[Tensor, "b 1"]:
        return torch.tensor(tokens, device=self.model.head.weight.device)[:, None]


class Together(Batch):
    """See the module. No row takes more than `life` steps."""

    def __init__(self, model: MixerLM, life: int) -> None:
        super().__init__(model, life)
        self._state: MixerState | None = None

    def add(self, state: MixerState, copies: int) -> None:
        if copies > 1:
            state.select(torch.zeros(copies, dtype=torch.long))
        if self._state is None:
            state.begin_ragged(copies, self.life)
            self._state = state
        else:
            self._state.append(state, copies)
        self.rows += copies

    def step(self, tokens: list[int]) -> Tensor:
        logits, _ = self.model.step(self._column(tokens), self._state)
        return logits[:, 0]

    def keep(self, rows: list[int]) -> None:
        assert self._state is not None
        self._state.select(self._numbers(rows))
        self.rows = len(rows)


class Apart(Batch):
    """See the module."""

    chunk = 2048  # Mamba 2 reads the first chunk at once and the rest position by position

    def __init__(self, model: LanguageModel, life: int) -> None:
        super().__init__(model, life)
        self._states: list[Any] = []

    def add(self, state: Any, copies: int) -> None:
        self._states += [copy.deepcopy(state) for _ in range(copies - 1)] + [state]
        self.rows = len(self._states)

    def step(self, tokens: list[int]) -> Tensor:
        logits = []
        for place, token in enumerate(self._column(tokens)):
            step, self._states[place] = self.model.step(token[None], self._states[place])
            logits.append(step[:, -1])
        return torch.cat(logits)

    def keep(self, rows: list[int]) -> None:
        self._states = [self._states[row] for row in self._numbers(rows).tolist()]
        self.rows = len(rows)


def batch(model: LanguageModel, life: int) -> Batch:
    return Together(model, life) if isinstance(model, MixerLM) else Apart(model, life)
