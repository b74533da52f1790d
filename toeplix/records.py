"""Validation of the records `Model` and `Run`: types, ranges and choices of their fields."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from toeplix.files import printable

MAX_SIZE = 2**31 - 1  # of integers that have no limit of their own
MAX_SEED = 2**63 - 1  # what every generator takes
MAX_FLOAT = (2 - 2**-23) * 2.0**127  # the largest number of float32, in which weights are stored
MAX_SHOWN_CHARACTERS = 60  # characters of a value in a message


def check_fields(
    record: Any,
    choices: Mapping[str, tuple[str, ...]],
    least: Mapping[str, int],
    most: Mapping[str, int] | None = None,
) -> None:
    """Words are among their choices, integers from `least` (else 1) to `most`, numbers finite
    in float32.
    """
    for name, allowed in choices.items():
        value = getattr(record, name)
        if value not in allowed:
            raise ValueError(f"{name}={_shown(value)} must be one of {', '.join(allowed)}")
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), field.name
        if field.type is bool and not isinstance(value, bool):
            raise TypeError(f"{name}={_shown(value)} must be True or False")
        if field.type is int:
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name}={_shown(value)} must be an integer")
            lowest, highest = least.get(name, 1), (most or {}).get(name, MAX_SIZE)
            if value < lowest:
                raise ValueError(f"{name}={_shown(value)} must be at least {lowest}")
            if value > highest:
                raise ValueError(f"{name}={_shown(value)} must be at most {highest}")
        if field.type is float:
            if not _finite(value):
                raise TypeError(f"{name}={_shown(value)} must be a finite number")
            if abs(value) > MAX_FLOAT:
                raise ValueError(
                    f"{name}={_shown(value)} must be finite in float32, at most 3.4e38"
                )
            object.__setattr__(record, name, float(value))  # 0 and 0.0 are one record


def check_seed(seed: int, name: str = "seed") -> None:
    """What `torch.Generator.manual_seed` and `numpy.random.default_rng` both take."""
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"{name}={_shown(seed)} must be in 0 .. {MAX_SEED}")


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _shown(value: object) -> str:
    """A value as Python writes it, the middle left out where it is long."""
    try:
        text = printable(repr(value))
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        text = f"a {type(value).__name__} too large to show"
    return (
        text
        if len(text) <= MAX_SHOWN_CHARACTERS
        else f"{text[: MAX_SHOWN_CHARACTERS // 2]}...{text[-MAX_SHOWN_CHARACTERS // 2 :]}"
    )
