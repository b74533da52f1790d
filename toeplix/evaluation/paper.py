"""The paper's table of benchmarks: stock tasks, metrics and published values (in percent).

The group `toeplix-paper` has all of these tasks; tasks/paper.yaml defines it for the harness itself.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

GROUP = "toeplix-paper"


class Score(NamedTuple):
    """A score in percent with its standard error (NaN: unknown), over `tasks` tasks of a row."""

    value: float
    error: float
    tasks: int
    questions: int
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table: the mean of a metric over tasks."""

    label: str
    tasks: tuple[str, ...]
    metric: str
    sizes: tuple[int, ...]  # questions of each task
    published: dict[str, float]
    scale: float = 100.0  # of the harness's values to percent
    chance: float | None = None  # percent, by guessing among the choices

    def metric_of(self, task: str) -> str:
        return "mcc" if task == "cola" else self.metric

    def score(self, found: Mapping[tuple[str, str], Mapping[str, Any]]) -> Score | None:
        """Return the score over those tasks that are in the rows by (task, metric); None if none is."""
        rows = [found.get((task, self.metric_of(task))) for task in self.tasks]
        there = [row for row in rows if row is not None]
        if not there:
            return None
        errors = [row["stderr"] if row["stderr"] is not None else math.nan for row in there]
        return Score(
            self.scale * sum(row["value"] for row in there) / len(there),
            self.scale * math.sqrt(sum(error**2 for error in errors)) / len(there),
            len(there),
            sum(row["count"] for row in there),
            next((row["note"] for row in there if row["note"]), ""),
        )

    def constant_answer(self, found: Mapping[tuple[str, str], Mapping[str, Any]]) -> float | None:
        """Return the score of the best constant answer to each task; None if there is no such score."""
        rows = [found.get((task, self.metric_of(task))) for task in self.tasks]
        shares = [
            0.0 if row["metric"] == "mcc" else row.get("constant")
            for row in rows
            if row is not None
        ]
        known = [share for share in shares if share is not None]
        return self.scale * sum(known) / len(known) if known and len(known) == len(shares) else None

    def published_error(self, value: float) -> float:
        """Return the standard error of a published accuracy; an upper bound for other means."""
        variance = value / 100 * (1 - value / 100)
        return 100 * math.sqrt(sum(variance / size for size in self.sizes)) / len(self.sizes)


def _of(transformer: float | None, hyena: float, toeplitz: float) -> dict[str, float]:
    values = {"transformer": transformer, "hyena": hyena, "toeplitz": toeplitz}
    return {name: value for name, value in values.items() if value is not None}


def _longbench(*names: str) -> tuple[str, ...]:
    return tuple(f"longbench_{name}" for name in names)


TABLE = (
    Row(
        label="SQuAD, contains",
        tasks=("squad_completion",),
        metric="contains",
        sizes=(2984,),
        published=_of(None, 0.2, 2.1),
    ),
    Row(
        label="SQuAD v2, exact if answerable",
        tasks=("squadv2",),
        metric="HasAns_exact",
        sizes=(5928,),
        published=_of(5.1, 0.0, 1.7),
        scale=1.0,
    ),
    # the paper does not say which F1; over all questions is the only one its values are possible for
    Row(
        label="SQuAD v2, F1",
        tasks=("squadv2",),
        metric="f1",
        sizes=(11873,),
        published=_of(None, 36.3, 40.9),
        scale=1.0,
    ),
    Row(
        label="IFEval, strict, by prompt",
        tasks=("ifeval",),
        metric="prompt_level_strict_acc",
        sizes=(541,),
        published=_of(12.2, 7.8, 8.7),
    ),
    Row(
        label="LongBench, few-shot",
        tasks=_longbench("trec", "triviaqa", "samsum", "lsht"),
        metric="score",
        sizes=(200, 200, 200, 200),
        published=_of(4.5, 2.3, 2.5),
    ),
    # one document and several: the paper has one line for both
    Row(
        label="LongBench, document QA",
        tasks=_longbench(
            *("narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh"),
            *("hotpotqa", "2wikimqa", "musique", "dureader"),
        ),
        metric="score",
        sizes=(200, 200, 150, 200, 200, 200, 200, 200),
        published=_of(1.5, 2.3, 2.0),
    ),
    Row(
        label="LongBench, summarisation",
        tasks=_longbench("gov_report", "qmsum", "multi_news", "vcsum"),
        metric="score",
        sizes=(200, 200, 200, 200),
        published=_of(7.0, 5.7, 5.7),
    ),
    Row(
        label="LongBench, retrieval",
        tasks=_longbench("passage_count", "passage_retrieval_en", "passage_retrieval_zh"),
        metric="score",
        sizes=(200, 200, 200),
        published=_of(2.9, 2.8, 3.1),
    ),
    Row(
        label="SWDE, contains",
        tasks=("swde",),
        metric="contains",
        sizes=(1111,),
        published=_of(21.1, 3.5, 3.7),
    ),
    Row(
        label="xWinograd, English",
        tasks=("xwinograd_en",),
        metric="acc",
        sizes=(2325,),
        published=_of(57.7, 56.3, 57.6),
        chance=50.0,
    ),
    Row(
        label="ARC-Easy",
        tasks=("arc_easy",),
        metric="acc",
        sizes=(2376,),
        published=_of(49.3, 49.6, 49.7),
        chance=25.0,
    ),
    # the stock tag; the paper does not say how it averages: here every task counts the same
    Row(
        label="GLUE",
        tasks=("cola", "mnli", "mnli_mismatch", "mrpc", "qnli", "qqp", "rte", "sst2", "wnli"),
        metric="acc",
        sizes=(1043, 9815, 9832, 408, 5463, 40430, 277, 872, 71),
        published=_of(40.3, 41.9, 42.7),
    ),
    Row(
        label="LAMBADA, OpenAI",
        tasks=("lambada_openai",),
        metric="acc",
        sizes=(5153,),
        published=_of(23.6, 7.2, 4.0),
    ),
    Row(
        label="HellaSwag",
        tasks=("hellaswag",),
        metric="acc",
        sizes=(10042,),
        published=_of(29.6, 28.6, 28.7),
        chance=25.0,
    ),
)

TASKS = tuple(dict.fromkeys(task for row in TABLE for task in row.tasks))


def expanded(names: Iterable[str]) -> list[str]:
    """Return the names of tasks with the group of the paper expanded."""
    wanted = [name for given in names for name in (TASKS if given == GROUP else [given])]
    return list(dict.fromkeys(wanted))


def published_rows() -> list[dict[str, Any]]:
    """Return the paper's values as in experiments/published/benchmarks.jsonl, a row per architecture."""
    archs = dict.fromkeys(arch for row in TABLE for arch in row.published)
    return [
        {
            "case": {"model": arch},
            "found": {
                "percent": {
                    row.label: row.published[arch] for row in TABLE if arch in row.published
                }
            },
        }
        for arch in archs
    ]
