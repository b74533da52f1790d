"""Schedules of a decoder: rows that step, are selected and join, each as if it were alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.fuzz import definition
from toeplix import decoder
from toeplix.ops import DECODERS
from toeplix.ops.decoding.ragged import RaggedDecoder

DTYPES = ("float64", "float32", "bfloat16", "float16")
POISON = (1e20, float("inf"), float("nan"))  # 1e20 is inf in float16


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """A schedule of `["step", count]`, `["select", rows]` and `["join", rows, past]`.

    Rows of `select` are taken modulo those that are there.
    """

    kind: str  # history, online, ragged
    batch: int
    past: int
    heads: int
    channels: int
    taps: int
    schedule: list[list[Any]]
    bounded: bool = False  # by a horizon, or the shortest life
    parts: int = 1  # calls of `emit` a position
    dtype: str = "float32"
    poison: float | None = None  # what the second row holds in a second run, while it is there
    seed: int = 0


def sizes(largest: int) -> st.SearchStrategy[int]:
    """Powers of two and their neighbours, and anything."""
    powers = [2**k + d for k in range(11) for d in (-1, 0, 1) if 1 <= 2**k + d <= largest]
    return st.sampled_from(sorted(set(powers))) | st.integers(1, largest)


@st.composite
def decodings(draw: Callable[..., Any], longest: int = 400) -> Decoding:
    kind = draw(st.sampled_from([*DECODERS, "ragged"]))
    step = st.tuples(st.just("step"), st.sampled_from([1, 2, 31, 33, 64, 100]))
    select = st.tuples(st.just("select"), st.lists(st.integers(0, 7), max_size=4))
    join = st.tuples(st.just("join"), st.integers(1, 3), st.integers(0, 150))
    moves = [step, step, select, join] if kind == "ragged" else [step, step, select]
    schedule = draw(st.lists(st.one_of(moves), min_size=1, max_size=7))
    return Decoding(
        kind=kind,
        batch=draw(st.integers(1, 4)),
        past=draw(st.integers(0, 200)),
        heads=draw(st.integers(1, 3)),
        channels=draw(st.sampled_from([1, 2, 3, 4, 5, 16])),
        taps=draw(sizes(longest)),
        schedule=[list(move) for move in schedule],
        bounded=draw(st.booleans()),
        parts=draw(st.integers(1, 2)),
        dtype=draw(st.sampled_from(DTYPES)),
        poison=draw(st.none() | st.sampled_from(POISON)),
        seed=draw(st.integers(0, 2**16)),
    )


class _Row:
    """What one row has been given, and what it gave."""

    def __init__(self, past: Tensor, wrong: bool = False) -> None:
        self.inputs = list(past.unbind(0))
        self.outputs: list[Tensor] = []
        self.wrong = wrong

    def copy(self) -> "_Row":
        other = _Row(torch.empty(0), self.wrong)
        other.inputs, other.outputs = [*self.inputs], [*self.outputs]
        return other


def check_decoding(case: Decoding) -> None:
    """Every row by the definition, from its first to its last position; then a poisoned neighbour."""
    ordinary = _decoded(case, None)
    kernel = _kernel(case).double().numpy()
    size = definition.norm(kernel.T)
    for row in ordinary:
        if row.outputs:
            x = torch.stack(row.inputs).double().numpy()
            exact = definition.product(x, kernel)[-len(row.outputs) :]
            y = torch.stack(row.outputs)
            assert y.dtype == row.inputs[0].dtype
            definition.assert_rounded_once(y, exact, size * definition.norm(x), "decoder")
    if case.poison is not None:
        for one, other in zip(ordinary, _decoded(case, case.poison), strict=True):
            if one.outputs and not other.wrong:
                pair = torch.stack(one.outputs), torch.stack(other.outputs)
                definition.assert_same_bits(*pair, "decoder")


def _kernel(case: Decoding) -> Tensor:
    generator = torch.Generator().manual_seed(case.seed + 1)
    kernel = torch.randn(case.heads, case.taps, generator=generator) / case.taps**0.5
    return kernel.to(getattr(torch, case.dtype))


def _decoded(case: Decoding, poison: float | None) -> list[_Row]:
    """All rows that have been there."""
    generator = torch.Generator().manual_seed(case.seed)

    def numbers(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, case.heads, case.channels, generator=generator)
        return drawn.to(getattr(torch, case.dtype))

    past = numbers(case.batch, case.past)
    here = [_Row(part, wrong=number == 1) for number, part in enumerate(past)]
    if poison is not None and case.batch > 1:
        past[1, ::3] = poison
    state = _started(case, past)
    gone: list[_Row] = []
    for move, *how in case.schedule:
        if move == "step":
            for _ in range(how[0]):
                _step(case, state, here, numbers(len(here)), poison)
        elif move == "select":
            rows = [number % len(here) for number in how[0]] if here else []
            state.select(torch.tensor(rows, dtype=torch.int64))
            gone += [row for number, row in enumerate(here) if number not in rows]
            here = [here[number].copy() for number in rows]
        else:
            more = numbers(*how)
            state.append(more)
            here += [_Row(part) for part in more]
    return gone + here


def _started(case: Decoding, past: Tensor) -> Any:
    kernel = _kernel(case)
    steps = max(1, sum(how[0] for move, *how in case.schedule if move == "step"))
    if case.kind == "ragged":
        return RaggedDecoder(kernel, past, steps if case.bounded else steps + case.taps)
    return decoder(kernel, past, kind=case.kind, horizon=steps if case.bounded else None)


def _step(case: Decoding, state: Any, here: list[_Row], x: Tensor, poison: float | None) -> None:
    given = x.clone()
    if poison is not None and state.position % 3 == 0:
        given[[row.wrong for row in here]] = poison
    size = -(-case.heads // case.parts)
    parts = [state.emit(part, size * n) for n, part in enumerate(given.split(size, 1))]
    state.advance()
    for row, one, y in zip(here, x, torch.cat(parts, 1), strict=True):
        row.inputs.append(one)
        row.outputs.append(y)
