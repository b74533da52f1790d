"""Decoding states of the filters of all layers of a model, which share decoders.

During prefill each layer keeps a state of its own: free filters the inputs that they still read,
recurrent filters their last inputs and their sums. After `begin_decoding` layers of one kind are the
heads of one decoder, so that its work is batched over layers.
"""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from toeplix.mixers.ragged import Positions, RowState, each, picked, selected
from toeplix.ops import (
    Decoder,
    RecurrentDecoder,
    RecurrentState,
    decoder,
    toeplitz_continued,
    toeplitz_recurrent,
)
from toeplix.ops.decoding.ragged import RaggedDecoder

Group = list["LayerState"]  # states whose layers are heads of one decoder


class FilterBank:
    """The decoding state of the filters of all layers of one model.

    After `begin_decoding`, call `open` before a position and `close` after it.
    """

    def __init__(self, kind: str = "auto") -> None:
        self.kind = kind  # of the decoders of free filters, as for `toeplix.ops.decoder`
        self.decoding = False  # whether positions are decoded one by one
        self.max_new_tokens: int | None = None
        self.decoders: list[Decoder] = []
        self._states: Group = []

    def join(self) -> "FilterState":
        """Return the state of a layer of free filters."""
        state = FilterState()
        self._states.append(state)
        return state

    def join_recurrent(self) -> "RecurrentFilterState":
        """Return the state of a layer of recurrent filters."""
        state = RecurrentFilterState()
        self._states.append(state)
        return state

    def begin_decoding(self, max_new_tokens: int | None = None) -> None:
        """Switch to decoding, with at most `max_new_tokens` steps; None: no limit."""
        if self.decoding:
            raise ValueError("decoding has begun already: a state switches from prefill once")
        self.decoding, self.max_new_tokens = True, max_new_tokens
        self.open()

    @torch.no_grad()
    def open(self) -> None:
        """Build the decoders if decoding has begun and any position was read, which is their past.

        Before the first position the layers have no filters yet; it goes through the states of prefill.
        """
        if not self.decoding or self.decoders:
            return
        if self._states and self._states[0].started:
            for group in self._groups():
                one = group[0].decoder_of(group, self.max_new_tokens, self.kind)
                self.decoders.append(_handed(group, one))

    def begin_ragged(self, max_new_tokens: int) -> None:
        """Switch to decoding a ragged batch: rows may join (`append`) and leave (`select`).

        No row takes more than `max_new_tokens` decode steps.
        """
        self.decoding, self.max_new_tokens = True, max_new_tokens
        for group in self._groups():
            self.decoders.append(_handed(group, group[0].ragged_decoder_of(group, max_new_tokens)))

    def append(self, other: "FilterBank") -> None:
        """Append the rows of another bank, whose prompts are prefilled."""
        for one, group in zip(self.decoders, other._groups(), strict=True):
            group[0].append_to(one, group)

    def extend(
        self,
        state: "FilterState | RecurrentFilterState",
        x: Float[Tensor, "b k h c"],
        filters: Any,
    ) -> Float[Tensor, "b k h c"]:
        """Return the outputs of the next positions of a bank with a single layer.

        This bank begins decoding by itself, at the first single position without gradients: for callers
        whose interface has no such moment.
        """
        parts = filters if isinstance(filters, tuple) else (filters,)
        trained = torch.is_grad_enabled() and any(part.requires_grad for part in (x, *parts))
        if trained and self.decoders:
            advice = "decode under torch.no_grad(), or pass past_key_values=DynamicCache()"
            raise ValueError(f"no gradients pass through the decoders of this cache: {advice}")
        if trained or (not self.decoders and x.shape[1] > 1):
            return state.extend(x, filters)
        self.decoding = True
        outputs = []
        for part in x.split(1, dim=1):
            self.open()
            outputs.append(state.extend(part, filters))
            self.close()
        return torch.cat(outputs, 1)

    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep these rows of the batch, in this order."""
        for one in self.decoders:
            one.select(rows)
        for state in self._states:
            state.select_prefilled(rows)

    def close(self) -> None:
        for one in self.decoders:
            one.advance()

    def _groups(self) -> list[Group]:
        """Return the states whose layers share a decoder, in the order of the layers."""
        found: dict[Hashable, Group] = {}
        for state in self._states:
            found.setdefault(state.key, []).append(state)
        return list(found.values())


def _handed(group: Group, one: Decoder) -> Decoder:
    """Give every layer of a group its heads of the decoder; the states of prefill are released."""
    heads = 0
    for state in group:
        state.decoder, state.first = one, heads
        heads += state.heads
        state.release()
    return one


class LayerState(RowState):
    """The decoding state of one layer's filters: its own, or some heads of a decoder of the bank."""

    decoder: Decoder | None = None
    first = 0  # first head of this layer in the decoder

    @property
    @abstractmethod
    def started(self) -> bool:
        """Whether any position has been prefilled."""

    @property
    @abstractmethod
    def heads(self) -> int: ...

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """What layers must have in common to share a decoder."""

    @abstractmethod
    def release(self) -> None:
        """Drop the state of prefill."""

    @abstractmethod
    def select_prefilled(self, rows: Int[Tensor, " r"]) -> None:
        """Keep these rows of the state of prefill, if it is still there."""

    @staticmethod
    @abstractmethod
    def decoder_of(group: Sequence[Any], horizon: int | None, kind: str) -> Decoder:
        """Return the decoder of several layers."""

    @staticmethod
    @abstractmethod
    def ragged_decoder_of(group: Sequence[Any], max_new_tokens: int) -> Decoder:
        """Return the decoder of several layers for a ragged batch."""

    @staticmethod
    @abstractmethod
    def append_to(one: Any, group: Sequence[Any]) -> None:
        """Append the rows that a group of another bank has prefilled to a ragged decoder."""

    def emitted(self, x: Float[Tensor, "b 1 h c"]) -> Float[Tensor, "b 1 h c"]:
        """Return the decoder's output at the next position."""
        assert self.decoder is not None
        return self.decoder.emit(x[:, 0], self.first)[:, None]


