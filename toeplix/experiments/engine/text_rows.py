"""Rows of training on text, and which of them belong together.

A file of rows may have runs on several corpora, or of several numbers of steps. Cases are compared with
rows of the same case only (`same_case`), and models of a part with rows of one setting only (`at_best`):
the same corpus, and as many training tokens unless the part is one of EQUAL_COST.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, TypeVar

from toeplix.experiments.engine import tuning
from toeplix.experiments.engine.models import Settings
from toeplix.experiments.engine.repeated_bigrams import SplitLoss
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.text_runs import Sized

if TYPE_CHECKING:
    from typing_extensions import Self

# fields that all models of a part have in common, beside the number of training tokens
SETTING = ("data", "vocab", "val_fraction", "protocol", "eval_sequences")


# how names of parts end whose models have different numbers of steps, so that they cost the same
EQUAL_FLOPS, EQUAL_TIME = "equal FLOPs", "equal time"


EQUAL_COST = (EQUAL_FLOPS, EQUAL_TIME)


@dataclass(frozen=True, kw_only=True)
class Case(Sized):
    """One training run on text."""

    timing: float
    reference: int  # width of the reference model for relative times
    part: str = ""  # part of the experiment, if it has several

    @classmethod
    def of(cls, scale: Scale, name: str, settings: Settings, **other: Any) -> "Self":
        return super().of(scale, name, settings, **({"reference": scale.dim} | other))


class TextFound(TypedDict):
    """The measurements of one training run on text."""

    diverged: str | None  # the reason
    loss: float | None  # final validation loss in nats per token; None if the run diverged
    tune_loss: NotRequired[float | None]  # on the tuning half; not in rows of the first protocol
    unigram_loss: NotRequired[float]  # of n-gram models of as many training tokens
    bigram_loss: NotRequired[float]
    split_loss: NotRequired[SplitLoss | None]  # by repeated bigrams; not in older rows
    bits_per_byte: float | None
    curve: list[list[float]]  # step and validation loss
    parameters: int
    flops_per_step: float
    training_bytes: int
    relative_time: float
    run: str  # digest of its record


class TextRow(TextFound):
    """Fields of a `Case` and the measurements of its run."""

    model: str
    part: str
    dim: int
    context: int
    vocab: int
    batch: int
    steps: int
    lr: float
    seed: int
    tuning_run: NotRequired[bool]


AnyText = TypeVar("AnyText", bound=TextRow)
AnyRow = TypeVar("AnyRow", bound=Mapping[str, Any])


def same_case(row: Mapping[str, Any], case: Case) -> bool:
    """Return whether a row is of a case at any learning rate and seed.

    Fields that a row does not have are not compared: older rows lack those that were added later.
    """
    names = (field.name for field in fields(Case) if field.name not in ("lr", "seed"))
    return all(_same(row[name], getattr(case, name)) for name in names if name in row)


def _same(one: object, other: object) -> bool:
    """Compare values as JSON has them: a tuple is a list."""
    return one == other or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def identity(row: Mapping[str, Any]) -> str:
    """Return a key of all fields of a case except learning rate and seed."""
    names = [field.name for field in fields(Case) if field.name not in ("lr", "seed")]
    return json.dumps([row.get(name) for name in names], sort_keys=True)


def setting(row: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a row must have in common with rows of other models to be compared with them."""
    known = tuple(row.get(name) for name in SETTING)
    sizes = ("steps", "batch", "context")
    if row["part"].endswith(EQUAL_COST) or not all(name in row for name in sizes):
        return known
    return (*known, math.prod(row[name] for name in sizes))


def of_setting(rows: Sequence[AnyText], case: Case) -> list[AnyText]:
    """Return the rows that models of a case's setting are compared with."""
    wanted = vars(case)
    return [
        row
        for row in rows
        if setting({**wanted, **row}) == setting({**wanted, "part": row["part"]})
    ]


