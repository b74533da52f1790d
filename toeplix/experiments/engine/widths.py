"""The search for the best width of a model: from a start, to the neighbours of the best width so far.

Widths come from a ladder. The search ends when the best width has been compared with both neighbours; at
an end of the ladder there is one.
"""

from collections.abc import Mapping, Sequence


def widths_to_try(ladder: Sequence[int], start: int, tried: Mapping[int, float]) -> set[int]:
    """Return the widths that the search needs, measured or not; `tried` are losses by width.

    >>> ladder = (16, 32, 64, 128)
    >>> sorted(widths_to_try(ladder, 32, {}))
    [16, 32, 64]
    >>> sorted(widths_to_try(ladder, 32, {16: 3.0, 32: 2.0, 64: 1.0}))
    [16, 32, 64, 128]
    """
    wanted = _around(ladder, start)
    while wanted <= set(tried):
        best = min(sorted(wanted), key=lambda width: tried[width])
        if _around(ladder, best) <= wanted:
            break
        wanted |= _around(ladder, best)
    return wanted


def best_width(ladder: Sequence[int], start: int, tried: Mapping[int, float]) -> int | None:
    """Return the width with the lowest loss; None until all that the search needs are measured."""
    wanted = widths_to_try(ladder, start, tried)
    return min(sorted(wanted), key=lambda width: tried[width]) if wanted <= set(tried) else None


def next_width(ladder: Sequence[int], width: int) -> int:
    """Return the next larger width, or the largest."""
    return min((each for each in ladder if each > width), default=max(ladder))


def _around(ladder: Sequence[int], width: int) -> set[int]:
    steps = sorted(ladder)
    place = steps.index(width)
    return set(steps[max(0, place - 1) : place + 2])