class FilterState(LayerState):
    """The state of free filters: a history of inputs during prefill, and the position for the bias."""

    def __init__(self) -> None:
        self.position: Positions = 0
        self.history: Tensor | None = None
        self.kernel: Tensor | None = None

    def extend(self, x: Float[Tensor, "b k h c"], kernel: Float[Tensor, "h n"]) -> Tensor:
        self.position = self.position + x.shape[1]
        if self.decoder is not None:
            return self.emitted(x)
        self.kernel = kernel
        past = x[:, :0] if self.history is None else self.history
        y = toeplitz_continued(x, kernel, past)
        self.history = _latest(past, x, kernel.shape[1] - 1)
        return y

    @property
    def started(self) -> bool:
        return self.history is not None

    @property
    def heads(self) -> int:
        assert self.kernel is not None
        return len(self.kernel)

    @property
    def key(self) -> Hashable:
        if self.kernel is None or self.history is None:
            return "free"
        return "free", self.kernel.shape[1], self.history.shape[3]

    def release(self) -> None:
        self.history = None

    def select_prefilled(self, rows: Int[Tensor, " r"]) -> None:
        if self.history is not None:
            self.history = selected(self.history, rows)

    @staticmethod
    def decoder_of(group: Sequence["FilterState"], horizon: int | None, kind: str) -> Decoder:
        return decoder(_kernels(group), _histories(group), horizon=horizon, kind=kind)

    @staticmethod
    def ragged_decoder_of(group: Sequence["FilterState"], max_new_tokens: int) -> Decoder:
        return RaggedDecoder(_kernels(group), _histories(group), max_new_tokens)

    @staticmethod
    def append_to(one: RaggedDecoder, group: Sequence["FilterState"]) -> None:
        one.append(_histories(group))

    def begin_ragged(self, rows: int) -> None:
        assert self.kernel is not None
        self.position = each(self.position, rows, self.kernel.device)

    def append(self, other: "FilterState") -> None:
        """Append the positions of another state; the bank appends the histories."""
        self.position = torch.cat([torch.as_tensor(p) for p in (self.position, other.position)])

    def select(self, rows: Int[Tensor, " r"]) -> None:
        self.position = picked(self.position, rows)


