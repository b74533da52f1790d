"""The family beyond the paper: recurrent filters, lookup and attention blocks on text.

The default of version 0.1 (free filters, a gate that starts at 0), the same with a gate that starts at 1,
recurrent filters (also in 8 groups, and with the norm of embeddings that the default model has), these
with lookup in one block of four (the default model, also without that norm) or of two, or with
sliding-window attention in one block of four, beside Hyena and Llama, on the embedded corpus and on one
of the user (`--corpus`). Hyena has no final norm, as in the paper; it is also measured with one, as all
others. Parts:

    equal steps    every model reads the same tokens
    equal FLOPs    steps in inverse proportion to the FLOPs of a step, as many as version 0.1 affords
    equal time     the same with measured time, relative to a reference of equal sizes
    4 x steps      four times as many steps: which differences last

Learning rates are tuned at equal steps on the user's corpus (else the embedded one), and kept in the
other parts and on the embedded corpus, on which the main models are trained. With four times the steps
half of that learning rate is tried, too.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from toeplix.config import LOOKUP_BLOCKS
from toeplix.experiments.engine import curves, intervals, style, text_rows, text_training
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import FIRST, FREE, MODELS, Settings
from toeplix.experiments.engine.rows import Row, Table
from toeplix.experiments.engine.scale import CORPUS, Scale
from toeplix.experiments.engine.style import Figure
from toeplix.experiments.engine.text_rows import (
    EQUAL_FLOPS,
    EQUAL_TIME,
    Case,
    TextRow,
    at_best,
    rates_of,
)
from toeplix.experiments.engine.text_training import Pair, settled

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = False
COST = "an hour and a half on two cores with --jobs 2 and a corpus of the user"
EMBEDDED = "python"
RECURRENT: Settings = {"arch": "toeplitz", "filter": "recurrent", "groups": 1}
NORMED: Settings = {"embedding_norm": MODELS["hybrid"]["embedding_norm"]}
ATTENTION_BLOCKS = ["attention" if name == "lookup" else name for name in LOOKUP_BLOCKS]
COMPARED: dict[str, Settings] = {
    "version 0.1": FIRST | {"groups": 1},
    "hybrid": MODELS["hybrid"],  # the default model: lookup in one block of four
    "hyena": MODELS["hyena"],
    "hyena, final norm": MODELS["hyena"] | {"final_norm": True},
    "free": FREE | {"groups": 1},
    "recurrent": RECURRENT,
    "recurrent, 8 groups": RECURRENT | {"groups": 8},
    "recurrent, embedding norm": RECURRENT | NORMED,
    "hybrid, no embedding norm": MODELS["hybrid"] | {"embedding_norm": 0.0},
    "lookup 1 of 2": MODELS["hybrid"] | {"blocks": ["toeplitz", "lookup"]},
    "attention 1 of 4": MODELS["hybrid"] | {"blocks": ATTENTION_BLOCKS},
    "llama": MODELS["llama"],
}
ANCHOR = "version 0.1"  # the model whose cost the others get at equal FLOPs and equal time
COSTS = {EQUAL_FLOPS: "flops_per_step", EQUAL_TIME: "relative_time"}  # fields of rows
MAIN = (ANCHOR, "hybrid", "hyena", "llama")  # measured first, and trained longer
SAME_COST = (
    "hybrid",
    "hyena",
)  # models of the parts of equal cost: Llama learns too little in them
ON_BOTH_CORPORA = (ANCHOR, *SAME_COST)
TIMES = 4  # of the steps, in the longer runs
PAIRS = (
    Pair("hybrid", ANCHOR, decides=False),
    Pair("hybrid", "hyena", decides=False),
)
SIZES: dict[str, dict[str, Any]] = {
    "paper": {},
    "desk": {"depth": 4, "rates": (4e-3, 8e-3, 1.6e-2)},
    "laptop": {
        "dim": 96, "depth": 4, "batch": 16, "steps": 300, "eval_sequences": 256,
        "rates": (8e-3, 1.6e-2, 3.2e-2), "timing": 6.0,
    },
    "smoke": {"depth": 2},
}  # fmt: skip


def cases(scale: Scale, rows: list[TextRow]) -> list[Case]:
    first, *others = corpora(scale)
    here = replace(scale, **(SIZES[scale.name] | {"data": first}))
    part = f"{short(first)}, equal steps"
    main = {name: COMPARED[name] for name in MAIN}
    rest = {name: each for name, each in COMPARED.items() if name not in MAIN}
    found = text_training.tuned(here, main, rows, pairs=PAIRS, part=part)
    known = rates(rows, scale)
    like = Case.of(here, ANCHOR, COMPARED[ANCHOR], part=part, lr=0.0, seed=here.seeds[0])
    found += _equal_cost(here, known, rows, steps_from=like)
    for data in others:
        there = replace(here, data=data)
        some = {model: rate for model, rate in known.items() if model in ON_BOTH_CORPORA}
        found += _repeated(there, some, f"{short(data)}, equal steps")
        found += _equal_cost(there, known, rows, steps_from=like)
    found += text_training.tuned(here, rest, rows, part=part)
    return found + _longer(here, known, rows, f"{short(first)}, {TIMES} x steps")


def _equal_cost(
    scale: Scale, known: Mapping[str, float], rows: list[TextRow], *, steps_from: Case
) -> list[Case]:
    """Return the runs of equal FLOPs and equal time; costs of a step are those of `steps_from`."""
    found = []
    for name, cost in COSTS.items():
        steps = steps_of(rows, steps_from, cost, scale.seeds)
        some = {model: rate for model, rate in known.items() if model in steps}
        found += _repeated(scale, some, f"{short(scale.data)}, {name}", steps)
    return found


def rates(rows: list[TextRow], scale: Scale) -> dict[str, float]:
    """Return the learning rates of the models that are tuned."""
    data = tuning_corpus(scale)
    here = replace(scale, **(SIZES[scale.name] | {"data": data}))
    part = f"{short(data)}, equal steps"
    found = {
        name: settled(rows, name, each, here, part=part).rate for name, each in COMPARED.items()
    }
    return {name: rate for name, rate in found.items() if rate is not None}


def _repeated(
    scale: Scale, known: Mapping[str, float], part: str, steps: Mapping[str, int] | None = None
) -> list[Case]:
    """Return runs with all seeds at known learning rates, for the scale's steps or those given."""
    return [
        Case.of(
            scale,
            name,
            COMPARED[name],
            part=part,
            lr=rate,
            seed=seed,
            steps=scale.steps if steps is None else steps[name],
        )
        for name, rate in known.items()
        for seed in scale.seeds
    ]


