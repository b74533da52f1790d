"""The rule that selects a path by device and sizes; `toeplix bench ops --tune` measures it.

For each kind of device (`kind_of`) and each demand on causality, a list of bands. A band applies up
to a number of columns (sequences times channels per head: what one filter multiplies; None: any) and,
optionally, up to a number of channels per head. It lists paths, each with the longest time for which it
is taken. The first band and the first path that fit are used; paths that cannot run (no Triton, float64)
are passed over.

All paths compute the same product, each with its own rounding: a new rule changes speed, and the last
bits of what `path="auto"` returns, so a training run repeats to the last bit under the same rule only.
Counts of operations, widths of equal compute and the identity of cases do not ask the rule.
"""

import json
import os
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NotRequired, TypedDict

AUTO, AUTO_EXACT = "auto", "auto-exact"
FALLBACK = "halving"
HALF = "-half"  # at the end of the kind of a device: half precision
MAX_BYTES = 2**20  # of a file with a rule


class Band(TypedDict):
    columns: int | None
    channels: NotRequired[int | None]  # per head
    paths: list[tuple[int | None, str]]


Rule = dict[str, dict[str, list[Band]]]

# Longest sequences for which the path "triton" is estimated to be faster than near-linear paths; a test
# computes them from profiling/roofline.py.
TRITON_LENGTHS = {
    "cuda": {AUTO: 256, AUTO_EXACT: 128},
    "cuda-half": {AUTO: 4096, AUTO_EXACT: 16384},
}


def _estimated(kind: str) -> dict[str, list[Band]]:
    auto, exact = (TRITON_LENGTHS[kind][mode] for mode in (AUTO, AUTO_EXACT))
    paths = [(auto, "triton"), (1024, "blocked"), (None, "fft")]
    exact_paths = [(exact, "triton"), (4096, "blocked"), (None, "halving")]
    return {
        AUTO: [{"columns": None, "paths": paths}],
        AUTO_EXACT: [{"columns": None, "paths": exact_paths}],
    }


# cpu: two cores with AVX2, PyTorch 2.13 with MKL, float32, forward and backward together. With a
# filter per channel (Hyena; measured on one core with AVX-512), every channel needs a matrix of its
# own, and the FFT is faster from shorter sequences on.
# cuda, and cuda-half for half precision: estimated, not measured; run `toeplix bench ops --tune` on the
# machine in question.
RULE: Rule = {
    "cpu": {
        AUTO: [
            {"columns": None, "channels": 1, "paths": [(48, "blocked"), (None, "fft")]},
            {"columns": 16, "paths": [(128, "blocked"), (None, "fft")]},
            {"columns": None, "paths": [(384, "blocked"), (None, "fft")]},
        ],
        AUTO_EXACT: [{"columns": None, "paths": [(1024, "blocked"), (None, "halving")]}],
    },
    "cuda": _estimated("cuda"),
    "cuda-half": _estimated("cuda-half"),
}

# Largest receptive field of a decode step for which the history is the faster decoder.
DECODE_HISTORY = {"cpu": 128, "cuda": 1024}

# Lookup: the longest receptive field for each key channel (of a free filter) for which block rows are
# taken and not e products, and the longest sequence for which they are taken and not chunks (of a
# recurrent filter, where its kernels do not run: these compute chunks at every length). cpu: measured on
# one core with AVX2 by CPU time, with the heads of the default model (`toeplix bench ops`,
# docs/performance.md); cuda: estimated by counting FLOPs and not measured.
LOOKUP_TILES = {"cpu": 640, "cuda": 1024}
LOOKUP_CHUNKS = {"cpu": 576, "cuda": 1024}


def kind_of(device: str, item_bytes: int) -> str:
    """Return the kind under which a rule lists a device: half precision on CUDA has its own."""
    return device + HALF if device == "cuda" and item_bytes == 2 else device


def kinds_on(device: str) -> list[str]:
    """Return the kinds under which a rule lists a device."""
    return list(dict.fromkeys(kind_of(device, item_bytes) for item_bytes in (4, 2)))


def choose(
    mode: str,
    kind: str,
    time: int,
    columns: int,
    channels: int,
    *,
    rule: Rule | None = None,
    usable: Callable[[str], bool] = lambda path: True,
) -> str:
    """Return the path for `columns` columns of length `time`, of sequences with `channels` per head.

    The default rule is this machine's. Kinds of devices that it does not list are treated as the CPU.
    `usable` says which paths can run. If none of the rule can, the fallback is exact at any length.
    """
    rule = current_rule() if rule is None else rule
    for band in rule.get(kind, rule["cpu"])[mode]:
        if _fits(columns, band["columns"]) and _fits(channels, band.get("channels")):
            for longest, path in band["paths"]:
                if (longest is None or time <= longest) and usable(path):
                    return path
    return FALLBACK


def _fits(number: int, limit: int | None) -> bool:
    return limit is None or number <= limit


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
            last = bands[-1] if bands else None
            if last is None or last["columns"] is not None or last.get("channels") is not None:
                raise ValueError(
                    f"the last band of {device}/{mode} must have columns null and no channels"
                )
            for band in bands:
                if not band["paths"] or band["paths"][-1][0] is not None:
                    raise ValueError(f"the last path of a band of {device}/{mode} needs time null")
                limits = [
                    band["columns"],
                    band.get("channels"),
                    *(longest for longest, _ in band["paths"]),
                ]
                if not all(limit is None or (type(limit) is int and limit > 0) for limit in limits):
                    raise ValueError(
                        f"limits of {device}/{mode} must be positive integers or null: {limits}"
                    )
                if unknown := set(band) - set(Band.__annotations__):
                    raise ValueError(f"a band of {device}/{mode} has unknown keys: {unknown}")
                for _, path in band["paths"]:
                    if path not in PATHS or (mode == AUTO_EXACT and not PATHS[path].exact):
                        raise ValueError(f"{path!r} cannot serve {device}/{mode}")