def _kernels(group: Sequence[FilterState]) -> Float[Tensor, "h n"]:
    return torch.cat([state.kernel for state in group if state.kernel is not None])


def _histories(group: Sequence[FilterState]) -> Float[Tensor, "b p h c"]:
    """Return the histories of several layers, concatenated as heads."""
    return torch.cat([state.history for state in group if state.history is not None], 2)


Coefficients = tuple[Tensor, Tensor, Tensor]  # free (h, short), weights (h, r), decays (r,)


class RecurrentFilterState(LayerState):
    """The state of recurrent filters: last inputs and sums, whatever the length; no position."""

    def __init__(self) -> None:
        self.filters: Coefficients | None = None
        self.after: RecurrentState | None = None  # the positions that were prefilled

    def extend(self, x: Float[Tensor, "b k h c"], filters: Coefficients) -> Tensor:
        if self.decoder is not None:
            return self.emitted(x)
        self.filters = filters
        y, self.after = toeplitz_recurrent(x, *filters, state=self.after)
        return y

    @property
    def started(self) -> bool:
        return self.after is not None

    @property
    def heads(self) -> int:
        assert self.filters is not None
        return len(self.filters[0])

    @property
    def key(self) -> Hashable:
        if self.filters is None or self.after is None:
            return "recurrent"
        free, weights, _ = self.filters
        return "recurrent", free.shape[1], weights.shape[1], self.after.sums.shape[3]

    def release(self) -> None:
        self.after = None

    def select_prefilled(self, rows: Int[Tensor, " r"]) -> None:
        if self.after is not None:
            self.after = RecurrentState(*(selected(part, rows) for part in self.after))

    @staticmethod
    def decoder_of(
        group: Sequence["RecurrentFilterState"], horizon: int | None, kind: str
    ) -> RecurrentDecoder:
        parts = [state.filters for state in group if state.filters is not None]
        free, weights = (torch.cat([part[index] for part in parts]) for index in (0, 1))
        decays = torch.cat([decays.expand_as(weights) for _, weights, decays in parts])
        return RecurrentDecoder(free, weights, decays, _after(group), horizon)

    @staticmethod
    def ragged_decoder_of(
        group: Sequence["RecurrentFilterState"], max_new_tokens: int
    ) -> RecurrentDecoder:
        """Return the same decoder: its memory does not depend on the number of steps."""
        return RecurrentFilterState.decoder_of(group, None, "auto")

    @staticmethod
    def append_to(one: RecurrentDecoder, group: Sequence["RecurrentFilterState"]) -> None:
        one.append(_after(group))

    def begin_ragged(self, rows: int) -> None:
        """Do nothing: the state does not depend on positions."""

    def append(self, other: "RecurrentFilterState") -> None:
        """Do nothing: the bank appends the rows."""

    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Do nothing: the bank selects the rows."""


def _after(group: Sequence[RecurrentFilterState]) -> RecurrentState:
    """Return the states of several layers, concatenated as heads."""
    states = [state.after for state in group if state.after is not None]
    return RecurrentState(
        torch.cat([state.recent for state in states], 2), torch.cat([s.sums for s in states], 2)
    )


def _latest(
    past: Float[Tensor, "b p h c"], x: Float[Tensor, "b k h c"], count: int
) -> Float[Tensor, "b m h c"]:
    """Return the last `count` positions of both together, as a view if they are most of x."""
    if x.shape[1] < count:
        past = past[:, max(0, past.shape[1] + x.shape[1] - count) :]
        return torch.cat([past, x], 1) if past.shape[1] else x
    kept = x[:, x.shape[1] - count :]
    return kept if 2 * count >= x.shape[1] else kept.clone()  # a view keeps all of x alive
