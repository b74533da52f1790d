"""Cases of the operator and of its decoders, for property-based tests and for long campaigns.

    CASES        strategies of Hypothesis by name
    check(case)  raises AssertionError if a result differs from the definition in float64
    written(case), read(text)   a case as a line of JSON, for reproducers

A case is a small record of sizes and a seed, from which its numbers follow.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.fuzz import definition
from tests.fuzz.decoder_cases import DTYPES, POISON, Decoding, check_decoding, decodings, sizes
from tests.ops.cpu_paths import CPU_PATHS
from toeplix import (
    toeplitz,
    toeplitz_continued,
    toeplitz_packed,
    toeplitz_padded,
    toeplitz_windowed,
)

EXACT = tuple(name for name, path in CPU_PATHS.items() if path.exact)


@dataclass(frozen=True, kw_only=True)
class Product:
    """One call. `cuts` are offsets of documents, bounds of padded rows, or where a chunk begins."""

    call: str  # whole, windowed, packed, padded, continued
    batch: int
    time: int
    heads: int
    channels: int
    taps: int
    cuts: list[int]
    path: str = "auto"
    exact: bool = False
    dtype: str = "float32"
    layout: str = "plain"  # of x: plain, transposed, sliced, expanded
    poison: float | None = None  # what the last row or document holds in a second run
    seed: int = 0


@st.composite
def products(draw: Callable[..., Any], longest: int = 1030) -> Product:
    call = draw(st.sampled_from(["whole", "windowed", "packed", "padded", "continued"]))
    time = draw(sizes(longest))
    batch = 1 if call == "packed" else draw(st.integers(1, 4))
    path = draw(st.sampled_from(["auto", *CPU_PATHS]))
    if call == "packed":
        inner = draw(st.lists(st.integers(0, time), max_size=6))
        cuts = [0, *sorted(inner), time]
    elif call == "padded":
        cuts = [bound for _ in range(batch) for bound in _bounds(draw, time)]
    else:
        cuts = [draw(st.integers(0, time - 1))]
    needed = max(np.diff(cuts)) if call == "packed" else time
    if call in ("windowed", "continued"):
        taps = draw(sizes(longest))
    else:
        taps = int(needed) + draw(st.sampled_from([0, 0, 1, 7]))
    return Product(
        call=call,
        batch=batch,
        time=time,
        heads=draw(st.integers(1, 3)),
        channels=draw(st.sampled_from([1, 2, 3, 4, 5, 8, 17])),
        taps=max(1, taps),
        cuts=cuts,
        path=path,
        exact=draw(st.booleans()) and path in ("auto", *EXACT),
        dtype=draw(st.sampled_from(DTYPES)),
        layout=draw(st.sampled_from(["plain", "transposed", "sliced", "expanded"])),
        poison=draw(st.none() | st.sampled_from(POISON)),
        seed=draw(st.integers(0, 2**16)),
    )


def _bounds(draw: Callable[..., Any], time: int) -> list[int]:
    return sorted([draw(st.integers(0, time)), draw(st.integers(0, time))])


Case = Product | Decoding
CASES: dict[str, st.SearchStrategy[Case]] = {"product": products(), "decoding": decodings()}


def written(case: Case) -> str:
    return json.dumps({"case": type(case).__name__} | asdict(case))


def read(text: str) -> Case:
    fields = json.loads(text)
    return {"Product": Product, "Decoding": Decoding}[fields.pop("case")](**fields)


def check(case: Case) -> None:
    if isinstance(case, Product):
        check_product(case)
    else:
        check_decoding(case)


def check_product(case: Product) -> None:
    """Values and gradients by the definition, without and with a graph; then a poisoned neighbour."""
    x, kernel, g = _inputs(case)
    with torch.no_grad():
        plain = _call(case, x, kernel)
    leaf, taps = _laid_out(x, case.layout).requires_grad_(), kernel.clone().requires_grad_()
    y = _call(case, leaf, taps)
    y.backward(g)
    assert leaf.grad is not None
    assert taps.grad is not None
    assert plain.dtype == y.dtype == leaf.grad.dtype == taps.grad.dtype == x.dtype
    exact = _expected(case, *(u.double().numpy() for u in (x, kernel, g)))
    size = definition.norm(kernel.double().numpy().T)
    of_x = max(definition.norm(row) for row in x.double().numpy())
    of_g = max(definition.norm(row) for row in g.double().numpy())
    first = x.shape[1] - y.shape[1]
    definition.assert_rounded_once(plain, exact[0][:, first:], size * of_x, "forward")
    definition.assert_rounded_once(y, exact[0][:, first:], size * of_x, "recorded forward")
    definition.assert_rounded_once(leaf.grad, exact[1], size * of_g, "gradient of x")
    whole = float(x.double().norm() * g.double().norm())
    definition.assert_rounded_once(taps.grad, exact[2], whole, "gradient of the kernel")
    if case.poison is not None:
        _check_neighbours(case, x, kernel, plain)


def _check_neighbours(case: Product, x: Tensor, kernel: Tensor, plain: Tensor) -> None:
    wrong = x.clone()
    if case.call == "packed":
        start, stop = case.cuts[-2:]
        wrong[0, start:stop] = case.poison
        clean = (slice(None), slice(0, start))
    else:
        wrong[-1] = case.poison
        clean = (slice(0, -1), slice(None))
        if case.call == "padded":  # and what stands at padding
            wrong = torch.where(_mask(case)[:, :, None, None], wrong, case.poison)
    with torch.no_grad():
        y = _call(case, wrong.to(x.dtype), kernel)
    definition.assert_same_bits(y[clean], plain[clean], "forward")


def _inputs(case: Product) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(case.seed)

    def numbers(*shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return drawn.to(getattr(torch, case.dtype))

    x = numbers(case.batch, case.time, case.heads, case.channels)
    if case.layout == "expanded":
        x = x[:, :1].expand(x.shape)
    kernel = numbers(case.heads, case.taps) / case.taps**0.5
    out = case.time - (case.cuts[0] if case.call == "continued" else 0)
    return x, kernel, numbers(case.batch, out, case.heads, case.channels)


def _laid_out(x: Tensor, layout: str) -> Tensor:
    """The same numbers, elsewhere in memory."""
    if layout == "transposed":
        return x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    if layout == "sliced":
        return torch.nn.functional.pad(x, (1, 2, 1, 0, 3, 1))[:, 3:-1, 1:, 1:-2]
    return x.detach().clone() if layout == "plain" else x.detach()


def _mask(case: Product) -> Tensor:
    mask = torch.zeros(case.batch, case.time, dtype=torch.bool)
    for row, (start, stop) in enumerate(zip(case.cuts[::2], case.cuts[1::2], strict=True)):
        mask[row, start:stop] = True
    return mask


def _call(case: Product, x: Tensor, kernel: Tensor) -> Tensor:
    how: dict[str, Any] = {"path": case.path, "exact": case.exact}
    match case.call:
        case "whole":
            return toeplitz(x, kernel, **how)
        case "windowed":
            return toeplitz_windowed(x, kernel, **how)
        case "packed":
            return toeplitz_packed(x, kernel, case.cuts, **how)
        case "padded":
            return toeplitz_padded(x, kernel, _mask(case), **how)
    cut = case.cuts[0]
    return toeplitz_continued(x[:, cut:], kernel, x[:, :cut], **how)


def _expected(case: Product, x: np.ndarray, kernel: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
    """Outputs, the gradient of x and that of the kernel, segment by segment."""
    if case.call == "continued":
        g = np.concatenate([np.zeros_like(x[:, : case.cuts[0]]), g], 1)
    if case.call == "packed":
        segments = [(0, *bounds) for bounds in zip(case.cuts, case.cuts[1:], strict=False)]
    elif case.call == "padded":
        bounds = zip(case.cuts[::2], case.cuts[1::2], strict=True)
        segments = [(row, *each) for row, each in enumerate(bounds)]
    else:
        segments = [(row, 0, case.time) for row in range(case.batch)]
    y, dx, dkernel = np.zeros_like(x), np.zeros_like(x), np.zeros_like(kernel)
    for row, start, stop in segments:
        if start < stop:
            part, of = x[row, start:stop], g[row, start:stop]
            y[row, start:stop] = definition.product(part, kernel)
            dx[row, start:stop], more = definition.gradients(of, part, kernel)
            dkernel += more
    return [y, dx, dkernel]
