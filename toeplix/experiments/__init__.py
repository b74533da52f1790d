"""Experiments: every table and figure of the paper as one module of four functions.

    cases(scale, rows)   what to measure; later cases may depend on rows that are there already
    measure(case, work)  one case to numbers; whatever it trains lies in the directory `work`
    figure(rows, published)   the drawing, from rows alone
    holds(rows)          the paper's claims as predicates: holds, fails or undecided

and the record `Case`, which is all that `measure` knows. Rows lie in results/<experiment>/<scale>.jsonl.
To add an experiment, write such a module and name it here.
"""

import importlib
from typing import Any, Protocol, runtime_checkable

from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.rows import Row
from toeplix.experiments.engine.scale import SCALES, Scale

EXPERIMENTS = {
    "training": "toeplix.experiments.training",
    "window": "toeplix.experiments.window",
    "linear": "toeplix.experiments.linear",
    "variants": "toeplix.experiments.variants",
    "frozen": "toeplix.experiments.frozen",
    "initialisation": "toeplix.experiments.initialisation",
    "scaling": "toeplix.experiments.scaling",
    "throughput": "toeplix.experiments.throughput",
    "complexity": "toeplix.experiments.complexity",
    "decoding": "toeplix.experiments.decoding",
    "retention": "toeplix.experiments.retention",
    "capacity": "toeplix.experiments.capacity",
    "copying": "toeplix.experiments.copying",
    "recall": "toeplix.experiments.recall",
    "index": "toeplix.experiments.index",
    "symbols": "toeplix.experiments.symbols",
    "filters": "toeplix.experiments.filters",
    "benchmarks": "toeplix.experiments.benchmarks",
}


@runtime_checkable
class Experiment(Protocol):
    """What a module of this package offers."""

    Case: type
    CLAIMS: tuple[str, ...]
    COST: str  # of the laptop scale, in words
    ALONE: bool  # its times are the result: one case at once

    def cases(self, scale: Scale, rows: list[Row]) -> list[Any]: ...

    def measure(self, case: Any, work: Any) -> dict[str, Any]: ...

    def figure(self, rows: list[Row], published: list[Row]) -> Any: ...

    def table(self, rows: list[Row]) -> list[dict[str, Any]]: ...

    def holds(self, rows: list[Row]) -> dict[str, Verdict]: ...


def load(name: str) -> Experiment:
    """The module of an experiment."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}, only {', '.join(EXPERIMENTS)}")
    return importlib.import_module(EXPERIMENTS[name])


__all__ = ["EXPERIMENTS", "SCALES", "Experiment", "Row", "Scale", "Verdict", "load"]
