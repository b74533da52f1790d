"""Experiments: every table and figure of the paper as one module of four functions.

    cases(scale, rows)        the cases to measure; later cases may depend on rows that exist already
    measure(case, work)       the measured numbers of one case; trained models are kept in `work`
    figure(rows, published)   the figure, from rows alone
    holds(rows)               verdicts on the paper's claims: holds, fails or undecided

A module also defines the record `Case`, the only input of `measure`. Rows are stored in
`results/EXPERIMENT/SCALE.jsonl`. To add an experiment, write such a module and add it to EXPERIMENTS.
"""

import importlib
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import SCALES, Scale
from toeplix.experiments.engine.style import Figure

EXPERIMENTS = {
    "training": "toeplix.experiments.training",
    "frontier": "toeplix.experiments.frontier",
    "ablation": "toeplix.experiments.ablation",
    "controls": "toeplix.experiments.controls",
    "window": "toeplix.experiments.window",
    "linear": "toeplix.experiments.linear",
    "variants": "toeplix.experiments.variants",
    "frozen": "toeplix.experiments.frozen",
    "initialisation": "toeplix.experiments.initialisation",
    "scaling": "toeplix.experiments.scaling",
    "throughput": "toeplix.experiments.throughput",
    "complexity": "toeplix.experiments.complexity",
    "decoding": "toeplix.experiments.decoding",
    "latency": "toeplix.experiments.latency",
    "retention": "toeplix.experiments.retention",
    "capacity": "toeplix.experiments.capacity",
    "copying": "toeplix.experiments.copying",
    "recall": "toeplix.experiments.recall",
    "mqar": "toeplix.experiments.mqar",
    "lookup": "toeplix.experiments.lookup",
    "family": "toeplix.experiments.family",
    "decays": "toeplix.experiments.decays",
    "length": "toeplix.experiments.length",
    "index": "toeplix.experiments.index",
    "symbols": "toeplix.experiments.symbols",
    "filters": "toeplix.experiments.filters",
    "benchmarks": "toeplix.experiments.benchmarks",
}


C = TypeVar("C")


@runtime_checkable
class Experiment(Protocol[C]):
    """The functions and constants that every experiment module defines, for its own record `Case`."""

    Case: type[C]
    CLAIMS: tuple[str, ...]
    COST: str  # duration at the laptop scale, as text
    MEASURES_TIME: bool  # the experiment measures times, so one case runs at a time

    def cases(self, scale: Scale, rows: list[Row]) -> list[C]: ...

    def measure(self, case: C, work: Path) -> Found: ...

    def figure(self, rows: list[Row], published: list[Row]) -> Figure: ...

    def table(self, rows: list[Row]) -> Table: ...

    def holds(self, rows: list[Row]) -> dict[str, Verdict]: ...


def load(name: str) -> Experiment[Any]:
    """Return the module of an experiment."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}, only {', '.join(EXPERIMENTS)}")
    return importlib.import_module(EXPERIMENTS[name])


__all__ = ["EXPERIMENTS", "SCALES", "Experiment", "Row", "Scale", "Verdict", "load"]
