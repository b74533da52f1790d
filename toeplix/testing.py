"""Checks that hold for anybody's sequence model, for use in tests.

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
    tokens, and the output is `(b, t, ...)`. For each cut t the future is redrawn, as a whole and as one
    single position (a leak may cancel in a sum), and the past of the output is compared.

    Args:
        function: a module (evaluated as it is: call `.eval()` first if it has dropout) or function.
        x: one example input.
        positions: where to cut; by default 1, 2, the last, and powers of two with their neighbours.
        scale: size of the new future relative to x's largest value. Try 1e4 to see rounding leak.
        tolerance: largest move allowed, relative to the largest output of the past.
            0 asks for equality bit for bit. Default: 100 times the resolution of the output's dtype,
            times `scale` if above 1: what a Fourier transform of the whole sequence leaks by rounding.
        vocabulary: number of tokens to redraw from, for integer x; default: the largest in x plus 1.
        output: picks the tensor from what the function returns; by default a tensor itself, its
            `logits` or `last_hidden_state`, or the first tensor of a tuple or mapping.
        seed: of the new futures.

    Raises:
        AssertionError: names the cut, the position that moved and by how much.
    """
    if x.ndim < 2 or x.shape[1] < 2:
        raise ValueError(f"x must be (b, t, ...) with t >= 2, got {tuple(x.shape)}")
    pick = output or _tensor
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        before = pick(function(x))
        if before.ndim < 2 or before.shape[:2] != x.shape[:2]:
            raise ValueError(
                f"the output must be (b, t, ...) like x {tuple(x.shape)}, got {tuple(before.shape)}"
            )
        if not torch.isfinite(before).all():
            raise ValueError("the output for x is not finite: nothing can be compared")
        if tolerance is None:
            tolerance = 100 * torch.finfo(before.dtype).eps * max(1.0, scale)
        for cut in _cuts(x.shape[1]) if positions is None else positions:
            for stop in {cut + 1, x.shape[1]}:
                changed = _redrawn(x, slice(cut, stop), scale, vocabulary, generator)
                _compare(before[:, :cut], pick(function(changed))[:, :cut], cut, stop, tolerance)


def _compare(before: Tensor, after: Tensor, cut: int, stop: int, tolerance: float) -> None:
    moved = (after - before).abs()
    allowed = tolerance * before.abs().max()
    # not (<=), so that a NaN counts as a move
    leaks = ~(moved <= allowed)
    if leaks.any():
        place = leaks.nonzero()[0].tolist()
        raise AssertionError(
            f"not causal: changing positions {cut} .. {stop - 1} of x moved the output at position "
            f"{place[1]} (index {place}) by {moved[tuple(place)].item():.3g}, "
            f"where {allowed.item():.3g} is allowed"
        )


def _redrawn(
    x: Tensor, where: slice, scale: float, vocabulary: int | None, generator: torch.Generator
) -> Tensor:
    shape = x[:, where].shape
    changed = x.clone()
    if x.is_floating_point():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        changed[:, where] = (noise * scale * x.abs().max().double().cpu()).to(x)
    else:
        size = vocabulary or int(x.max()) + 1
        if size < 2:
            raise ValueError(f"vocabulary={size} leaves nothing to change: name at least 2 tokens")
        step = torch.randint(1, size, shape, generator=generator)
        changed[:, where] = (x[:, where] + step.to(x)) % size  # every token does change
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
