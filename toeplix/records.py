"""What every record (`Model`, `Run`) refuses at birth: values of the wrong kind, each with its rule."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


def check_fields(
    record: Any, choices: Mapping[str, tuple[str, ...]], least: Mapping[str, int]
) -> None:
    """Words are among their choices, integers at least `least` (else 1), numbers finite."""
    for name, allowed in choices.items():
        if getattr(record, name) not in allowed:
            raise ValueError(
                f"{name}={getattr(record, name)!r} must be one of {', '.join(allowed)}"
            )
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.type is bool and not isinstance(value, bool):
            raise TypeError(f"{field.name}={value!r} must be True or False")
        if field.type is int and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{field.name}={value!r} must be an integer")
        if field.type is int and value < least.get(field.name, 1):
            raise ValueError(f"{field.name}={value} must be at least {least.get(field.name, 1)}")
        if field.type is float:
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise TypeError(f"{field.name}={value!r} must be a finite number")
            object.__setattr__(record, field.name, float(value))  # 0 and 0.0 are one record