def fullest(rows: Sequence[AnyRow], key: Callable[[Mapping[str, Any]], object]) -> list[AnyRow]:
    """Return the rows of one key: the one with most models, then with most rows, then the latest."""
    groups: dict[object, list[AnyRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return max(
        reversed(groups.values()),
        key=lambda group: (len({row.get("model") for row in group}), len(group)),
        default=[],
    )


def of_one_text(rows: Sequence[AnyRow], data: str | None = None) -> list[AnyRow]:
    """Return the rows on text `data`; without a name, on the text with most models and rows.

    Rows on no text (random tokens) stay.
    """
    if data is None:
        known = fullest([row for row in rows if row.get("data")], lambda row: row["data"])
        data = known[0]["data"] if known else None
    return [row for row in rows if (row.get("data") or data) == data]


def comparable(case: type, rows: Sequence[AnyRow], data: str | None = None) -> list[AnyRow]:
    """Return rows of one text only (`of_one_text`), except those of training on text.

    Experiments that train on text compare rows of one setting by themselves (`at_best`), and some of
    them have several texts.
    """
    return list(rows) if issubclass(case, Case) else of_one_text(rows, data)


def rates_of(rows: Sequence[TextRow], case: Case) -> dict[float, float]:
    """Return tuning losses of a case with its seed by learning rate; of diverged runs, infinity."""
    return {
        row["lr"]: tuning.level(row)
        for row in rows
        if row["seed"] == case.seed
        and row.get("tuning_run", False) == case.tuning_run
        and same_case(row, case)
    }


def at_best(
    rows: Sequence[TextRow], part: str = "", *, like: Case | None = None
) -> dict[str, list[TextRow]]:
    """Return the rows of each model at its best learning rate (`tuning.at_best`).

    All are of one setting: that of a case if it is given, otherwise the one with most models and rows.
    """
    found: dict[str, list[TextRow]] = {}
    full_runs = [row for row in rows if row["part"] == part and not row.get("tuning_run")]
    full_runs = fullest(full_runs, setting) if like is None else of_setting(full_runs, like)
    for name in dict.fromkeys(row["model"] for row in full_runs):
        mine = fullest([row for row in full_runs if row["model"] == name], identity)
        found[name] = tuning.at_best(mine)
    return found


def edge(rows: Sequence[TextRow], name: str, part: str = "") -> str:
    """Return where the reported learning rate of a model lies among those tried (`tuning.place`).

    Rates of shorter runs count as tried, and those of full runs that checked them.
    """
    mine = [row for row in rows if row["model"] == name and row["part"] == part]
    shown = at_best(rows, part).get(name)
    if not shown:  # shorter runs only
        return tuning.edge({row["lr"]: tuning.level(row) for row in mine})
    shorter = any(row.get("tuning_run") for row in mine)
    same = _without_length if shorter else identity
    tried = {row["lr"] for row in mine if same(row) == same(shown[0])}
    return tuning.place(shown[0]["lr"], tried)


def _without_length(row: Mapping[str, Any]) -> str:
    """Return the identity of a row without what distinguishes shorter runs."""
    length = ("steps", "warmup", "timing", "tuning_run")
    return identity({name: value for name, value in row.items() if name not in length})


def losses(rows: Sequence[TextRow]) -> dict[int, float]:
    """Return final validation losses by seed, in nats per token, without diverged runs."""
    return {row["seed"]: row["loss"] for row in rows if row["loss"] is not None}


SplitKind = Literal["repeated", "rare_repeated", "other"]


def split_losses(rows: Sequence[TextRow], kind: SplitKind) -> dict[int, float]:
    """Return losses on (rare) repeated bigrams or on other tokens by seed; older rows have none."""
    found = {}
    for row in rows:
        split = row.get("split_loss")
        loss = split.get(kind) if split else None
        if loss is not None:
            found[row["seed"]] = loss
    return found


def tokens_per_parameter(row: TextRow) -> float:
    return row["steps"] * row["batch"] * row["context"] / row["parameters"]
