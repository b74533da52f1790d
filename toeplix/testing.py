"""Checks for tests of any sequence model.

from toeplix.testing import assert_causal
assert_causal(my_module, torch.randn(2, 64, 32))
"""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor


def assert_causal(
    function: Callable[[Tensor], object],
    x: Tensor,
    *,
    positions: Iterable[int] | None = None,
    scale: float = 1.0,
    tolerance: float | None = None,
    vocabulary: int | None = None,
    output: Callable[[object], Tensor] | None = None,
    seed: int = 0,
) -> None:
    """Fail if a change at position t or later moves an output before t.

    Works on any module or function along time: `x` is `(b, t, ...)` of numbers or `(b, t)` of
    tokens, and the output is `(b, t, ...)`. For each of several positions t the inputs from t on are
    resampled, all of them and one alone (a leak may cancel in a sum), and the outputs before t compared.

    Args:
        function: a module or function whose result depends on x alone (no dropout: call `.eval()`).
        x: one example input.
        positions: the positions t; by default 1, 2, the last, and powers of two with their neighbours.
        scale: size of the new inputs relative to x's largest value. Try 1e4 to see rounding leak.
        tolerance: largest change allowed, relative to the largest output before t. 0 asks for
            equality bit for bit. Default: what a Fourier transform of the whole sequence leaks by
            rounding, 1e-5 in float32 and 1e-14 in float64, times `scale` if above 1, and in half
            precision four roundings of the output.
        vocabulary: number of tokens to sample from, for integer x; default: the largest plus 1.
        output: picks the tensor from what the function returns; by default a tensor itself, its
            `logits` or `last_hidden_state`, or the first tensor of a tuple or mapping.
        seed: of the new inputs.

    Raises:
        AssertionError: names t, the position that changed and by how much.
    """
    cuts = _checked_cuts(x, positions)
    pick = output or _tensor
    generator = torch.Generator().manual_seed(seed)

    def run(given: Tensor) -> Tensor:
        # copies on both sides: the function may work in place, or in one buffer for all calls
        return pick(function(given.clone())).detach().clone()

    with torch.no_grad():
        before = run(x)
        if before.ndim < 2 or before.shape[:2] != x.shape[:2]:
            raise ValueError(
                f"the output must be (b, t, ...) like x {tuple(x.shape)}, got {tuple(before.shape)}"
            )
        if not torch.isfinite(before).all():
            raise ValueError("the output for x is not finite: nothing can be compared")
        if tolerance is None:
            tolerance = _tolerance(before.dtype, scale)
        if _moved(before, run(x), tolerance) is not None:
            raise ValueError("the function is not repeatable: for a module, call .eval() first")
        for cut in cuts:
            for stop in {cut + 1, x.shape[1]}:
                after = run(_redrawn(x, slice(cut, stop), scale, vocabulary, generator))
                if found := _moved(before[:, :cut], after[:, :cut], tolerance):
                    place, by, allowed = found
                    raise AssertionError(
                        f"not causal: changing positions {cut} .. {stop - 1} of x moved the output "
                        f"at position {place[1]} (index {place}) by {by:.3g}, where {allowed:.3g} "
                        "is allowed"
                    )


def _checked_cuts(x: Tensor, positions: Iterable[int] | None) -> list[int]:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor (b, t, ...), got {type(x).__name__}")
    if x.ndim < 2 or x.shape[1] < 2:
        raise ValueError(f"x must be (b, t, ...) with t >= 2, got {tuple(x.shape)}")
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError("x is not finite: a changed future could not be told from it")
    time = x.shape[1]
    cuts = _cuts(time) if positions is None else list(positions)
    if not cuts or not all(0 < cut < time for cut in cuts):
        raise ValueError(f"positions must lie between 1 and {time - 1} and be at least one: {cuts}")
    return cuts


def _tolerance(dtype: torch.dtype, scale: float) -> float:
    if not dtype.is_floating_point:
        return 0.0
    eps = torch.finfo(dtype).eps
    full = min(eps, torch.finfo(torch.float32).eps)
    return 100 * full * max(1.0, scale) + (4 * eps if eps > full else 0.0)


def _moved(
    before: Tensor, after: Tensor, tolerance: float
) -> tuple[list[int], float, float] | None:
    """Where, by how much, and what would be allowed; None if nothing moved further than that."""
    moved = (after.double() - before.double()).abs()
    allowed = tolerance * before.double().abs().max().item()
    leaks = ~(moved <= allowed)  # so that a NaN counts as a move
    if not leaks.any():
        return None
    place = leaks.nonzero()[0].tolist()
    return place, moved[tuple(place)].item(), allowed


def _redrawn(
    x: Tensor, where: slice, scale: float, vocabulary: int | None, generator: torch.Generator
) -> Tensor:
    shape = x[:, where].shape
    changed = x.clone()
    if x.is_floating_point():
        size = x.abs().max().item() or 1.0
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        changed[:, where] = (noise * scale * size).to(x)
    else:
        choices = vocabulary or int(x.max()) + 1
        if choices < 2:
            raise ValueError(
                f"vocabulary={choices} leaves nothing to change: name at least 2 tokens"
            )
        step = torch.randint(1, choices, shape, generator=generator).to(x.device)
        # in 64 bits, so that nothing wraps: every token does change
        changed[:, where] = ((x[:, where].long() + step) % choices).to(x.dtype)
    return changed


def _cuts(time: int) -> list[int]:
    """1, 2, ..., powers of two and their neighbours, the last position."""
    cuts = {1, 2, time - 1}
    power = 4
    while power < time:
        cuts |= {power - 1, power, power + 1}
        power *= 2
    return sorted(cut for cut in cuts if 0 < cut < time)


def _tensor(returned: object) -> Tensor:
    """The tensor in what a model returned."""
    if isinstance(returned, Tensor):
        return returned
    for name in ("logits", "last_hidden_state"):
        if isinstance(found := getattr(returned, name, None), Tensor):
            return found
    parts = returned.values() if isinstance(returned, Mapping) else returned
    if isinstance(parts, Iterable):
        for part in parts:
            if isinstance(part, Tensor):
                return part
    raise TypeError(f"no tensor in a {type(returned).__name__}: pass output=")
