"""The rule that selects a path by device, length and columns; `toeplix bench ops --tune` measures it.

For each kind of device and each demand on causality, a list of bands. A band holds up to a number
of columns (sequences times channels per head: what one filter multiplies; None: any) and lists paths
with the longest time for which each is taken. The first band and the first path that fit are used.

All paths compute the same product, each with its own rounding: a new rule changes speed, and the last
bits of what `path="auto"` returns, so a training run repeats to the last bit under the same rule only.
Counts of operations, widths of equal compute and the identity of cases do not ask the rule.
"""

import json
import os
import warnings
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

AUTO, AUTO_EXACT = "auto", "auto-exact"
MAX_BYTES = 2**20  # of a file with a rule


class Band(TypedDict):
    columns: int | None
    paths: list[tuple[int | None, str]]


Rule = dict[str, dict[str, list[Band]]]

# cpu: two cores with AVX2, PyTorch 2.13 with MKL, float32, forward and backward together.
# cuda: not measured; run `toeplix bench ops --tune` on the machine in question.
RULE: Rule = {
    "cpu": {
        AUTO: [
            {"columns": 16, "paths": [(128, "blocked"), (None, "fft")]},
            {"columns": None, "paths": [(384, "blocked"), (None, "fft")]},
        ],
        AUTO_EXACT: [{"columns": None, "paths": [(1024, "blocked"), (None, "halving")]}],
    },
    "cuda": {
        AUTO: [{"columns": None, "paths": [(1024, "blocked"), (None, "fft")]}],
        AUTO_EXACT: [{"columns": None, "paths": [(4096, "blocked"), (None, "halving")]}],
    },
}

# Largest receptive field of a decode step for which the history is the faster decoder.
DECODE_HISTORY = {"cpu": 128, "cuda": 1024}


def choose(mode: str, device: str, time: int, columns: int, rule: Rule | None = None) -> str:
    """Return the path for `columns` columns of length `time`; the default rule is this machine's."""
    rule = current_rule() if rule is None else rule
    for band in rule.get(device, rule["cpu"])[mode]:
        if band["columns"] is None or columns <= band["columns"]:
            for longest, path in band["paths"]:
                if longest is None or time <= longest:
                    return path
    raise AssertionError(f"the rule for {device!r} has no path for {columns} columns of {time}")


def rule_file() -> Path:
    """Return the file of a measured rule: `$TOEPLIX_RULE`, else in the user's configuration directory."""
    if named := os.environ.get("TOEPLIX_RULE"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "toeplix" / "paths.json"


@lru_cache(maxsize=1)
def current_rule() -> Rule:
    """Return the built-in rule, with the devices that the user's file contains replaced."""
    file = rule_file()
    try:
        return RULE | read(file)
    except FileNotFoundError:
        return RULE
    except (OSError, ValueError) as problem:
        warnings.warn(
            f"ignoring the operator rule in {file} ({problem}); "
            "run `toeplix bench ops --tune` to write a new one, or delete the file",
            stacklevel=2,
        )
        return RULE


def read(file: Path) -> Rule:
    """The rule that a file holds, for the devices that it speaks of."""
    if file.exists() and not file.is_file():  # a named pipe would be waited for without end
        raise ValueError("it is no regular file")
    with open(file, "rb") as opened:
        text = opened.read(MAX_BYTES + 1)
    try:
        if len(text) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        rule: Rule = json.loads(text)["rule"]
        check(rule)
    except (LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(f"it is no such rule: {problem!r:.200}") from problem
    return rule


def check(rule: Rule) -> None:
    """Raise ValueError unless every device has complete bands of known paths."""
    from toeplix.ops.paths import PATHS

    for device, modes in rule.items():
        for mode in (AUTO, AUTO_EXACT):
            bands = modes[mode]
            if not bands or bands[-1]["columns"] is not None:
                raise ValueError(f"the last band of {device}/{mode} must have columns null")
            for band in bands:
                if not band["paths"] or band["paths"][-1][0] is not None:
                    raise ValueError(f"the last path of a band of {device}/{mode} needs time null")
                limits = [band["columns"], *(longest for longest, _ in band["paths"])]
                if not all(limit is None or type(limit) is int for limit in limits):
                    raise ValueError(
                        f"limits of {device}/{mode} must be integers or null: {limits}"
                    )
                for _, path in band["paths"]:
                    if path not in PATHS or (mode == AUTO_EXACT and not PATHS[path].exact):
                        raise ValueError(f"{path!r} cannot serve {device}/{mode}")
