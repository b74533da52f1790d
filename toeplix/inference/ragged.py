"""Ragged batches: rows at different positions, which join and leave at any step.

    SharedState       one state for all rows, each at its own position; a step reads the weights once
    SeparateStates    a state for each row; rows are stepped one after the other

`ragged_batch(model, max_new_tokens)` returns the first for architectures with ragged states, and the
second for the others: the caches of Hugging Face have one position for all rows. In both, the logits of a
row are those that it has alone, up to rounding.
"""

import copy
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.model import DecodingState, LanguageModel, RaggedState
from toeplix.ops.checks import check_rows


class RaggedBatch(ABC):
    """Rows in the order in which they were added; no row takes more than `max_new_tokens` steps."""

    chunk = 512  # positions of a prompt that are read between two steps

    def __init__(self, model: LanguageModel, max_new_tokens: int) -> None:
        self.model, self.max_new_tokens = model, max_new_tokens
        self.rows = 0

    @abstractmethod
    def add(self, state: Any, copies: int) -> None:
        """Append a row with a prefilled state, `copies` times; the state belongs to the batch then."""

    @abstractmethod
    def step(self, tokens: list[int]) -> Float[Tensor, "b v"]:
        """Return the logits after one more token of each row."""

    @abstractmethod
    def keep(self, rows: list[int]) -> None:
        """Keep these rows, in this order."""

    def _numbers(self, rows: list[int]) -> Int[Tensor, " r"]:
        return check_rows(torch.tensor(rows, dtype=torch.int64), self.rows)

    def _column(self, tokens: list[int]) -> Int[Tensor, "b 1"]:
        return torch.tensor(tokens, device=self.model.head.weight.device)[:, None]


class SharedState(RaggedBatch):
    """One ragged state for all rows."""

    def __init__(self, model: LanguageModel, max_new_tokens: int) -> None:
        super().__init__(model, max_new_tokens)
        self._state: RaggedState | None = None

    def add(self, state: RaggedState, copies: int) -> None:
        if copies > 1:
            state.select(torch.zeros(copies, dtype=torch.long))
        if self._state is None:
            state.begin_ragged(copies, self.max_new_tokens)
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


class SeparateStates(RaggedBatch):
    """A state for each row."""

    chunk = 2048  # Mamba 2 reads the first chunk at once and the rest position by position

    def __init__(self, model: LanguageModel, max_new_tokens: int) -> None:
        super().__init__(model, max_new_tokens)
        self._states: list[Any] = []

    def add(self, state: DecodingState, copies: int) -> None:
        state.begin_decoding(self.max_new_tokens)
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


def ragged_batch(model: LanguageModel, max_new_tokens: int) -> RaggedBatch:
    return (SharedState if model.ragged else SeparateStates)(model, max_new_tokens)