def _longer(scale: Scale, known: Mapping[str, float], rows: list[TextRow], part: str) -> list[Case]:
    """Return longer runs at the known learning rate and at half of it; at the better with all seeds."""
    here = replace(scale, steps=TIMES * scale.steps)
    found = []
    for name in MAIN:
        if name not in known:
            continue
        both = (known[name], known[name] / 2)
        first = Case.of(here, name, COMPARED[name], part=part, lr=0.0, seed=scale.seeds[0])
        tried = rates_of(rows, first)
        wanted = [(rate, scale.seeds[0]) for rate in both]
        if set(both) <= set(tried):
            better = min(both, key=lambda rate: tried[rate])
            wanted += [(better, seed) for seed in scale.seeds[1:]]
        found += [
            Case.of(here, name, COMPARED[name], part=part, lr=rate, seed=seed)
            for rate, seed in wanted
        ]
    return found


def tuning_corpus(scale: Scale) -> str:
    """Return the corpus on which learning rates are chosen: the user's, if there is one."""
    return corpora(scale)[0]


def corpora(scale: Scale) -> tuple[str, ...]:
    """Return the corpus of the user if there is one, and the embedded corpus."""
    return tuple(dict.fromkeys(data for data in (scale.data, EMBEDDED) if data != CORPUS))


def short(data: str) -> str:
    """Return the name of a corpus without the digest of its content."""
    return data.partition("@")[0]


def steps_of(rows: list[TextRow], like: Case, cost: str, seeds: tuple[int, ...]) -> dict[str, int]:
    """Return the steps that cost as much as those of ANCHOR in a setting, once both are measured.

    Costs are means over `seeds`, no fewer and no others: measured times have noise, and other steps would
    ask for all runs of a part again.
    """
    several = at_best([row for row in rows if row["seed"] in seeds], like.part, like=like)
    groups = {
        name: group
        for name, group in several.items()
        if {row["seed"] for row in group} == set(seeds)
    }
    if ANCHOR not in groups:
        return {}
    anchor = _cost(groups[ANCHOR], cost)
    return {
        name: max(2, round(like.steps * anchor / _cost(groups[name], cost) / 10) * 10)
        for name in SAME_COST
        if name in groups
    }


def _cost(rows: list[TextRow], cost: str) -> float:
    several: list[Mapping[str, Any]] = list(rows)
    return fmean(row[cost] for row in several)


measure = text_training.measure
table: Any = curves.table


def parts(rows: list[TextRow]) -> list[str]:
    """Return the parts that are measured, in order of appearance."""
    return list(dict.fromkeys(row["part"] for row in rows))


def figure(rows: list[TextRow], published: list[Row]) -> Figure:
    several = sorted(parts(rows), key=lambda part: part.partition(", ")[0])
    columns = min(3, len(several))
    lines = -(-len(several) // columns)
    drawing, axes = style.panels(columns, lines, width=3.6, height=2.9, used=len(several))
    for place, part in zip(axes, several, strict=True):
        groups = at_best(rows, part)
        curves.ends(place, {ANCHOR: _anchor(rows, part)} | groups, title=part)
    return curves.compose(drawing)


def _anchor(rows: list[TextRow], part: str) -> list[TextRow]:
    """Return the rows of ANCHOR in a part; parts of equal cost refer to those of equal steps."""
    equal_steps = part.partition(", ")[0] + ", equal steps"
    return at_best(rows, part).get(ANCHOR) or at_best(rows, equal_steps).get(ANCHOR, [])


def gaps(rows: list[TextRow]) -> Table:
    """Return the loss of every model minus that of ANCHOR, by part, paired by seed."""
    found: list[dict[str, object]] = []
    for part in parts(rows):
        anchor = _anchor(rows, part)
        for name, group in at_best(rows, part).items():
            one, other = text_rows.losses(group), text_rows.losses(anchor)
            if name != ANCHOR and set(one) & set(other):
                difference = intervals.difference(one, other)
                found.append({"part": part, "model": name, f"minus {ANCHOR}": str(difference)})
    return found


def holds(rows: list[TextRow]) -> dict[str, Verdict]:
    """Return no verdicts: the paper makes no claim about these models."""
    return {}
